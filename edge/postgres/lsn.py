"""LSNs as PostgreSQL writes them: two hexadecimal numbers of 32 bits with a slash between."""

import re

from headrace.errors import CorruptInput

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def format_lsn(lsn: int) -> str:
    """Return the LSN as PostgreSQL prints it: `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """Return the LSN that a text names; raise CorruptInput when it is none."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise CorruptInput(f"{text[:40]!r} is no LSN", hint="An LSN looks like 16/B374D848.")
    return int(match[1], 16) << 32 | int(match[2], 16)
