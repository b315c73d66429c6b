"""Records of the simulated databases, as they are found in Kafka."""

import re

from headrace.position import Position

_POSITION = re.compile(rb'"position":"([^"]+)"')


def position_in(value: bytes | None) -> Position:
    """Return the position of a record."""
    match = _POSITION.search(value or b"")
    assert match is not None
    return Position.parse(match[1].decode())
