"""The binlog of MariaDB and MySQL, from events to records (MariaDB manual, "Replication Protocol"; MySQL internals manual).

Sans-I/O: edge/mysql/session.py feeds one event at a time, whole and checked. A transaction's commit number is the place where
its GTID event ends, which is known when it begins; the ordinal counts its changes from 0. So positions depend on the log alone.
Whatever is not an event, or not one that can be passed over, raises CorruptInput or NeedsOperator with the place in the log. An
event that cannot be decoded adds nothing to the batch; after an error the decoder is of no more use.
"""

import logging
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from edge.batcher import Batcher
from edge.mysql import envelope, event, payload
from edge.mysql.envelope import Transaction
from edge.mysql.event import Group
from edge.mysql.place import file_name, place, split_name
from edge.mysql.statement import Kind, Statement, read_statement
from edge.mysql.table import MissingColumns, Table
from edge.mysql.tables import Tables
from headrace.errors import CorruptInput, NeedsOperator
from headrace.position import Position

_log = logging.getLogger(__name__)

_INSERTS: Final = frozenset({event.WRITE_1, event.WRITE_2, event.WRITE_1_COMPRESSED, event.WRITE_2_COMPRESSED})
_UPDATES: Final = frozenset({event.UPDATE_1, event.UPDATE_2, event.UPDATE_1_COMPRESSED, event.UPDATE_2_COMPRESSED})
_DELETES: Final = frozenset({event.DELETE_1, event.DELETE_2, event.DELETE_1_COMPRESSED, event.DELETE_2_COMPRESSED})
_SECOND: Final = frozenset({
    event.WRITE_2, event.UPDATE_2, event.DELETE_2,
    event.WRITE_2_COMPRESSED, event.UPDATE_2_COMPRESSED, event.DELETE_2_COMPRESSED,
})  # fmt: skip
_COMPRESSED: Final = frozenset(range(event.WRITE_1_COMPRESSED, event.DELETE_2_COMPRESSED + 1))
#: Events that say nothing of rows.
_PASSED: Final = frozenset({
    event.STOP, event.FORMAT, event.INTVAR, event.RAND, event.USER_VAR, event.IGNORABLE, event.ROWS_QUERY, event.ANNOTATE,
    event.BINLOG_CHECKPOINT, event.GTID_LIST, event.PREVIOUS_GTIDS, event.TRANSACTION_CONTEXT, event.VIEW_CHANGE,
    event.START_ENCRYPTION,
})  # fmt: skip
_FULL = (
    "Run as an administrator: set global binlog_row_image = 'FULL'; and reconnect the writers. Then start a new epoch."
)


class Mark(NamedTuple):
    """What a GTID set gains when everything below a place is read."""

    place: int
    group: Group


class Decoder:
    """One source's events, decoded into a batcher."""

    def __init__(
        self, *, epoch: int, base: str, after: int, batcher: Batcher, tables: Tables, mariadb: bool, largest: int
    ) -> None:
        #: The end of the last transaction that was fed whole, or of log without transactions after it.
        self.passed = after
        #: Transactions that were fed whole, oldest first, until somebody takes them.
        self.marks: deque[Mark] = deque()
        self._epoch, self._base, self._batcher, self._tables, self._mariadb = epoch, base, batcher, tables, mariadb
        self._number = after >> 32
        self._largest = largest
        batcher.bound(largest)
        self._group: Group | None = None
        self._transaction: Transaction | None = None
        self._explicit = False
        self._ordinal = 0
        self._now_ms = 0
        self._mapped: dict[int, Table | None] = {}
        self._others: dict[int, Callable[[bytes, int], None]] = {
            event.ROTATE: self._rotate, event.HEARTBEAT: self._beat, event.HEARTBEAT_2: self._nothing,
            event.MARIADB_GTID: self._begin, event.GTID: self._begin, event.ANONYMOUS_GTID: self._anonymous,
            event.QUERY: self._query, event.QUERY_COMPRESSED: self._query, event.XID: self._end,
            event.XA_PREPARE: self._prepare, event.TRANSACTION_PAYLOAD: self._payload, event.INCIDENT: self._incident,
            event.PARTIAL_UPDATE: self._partial, event.BEGIN_LOAD: self._load, event.EXECUTE_LOAD: self._load,
            event.GTID_TAGGED: self._tagged,
        }  # fmt: skip

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and its end was not fed yet."""
        return self._transaction is not None

    def feed(self, found: bytes, end: int, now_ms: int) -> None:
        """Decode one event, which ends at `end` without its checksum; raise CorruptInput or NeedsOperator."""
        self._now_ms = now_ms
        kind = found[4]
        try:
            if kind == event.TABLE_MAP:
                body = found[event.HEADER_SIZE : end]
                self._mapped[int.from_bytes(body[:6], "little")] = self._tables.of(body)
            elif kind in _INSERTS or kind in _UPDATES or kind in _DELETES:
                self._rows(kind, found, end)
            elif kind in self._others:
                self._others[kind](found, end)
            elif kind not in _PASSED and not found[17] & event.MAY_BE_IGNORED:
                raise self._corrupt(found, "is of an unknown type, and the log does not say that it may be passed over")
        except MissingColumns as error:
            raise NeedsOperator(
                f"the log lacks columns {self._where(found)}: binlog_row_image was not FULL", hint=_FULL
            ) from error
        except (struct.error, IndexError, KeyError, ValueError, OverflowError, RecursionError) as error:
            raise self._corrupt(found, "cannot be decoded") from error

    def _rows(self, kind: int, found: bytes, end: int) -> None:
        transaction = self._transaction
        if transaction is None:
            raise ValueError("rows outside a transaction")
        table = self._mapped[int.from_bytes(found[19:25], "little")]
        if table is None:
            return
        at = event.HEADER_SIZE + 8
        if kind in _SECOND:
            at += int.from_bytes(found[at : at + 2], "little")
        at = table.images_at(found, at, is_update=kind in _UPDATES)
        if kind in _COMPRESSED:
            found = event.unpacked(found[at:end])
            at, end = 0, len(found)
        first = self._ordinal
        if kind in _INSERTS:
            keys, values = table.inserts(found, at, end, transaction, first, self._now_ms)
        elif kind in _UPDATES:
            keys, values = table.updates(found, at, end, transaction, first, self._now_ms)
        else:
            keys, values = table.deletes(found, at, end, transaction, first, self._now_ms)
        self._add(table, keys, values)

    def _add(self, table: Table, keys: list[bytes | None], values: list[bytes | None]) -> None:
        """Add changes, the schema record ahead of the first one when it was not told yet."""
        batcher, ordinal = self._batcher, self._ordinal
        schema = None
        if not table.told and values:
            assert self._transaction is not None
            schema = table.schema_record(self._transaction, ordinal, self._now_ms)
        size = sum(map(len, values)) + len(schema or b"")  # type: ignore[arg-type]
        if size <= batcher.room and schema is None:
            batcher.keys += keys
            batcher.values += values
            batcher.room -= size
            self._ordinal = ordinal + len(values)
            return
        for key, value in zip(keys, values, strict=True):
            assert value is not None
            size = len(value) + len(schema or b"")
            if len(value) > self._largest:
                raise self._too_large(table, len(value), ordinal)
            if size > batcher.room and batcher.values:
                batcher.cut(ordinal)
            if schema is not None:
                batcher.glue(schema, ordinal)
                table.told, schema = True, None
            batcher.keys.append(key)
            batcher.values.append(value)
            batcher.room -= len(value)
            ordinal += 1
        self._ordinal = ordinal

    def _too_large(self, table: Table, size: int, ordinal: int) -> NeedsOperator:
        assert self._transaction is not None
        position = Position(self._epoch, self._transaction.commit, ordinal)
        return NeedsOperator(
            f"a change of {table.schema.schema}.{table.schema.table} at position {position} makes a record of {size} bytes, "
            f"the limit is {self._largest}",
            hint="Raise [records] largest_megabytes and the topic's max.message.bytes, or leave the table out by [policy] "
            "exclude_tables and start a new epoch.",
        )

    def _rotate(self, found: bytes, end: int) -> None:
        name, _ = event.rotated(found, end)
        base, number = _split(name)
        if base != self._base or number < self._number:
            raise NeedsOperator(
                f"the binlog goes on in {name}, after {file_name(self._base, self._number)}: its files were renamed or reset",
                hint="Positions of before and after cannot be compared: run 'headrace edge init --adopt --new-epoch'.",
            )
        if self._transaction is not None:
            raise ValueError("a file ends within a transaction")
        self._number = number

    def _beat(self, found: bytes, end: int) -> None:
        """Int32 end position in the header; the body is the file's name."""
        if self._transaction is None:
            _, number = _split(found[event.HEADER_SIZE : end].decode())
            if number == self._number:
                self.passed = max(self.passed, place(number, int.from_bytes(found[13:17], "little")))

    def _begin(self, found: bytes, _end: int) -> None:
        timestamp, _kind, server_id, _size, log_pos, _flags = event.HEADER(found)
        if self._transaction is not None:
            raise ValueError("a transaction begins within another")
        group = event.mariadb_group(found, server_id) if self._mariadb else event.mysql_group(found)
        if group.xa == "prepare":
            raise self._two_phase(found)
        commit = place(self._number, log_pos)
        if commit <= self.passed:
            raise ValueError("a transaction begins before the one before it ended")
        self._group, self._explicit, self._ordinal = group, False, 0
        self._transaction = Transaction(
            epoch=self._epoch,
            commit=commit,
            commit_ms=timestamp * 1000,
            server_id=server_id,
            gtid=group.text,
            file=file_name(self._base, self._number),
        )
        self._batcher.begin(commit, timestamp * 1000)

    def _end(self, found: bytes, _end: int = 0) -> None:
        """End the transaction where an event in the file ends."""
        transaction, group = self._transaction, self._group
        if transaction is None or group is None:
            raise ValueError("a transaction ends that did not begin")
        if self._ordinal:
            values = self._batcher.values
            last = values[-1]
            assert last is not None
            values[-1] = last.removesuffix(envelope.END) + envelope.LAST_END
        log_pos = int.from_bytes(found[13:17], "little")
        # A transaction that ends beyond 4 GiB is its file's last; its offset is too large for the header.
        end = place(self._number, log_pos if log_pos > transaction.commit & 0xFFFFFFFF else 0xFFFFFFFF)
        self.passed = end
        self.marks.append(Mark(end, group))
        self._transaction = self._group = None
        self._mapped.clear()
        self._batcher.commit(end)

    def _query(self, found: bytes, end: int) -> None:
        query = event.query(found, end, compressed=found[4] == event.QUERY_COMPRESSED)
        statement = read_statement(query.words.decode("utf-8", "replace"))
        group = self._group
        if group is None:
            if statement.kind in {Kind.HARMLESS, Kind.COMMIT}:
                return
            raise ValueError("a statement outside a transaction")
        if statement.kind is Kind.BEGIN:
            self._explicit = True
            return
        if statement.kind is Kind.COMMIT:
            self._end(found)
            return
        if statement.kind is Kind.ROLLBACK or statement.kind is Kind.REFUSED:
            self._refuse(found, statement)
            return
        self._apply(statement, query.database)
        if group.standalone or group.xa == "complete" or not (self._mariadb or self._explicit):
            self._end(found)

    def _refuse(self, found: bytes, statement: Statement) -> None:
        if statement.kind is Kind.ROLLBACK:
            if not self._ordinal and " " not in statement.opening:
                self._end(found)
                return
            raise NeedsOperator(
                f"a transaction was rolled back in part {self._where(found)}, and its rows are in the log all the same",
                hint="It mixes tables that roll back with tables that do not (MyISAM, Aria, MEMORY): start a new epoch and "
                "copy the tables again; then write to such tables in transactions of their own.",
            )
        raise NeedsOperator(
            f"rows were changed by a statement ({statement.opening or 'unknown'}) {self._where(found)}: "
            "binlog_format is not ROW for every session",
            hint="Run as an administrator: set global binlog_format = 'ROW'; and reconnect the writers. The rows that were "
            "changed are not in the log: start a new epoch and copy the tables again.",
        )

    def _apply(self, statement: Statement, database: str) -> None:
        if statement.kind is Kind.MOVES:
            _log.warning(
                "%s in database %s: rows moved in a way that the log does not tell; copy the tables that it names again",
                statement.opening, database,
            )  # fmt: skip
        for named, table_name in statement.tables:
            table = self._tables.emptied(named or database, table_name)
            if table is not None:
                assert self._transaction is not None
                self._add(table, [None], [table.truncate(self._transaction, self._ordinal, self._now_ms)])

    def _payload(self, found: bytes, end: int) -> None:
        """Feed the events that a compressed transaction of MySQL's holds; they have no checksums."""
        for inner in payload.events(found[event.HEADER_SIZE : end]):
            if inner[4] == event.TRANSACTION_PAYLOAD:
                raise ValueError("a compressed transaction within another")
            if inner[4] in {event.XID, event.QUERY}:
                # The transaction ends where the payload does.
                inner = inner[:13] + found[13:17] + inner[17:]  # noqa: PLW2901
            self.feed(inner, len(inner), self._now_ms)

    def _prepare(self, found: bytes, _end: int) -> None:
        """Int8 whether it is one phase, then the XA id."""
        if not found[event.HEADER_SIZE]:
            raise self._two_phase(found)
        self._end(found)

    def _two_phase(self, found: bytes) -> NeedsOperator:
        return NeedsOperator(
            f"a transaction was prepared by XA {self._where(found)}: its rows are in the log before it is decided whether they "
            "are committed, which this release does not follow",
            hint="Use XA with one phase, or none, on captured tables; then start a new epoch and copy the tables again.",
        )

    def _incident(self, found: bytes, _end: int) -> None:
        raise NeedsOperator(
            f"the server noted that changes are missing in its log {self._where(found)} (LOST_EVENTS)",
            hint="Look at its error log. Start a new epoch and copy the tables again.",
        )

    def _anonymous(self, found: bytes, _end: int) -> None:
        raise NeedsOperator(
            f"a transaction has no GTID {self._where(found)}: gtid_mode is not ON",
            hint="Turn it on in the steps of MySQL's manual: gtid_mode = ON, enforce_gtid_consistency = ON.",
        )

    def _tagged(self, found: bytes, _end: int) -> None:
        raise NeedsOperator(
            f"a transaction has a tagged GTID {self._where(found)}, which this release does not read",
            hint="Leave gtid_next at AUTOMATIC, without a tag.",
        )

    def _partial(self, found: bytes, _end: int) -> None:
        raise NeedsOperator(
            f"an update tells only what changed in its JSON {self._where(found)}: binlog_row_value_options is PARTIAL_JSON",
            hint="Run as an administrator: set global binlog_row_value_options = ''; and reconnect the writers.",
        )

    def _load(self, found: bytes, _end: int) -> None:
        self._refuse(found, Statement(Kind.REFUSED, opening="LOAD DATA"))

    def _nothing(self, _found: bytes, _end: int) -> None:
        """Pass the event over."""

    def _where(self, found: bytes) -> str:
        offset = int.from_bytes(found[13:17], "little")
        file = file_name(self._base, self._number)
        ends = f", in an event that ends at {file}:{offset}" if offset else f", in {file}"
        if self._transaction is None:
            return f"after {file_name(self._base, self.passed >> 32)}:{self.passed & 0xFFFFFFFF}{ends}"
        assert self._group is not None
        return f"at position {Position(self._epoch, self._transaction.commit, self._ordinal)}, GTID {self._group.text}{ends}"

    def _corrupt(self, found: bytes, wrong: str) -> CorruptInput:
        return CorruptInput(
            f"an event of type {found[4]}, {len(found)} bytes long, {wrong} {self._where(found)}",
            hint="Nothing was skipped or confirmed: the log still holds it. Start the edge again; if it stops there again, look "
            "whether the server is of a kind that this release reads (docs/mariadb.md), and report it.",
        )


def _split(name: str) -> tuple[str, int]:
    try:
        return split_name(name)
    except CorruptInput as error:
        raise ValueError(error.message) from error


def taken(marks: deque[Mark], until: int) -> Iterator[Group]:
    """Take the transactions that end at or before a place."""
    while marks and marks[0].place <= until:
        yield marks.popleft().group
