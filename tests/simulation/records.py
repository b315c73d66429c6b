"""Records of the simulated databases, as they are found in Kafka."""

import re

from headrace.position import Position

_POSITION = re.compile(rb'"position":"([^"]+)"')


def position_in(value: bytes | None) -> Position:
    """Return the position of a record."""
    found = _POSITION.search(value or b"")
    assert found is not None
    return Position.parse(found[1].decode())
