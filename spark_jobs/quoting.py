"""Names and texts as Spark SQL reads them, whatever characters they hold."""


def name(plain: str) -> str:
    """Return a column's name quoted: it may hold dots, spaces and backticks."""
    return f"`{plain.replace('`', '``')}`"


def table(path: str, version: int | None = None) -> str:
    """Return a Delta table as a statement names it, by its path."""
    return f"delta.{name(path)}" + ("" if version is None else f" VERSION AS OF {version}")


def text(plain: str) -> str:
    """Return a string literal."""
    escaped = plain.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
