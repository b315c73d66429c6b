"""How far a source that Debezium reads is acknowledged, with Debezium's own offset, which it keeps nowhere else.

Where its connectors are in their logs is a number for each offset, which grows as the log does. It belongs to the end of a
transaction, or of a connector that reads a binlog to its beginning, or to a heartbeat between two, so it is never within one.
Positions are made of it (edge/debezium/stream.py): they are the same when the log is read again. A binlog is read on only at a
server that fits the checkpoint, and with the schema history: a file in the state folder to which the engine's process appends
(SchemaHistoryFile.java), and which is never shorter than it was when the checkpoint was written, since what a checkpoint confirms
was read behind all changes of tables in it.
"""

import os
import re
from bisect import bisect_right
from collections.abc import Callable
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec

from edge.debezium.child import Server, history_lost, log_gone
from edge.debezium.connectors import offset_place
from edge.mysql.checkpoint import MysqlGtids, listed_gtid
from edge.progress.checkpoint import Checkpoint
from headrace import files
from headrace.configuration.databases import UNPROVEN
from headrace.errors import CorruptInput, NeedsOperator
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
#: The rows that Debezium copied when the source was made, as frames; in the state folder.
COPY: Final = "debezium-copy.frames"


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
    #: The place of `offset`; of a binlog the end of the transaction that begins there. It is lower while the copy ahead of the
    #: offset is not acknowledged, and behind a heartbeat at whose place more changes may come (edge/debezium/connectors.py).
    confirmed_place: int = 0
    #: Whether rows were copied that come ahead of `offset`, and are not acknowledged.
    copy_ahead: bool = False
    #: Key and value of what Debezium's offset storage would have; None while the source is made.
    offset: tuple[str, str] | None = None
    #: Fingerprint of the properties by which Debezium reads: others may give a transaction other changes.
    properties: str = ""
    #: How long the schema history was, which only grows; a connector that needs none has none.
    history_bytes: int = 0
    #: The server's; a MySQL's `server_uuid`, a MariaDB's `server_id`. Empty while the source is made.
    system_identifier: str = ""

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

    def advanced(self, position: Position, place: int, offset: tuple[str, str] | None) -> Self:
        """Return the checkpoint moved to a position, and to a place with its offset, neither of them backward."""
        confirmed = max(place, self.confirmed_place)
        has_copy = self.copy_ahead and self.offset is not None and confirmed < place_of(self.connector, self.offset[1])
        return msgspec.structs.replace(
            self,
            acknowledged=str(max(position, self.position)),
            confirmed_place=confirmed,
            copy_ahead=has_copy,
            offset=offset or self.offset,
        )


class Mark(NamedTuple):
    """A place between transactions, and what has it."""

    place: int
    #: The number of its record among those of the engine's process.
    number: int
    offset: tuple[str, str]


class Marks:
    """The places that one session has read, oldest first, from the one on that the checkpoint has."""

    def __init__(self) -> None:
        self._marks: list[Mark] = []

    def restart(self) -> None:
        """Forget them: the log is read again from the checkpoint."""
        self._marks.clear()

    def add(self, mark: Mark) -> None:
        """Note a place that was read."""
        self._marks.append(mark)

    def offset_at(self, place: int) -> tuple[str, str] | None:
        """Return the offset of the newest place that is not behind this one; None where the session has read none."""
        count = self._count(place)
        return self._marks[count - 1].offset if count else None

    def number_at(self, place: int) -> int:
        """Return the number of the newest record that is not behind a durable place, once; 0 for none."""
        if not (count := self._count(place)):
            return 0
        newest = self._marks[count - 1]
        # Its offset is still that of the checkpoint.
        self._marks[:count] = [newest._replace(number=0)]
        return newest.number

    def _count(self, place: int) -> int:
        return bisect_right(self._marks, place, key=lambda mark: mark.place)


#: In the state folder.
HISTORY: Final = "debezium-schema-history.jsonl"
#: The settings in which MySQL, or MariaDB, has the GTIDs that it has logged.
_LOGGED: Final = ("gtid_executed", "gtid_binlog_pos")
#: What a server needs, where it has the setting at all; `connectors` of Debezium look at the others themselves.
_WANTED: Final = {"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_value_options": "", "gtid_mode": "ON"}


def compared_settings(server: Server) -> list[tuple[str, str, str]]:
    """Return name and value of the settings that are depended on, and what each has to be."""
    return [(name, server.settings[name], wanted) for name, wanted in _WANTED.items() if name in server.settings]


def check_settings(server: Server) -> None:
    """Raise NeedsOperator unless the server writes a log that can be read by GTIDs, with whole rows."""
    if wrong := [each for each in compared_settings(server) if each[1].upper() != each[2]]:
        found = ", ".join(f"{name} is {value or 'empty'!r}" for name, value, _ in wrong)
        sql = "; ".join(f"set global {name} = '{wanted}'" for name, _, wanted in wrong)
        raise NeedsOperator(
            f"the server's log does not carry what is needed: {found}", hint=f"{sql}; keep it in its configuration."
        )


def check_begun(server: Server) -> None:
    """Raise NeedsOperator where the log has no GTID yet: Debezium's offset of the first one's beginning has it as read."""
    logged = [server.settings[name] for name in _LOGGED if name in server.settings]
    if logged and not any(logged):
        raise NeedsOperator(
            "the server's binlog has no transaction with a GTID yet, behind which Debezium could begin",
            hint="Commit a change at the server, in any table; then run 'headrace edge init' again.",
        )


def check_log(server: Server, offset: str) -> None:
    """Raise NeedsOperator unless the binlog goes on at an offset, after the transactions that the offset has.

    So a log that was reset and has grown as long again is not taken for the former one: both servers number from 1 again.
    """
    known = str(msgspec.json.decode(offset, type=dict[str, object]).get("gtids") or "")
    if server.at_offset is None:
        raise log_gone("the binlog was purged or reset, or the server was restored from a backup")
    for kind, text in server.at_offset:
        if kind == "Gtid_list":
            holds = not text or set(text.split(",")) <= set(known.split(","))
        elif (begun := listed_gtid(kind, text)) is not None:
            holds = not MysqlGtids.parse(known).covers(begun)
        else:
            continue
        if not holds:
            raise log_gone(
                f"at its place is another one, with GTID {text[:80]}: the binlog was reset, or the server restored"
            )
        return


def make_history(folder: Path) -> None:
    """Begin a new history."""
    files.write_private(folder / HISTORY, b"")


def history_bytes(folder: Path) -> int:
    """Return how long the history is in whole lines, which are durable then; 0 for none.

    A line that is being written is not: it may be cut by a crash, and is taken off where the engine starts.
    """
    try:
        with (folder / HISTORY).open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return 0
            os.fsync(file.fileno())
            with mmap(file.fileno(), 0, access=ACCESS_READ) as lines:
                return lines.rfind(b"\n") + 1
    except FileNotFoundError:
        return 0


def check_history(folder: Path, at_least: int) -> None:
    """Raise NeedsOperator where the history is gone, or shorter than it was."""
    if history_bytes(folder) < max(at_least, 1):
        raise history_lost("is lost or cut short")
