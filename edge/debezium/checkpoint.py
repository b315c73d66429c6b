"""How far a source that Debezium reads is acknowledged, with Debezium's own offset, which it keeps nowhere else.

Where its connectors are in their logs is a number for each offset, which grows as the log does. It belongs to the end of a
transaction, or of a connector that reads a binlog to its beginning, or to a heartbeat between two, so it is never within one.
Positions are made of it (edge/debezium/stream.py): they are the same when the log is read again.
"""

import re
from collections.abc import Callable
from typing import Any, Final, Self

import msgspec

from edge.debezium.unproven import offset_place
from edge.mysql.checkpoint import MysqlGtids
from edge.progress.checkpoint import Checkpoint
from headrace.configuration.debezium import UNPROVEN
from headrace.errors import CorruptInput
from headrace.formats import UNREADABLE
from headrace.position import Position


def postgres_place(offset: dict[str, Any]) -> int:
    """Return the LSN where the last transaction that was read ends."""
    # `lsn` may be of a message that is no commit.
    place: int = offset.get("lsn_commit") or offset["lsn"]
    return place


def binlog_place(offset: dict[str, Any]) -> int:
    """Return where the binlog is read again: within a transaction, where that begins."""
    number, at = int(offset["file"].rpartition(".")[2]), int(offset["pos"])
    return number << 32 | at


#: By connector.
PLACES: dict[str, Callable[[dict[str, Any]], int]] = {
    "postgres": postgres_place,
    "mysql": binlog_place,
    "mariadb": binlog_place,
}
#: Connectors that read a binlog: a transaction has its place where it begins, and what its end says is within it.
BINLOGS: Final = frozenset({"mysql", "mariadb"})
PLACES |= dict.fromkeys(UNPROVEN, offset_place)
#: What an offset has of the transaction that it is in, or was in.
_WITHIN: Final = re.compile("transaction_.*|event|row")
#: What an offset has while rows are copied.
_COPYING: Final = ("snapshot", "initsync")


def place_of(connector: str, offset: bytes | str) -> int:
    """Return the place of an offset as the engine writes it; raise CorruptInput where it has none."""
    try:
        place = PLACES[connector](msgspec.json.decode(offset, type=dict[str, Any]))
    except (AttributeError, KeyError, TypeError, *UNREADABLE) as error:
        raise CorruptInput(f"an offset of Debezium's connector {connector} names no place in its log") from error
    if not isinstance(place, int) or not 0 < place < 1 << (128 if connector in UNPROVEN else 64):
        raise CorruptInput(f"an offset of Debezium's connector {connector} names no place in its log")
    return place


def restart_offset(connector: str, offset: bytes) -> str | None:
    """Return the offset from which to read again, of one at the beginning of a transaction or between two; None for a copy's."""
    if connector == "postgres":
        return offset.decode()
    fields = msgspec.json.decode(offset, type=dict[str, Any])
    if any(name in fields for name in _COPYING):
        return None
    return msgspec.json.encode({name: each for name, each in fields.items() if not _WITHIN.fullmatch(name)}).decode()


def has_read(connector: str, offset: str, gtid: str) -> bool:
    """Whether an offset has a transaction as read, by the transaction's id as Debezium has it."""
    gtids = str(msgspec.json.decode(offset, type=dict[str, Any]).get("gtids") or "")
    try:
        ranges = MysqlGtids.parse(gtids) if connector == "mysql" else None
        return gtid in gtids.split(",") if ranges is None else ranges.covers(MysqlGtids.parse(gtid))
    except CorruptInput:
        # One of before the server had GTIDs.
        return False


class DebeziumCheckpoint(Checkpoint, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a source's changes are acknowledged, and from where its connector reads again."""

    connector: str
    #: The place of `offset`, or of a binlog where the transaction ends that begins there; less than that while the copy is not
    #: acknowledged that comes ahead of it, and at places that may have several transactions (edge/debezium/unproven.py).
    confirmed_place: int = 0
    #: Whether rows were copied that come ahead of `offset`, and are not acknowledged; None in a checkpoint of before.
    copy_ahead: bool | None = None
    #: Key and value of what Debezium's offset storage would have; None while the source is made.
    offset: tuple[str, str] | None = None
    #: Fingerprint of the properties by which Debezium reads: others may give a transaction other changes.
    properties: str = ""
    #: How long the schema history was, which only grows; a connector that needs none has none.
    history_bytes: int = 0
    #: The server's; a MySQL's `server_uuid`, a MariaDB's `server_id`. Empty while the source is made, and in a checkpoint of
    #: before, which takes that of the present server.
    system_identifier: str = ""
    #: The slot, and at which server, that was not there before this `init`, and so is its own to drop if it is cut; empty once
    #: the source is made.
    slot: str = ""

    def check(self) -> None:
        """Raise CorruptInput where a text of it, or its offset, is not what it has to be."""
        super().check()
        if self.offset is not None:
            place_of(self.connector, self.offset[1])

    @property
    def confirmed(self) -> int:
        """The confirmed place."""
        return self.confirmed_place

    @property
    def place(self) -> str:
        """Debezium's offset."""
        return self.offset[1] if self.offset is not None else "none"

    @property
    def has_copy_ahead(self) -> bool:
        """Whether the copy comes before the log."""
        if self.copy_ahead is not None or self.offset is None:
            return bool(self.copy_ahead)
        place = place_of(self.connector, self.offset[1])
        return self.confirmed_place < place and self.position.commit in {0, place - 1}

    def advanced(self, position: Position, place: int, offset: tuple[str, str] | None) -> Self:
        """Return the checkpoint moved to a position, and to a place with its offset, neither of them backward."""
        confirmed, has_copy = max(place, self.confirmed_place), False
        if self.has_copy_ahead and self.offset is not None:
            has_copy = confirmed < place_of(self.connector, self.offset[1])
        return msgspec.structs.replace(
            self,
            acknowledged=str(max(position, self.position)),
            confirmed_place=confirmed,
            copy_ahead=has_copy,
            offset=offset or self.offset,
        )
