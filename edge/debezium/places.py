"""Where Debezium's connectors are in their logs: a number for each offset, which grows as the log does.

A place belongs to the end of a transaction, or to a heartbeat between two, so it is never within one. Positions are made of it
(edge/debezium/stream.py): they are the same when the log is read again.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from headrace.errors import CorruptInput


def postgres_place(offset: dict[str, Any]) -> int:
    """Return the LSN where the last transaction that was read ends."""
    # `lsn` may be of a message that is no commit.
    place: int = offset.get("lsn_commit") or offset["lsn"]
    return place


#: By connector.
PLACES: Final[dict[str, Callable[[dict[str, Any]], int]]] = {"postgres": postgres_place}


def place_of(connector: str, offset: bytes | str) -> int:
    """Return the place of an offset as the engine writes it; raise CorruptInput where it has none."""
    try:
        place = PLACES[connector](msgspec.json.decode(offset, type=dict[str, Any]))
    except (msgspec.MsgspecError, KeyError) as error:
        raise CorruptInput(f"an offset of Debezium's connector {connector} names no place in its log") from error
    if not isinstance(place, int) or not 0 < place < 1 << 64:
        raise CorruptInput(f"an offset of Debezium's connector {connector} names no place in its log")
    return place
