"""Names and texts as Spark SQL reads them, whatever characters they hold."""


def name(plain: str) -> str:
    """Return a column's name quoted: it may hold dots, spaces and backticks."""
    return f"`{plain.replace('`', '``')}`"


def text(plain: str) -> str:
    """Return a string literal."""
    escaped = plain.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
