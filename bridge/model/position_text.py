"""The text that is committed with an offset: a source's position. Format 3; those before are read as well.

2 POSITION TIME SOURCE BRIDGE      the position `-` while none is known; TIME in ISO 8601, UTC, by the bridge's clock
3 COMPLETE TIME SOURCE POSITION END TABLES BRIDGE
                                   of a source that has, or had, withheld tables (bridge/model/withheld.py); up to COMPLETE
                                   all of it is in its topics, which is what a reader of format 2 wants to know there
BRIDGE may be followed by the numbers of the source's partitions, `2,0,1`, in the order by which keys are shared out among them;
where it has one alone, and in texts of releases before, there is none.

POSITION TIME BRIDGE               in a group of the source's own, by releases up to 0.1
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from bridge.model import withheld as tables
from bridge.model.withheld import NOTHING, Withheld
from headrace.errors import CorruptInput
from headrace.formats import COMMITTED_POSITION
from headrace.position import Position

_NONE = "-"
#: The format that knows nothing of withheld tables.
_WITHOUT = 2
#: A source of more partitions has no order in its text, which Kafka limits to 4,096 bytes.
_MOST_PARTITIONS = 100
_VERSION = re.compile(r"[0-9]{1,3}")
_ORDER = re.compile(r"(.*) (\d+(?:,\d+)+)")


class PositionText(NamedTuple):
    """What the text of an offset holds."""

    position: Position | None
    at: str
    #: Empty in the text of a former release.
    source: str
    bridge: str
    #: None where the text does not have it.
    withheld: Withheld | None = None
    #: The source's partitions in the order by which keys are shared out; empty where the text does not have it.
    order: tuple[int, ...] = ()


def position_text(
    source: str, position: Position | None, bridge: str, withheld: Withheld = NOTHING, partitions: Sequence[int] = ()
) -> str:
    """Return the text for a source's position now: of format 2, which older bridges read, where nothing was ever withheld."""
    if 1 < len(partitions) <= _MOST_PARTITIONS:
        bridge = f"{bridge} {','.join(map(str, partitions))}"
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if position is None or withheld == NOTHING:
        return f"{_WITHOUT} {position or _NONE} {now} {source} {bridge}"
    complete = withheld.complete(position)
    return f"{COMMITTED_POSITION.version} {complete} {now} {source} {position} {withheld} {bridge}"


def parse(text: str, where: str = "a committed position") -> PositionText:
    """Return what a text holds; raise CorruptInput when no bridge wrote it, NeedsOperator when a newer one did."""
    version, _, rest = text.partition(" ")
    # Digits alone, and longer ones, are what other tools note: a time for instance.
    is_numbered = rest != "" and _VERSION.fullmatch(version) is not None
    if is_numbered:
        COMMITTED_POSITION.check(int(version), where)
    withheld = None
    try:
        if not is_numbered:
            position, at, bridge = text.split(" ", 2)
            source = ""
        elif int(version) == _WITHOUT:
            position, at, source, bridge = rest.split(" ", 3)
        else:
            _, at, source, position, end, listed, bridge = rest.split(" ", 6)
            withheld = tables.parse(end, listed)
        order: tuple[int, ...] = ()
        if (ordered := _ORDER.fullmatch(bridge)) is not None:
            bridge, order = ordered[1], tuple(map(int, ordered[2].split(",")))
        return PositionText(
            None if position == _NONE else Position.parse(position), at, source, bridge, withheld, order
        )
    except ValueError as error:
        raise CorruptInput("the text of a committed offset is none of a bridge's") from error
