"""Names of tables as people write them."""

import re

#: A table as SQL writes it: its schema and its name, each with or without quotes.
_QUOTED = re.compile(r'("(?:[^"]|"")+"|[^".]+)\.("(?:[^"]|"")+"|[^".]+)')


def unquoted(name: str) -> str:
    """Return a table's name as the source has it: quotes that SQL would need around its parts are taken off."""
    parts = _QUOTED.fullmatch(name)
    if parts is None or '"' not in name:
        return name
    return ".".join(part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts.groups())
