"""The text that is committed with an offset: a source's position. Format 2; that of former releases is read as well.

2 POSITION TIME SOURCE BRIDGE      the position `-` while none is known; TIME in ISO 8601, UTC, by the bridge's clock
POSITION TIME BRIDGE               in a group of the source's own, by releases up to 0.1
"""

from datetime import UTC, datetime
from typing import NamedTuple

from headrace.errors import CorruptInput
from headrace.formats import COMMITTED_POSITION
from headrace.position import Position

_NONE = "-"


class PositionText(NamedTuple):
    """What the text of an offset holds."""

    position: Position | None
    at: str
    #: Empty in the text of a former release.
    source: str
    bridge: str


def position_text(source: str, position: Position | None, bridge: str) -> str:
    """Return the text for a source's position now."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"{COMMITTED_POSITION.version} {position or _NONE} {now} {source} {bridge}"


def parse(text: str, where: str = "a committed position") -> PositionText:
    """Return what a text holds; raise CorruptInput when no bridge wrote it, NeedsOperator when a newer one did."""
    version, _, rest = text.partition(" ")
    is_numbered = version.isascii() and version.isdigit()
    if is_numbered:
        COMMITTED_POSITION.check(int(version[:9]), where)
    try:
        if is_numbered:
            position, at, source, bridge = rest.split(" ", 3)
        else:
            position, at, bridge = text.split(" ", 2)
            source = ""
        return PositionText(None if position == _NONE else Position.parse(position), at, source, bridge)
    except ValueError as error:
        raise CorruptInput("the text of a committed offset is none of a bridge's") from error
