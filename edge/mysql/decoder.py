"""The binlog of MariaDB and MySQL, from events to records (MariaDB manual, "Replication Protocol"; MySQL internals manual).

Sans-I/O: edge/mysql/replication.py feeds one event at a time, whole and checked. A transaction's commit number is the place where
its GTID event ends, which is known when it begins; the ordinal counts its changes from 0. So positions depend on the log alone.
Whatever is not an event, or not one that can be passed over, raises CorruptInput or NeedsOperator with the place in the log. An
event that cannot be decoded adds nothing to the batch; after an error the decoder is of no more use. XA transactions are
followed by edge/mysql/deferred_transactions.py.
"""

import logging
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from edge.mysql import errors, events
from edge.mysql.checkpoint import COUNTED, Mark, file_name, place, split_name
from edge.mysql.ddl import Kind, Name, Statement
from edge.mysql.deferred_transactions import ROUND_BYTES, PassedEvents, PreparedReader, XaTransactions
from edge.mysql.envelope import DebeziumTransaction, Transaction, message
from edge.mysql.events import Group, tagged_group
from edge.mysql.rows import MissingColumns, SingleRows, Table
from edge.mysql.table_cache import TableCache
from edge.mysql.table_map import parse_names
from edge.progress.notes import PREFIX, Passed
from edge.records.batcher import Batcher
from edge.records.column_policy import UNDECODABLE, NoForm
from edge.records.envelope import History
from edge.records.transaction_writer import TransactionWriter
from headrace.configuration.edge import Records
from headrace.errors import CorruptInput, NeedsOperator
from headrace.position import Position

_log = logging.getLogger(__name__)


#: Words with which statements begin that may define a table, or put another one in its place.
_DEFINING = ("ALTER", "CREATE", "DROP", "RENAME")
#: Images of a rows event from a place to another, their table, and the type of event that they are of.
Located = tuple[Table, int, bytes, int, int]


class Decoder:
    """One source's events, decoded into a batcher."""

    def __init__(
        self,
        *,
        epoch: int,
        base: str,
        after: int,
        batcher: Batcher,
        tables: TableCache,
        mariadb: bool,
        largest: int,
        records: Records,
        prepared_reader: PreparedReader,
        history: History | None = None,
        passed: Mapping[str, Passed] | None = None,
    ) -> None:
        """`passed`: the transactions that are passed over, by GTID."""
        #: The end of the last transaction that was fed whole, or of log without transactions after it.
        self.passed = after
        #: Transactions that were fed whole, oldest first, until somebody takes them.
        self.marks: deque[Mark] = deque()
        #: When the files that were fed were begun, by their numbers, in seconds since 1970.
        self.created: dict[int, int] = {}
        self._epoch, self._base, self._tables, self._mariadb = epoch, base, tables, mariadb
        self._largest = largest
        self._writer: TransactionWriter[Transaction] = TransactionWriter(
            batcher, epoch=epoch, largest=largest, records=records, no_table=tables.no_table, history=history
        )
        self._truncates, self._history = records.truncates, history
        self._transaction = DebeziumTransaction if records.envelope == "debezium" else Transaction
        self._one_by_one = SingleRows(self._writer, records, largest)
        # None where the rows of an event are added together.
        self._single = self._one_by_one if SingleRows.are_wanted(records) else None
        self._number = after >> 32
        self._group: Group | None = None
        self._explicit = False
        # Bytes of the present transaction, without its GTID event.
        self._size = 0
        self._now_ms = 0
        self._mapped: dict[int, Table | None] = {}
        #: What XA transactions have prepared and decided.
        self.xa = xa = XaTransactions(prepared_reader, feed=self.feed, end=self._end_xa, where=self._where)
        self._handlers: dict[int, Callable[[bytes, int], None]] = {
            **dict.fromkeys(events.PASSED, self._pass), events.FORMAT: self._note_version, events.TABLE_MAP: self._map,
            **dict.fromkeys(events.INSERTS | events.UPDATES | events.DELETES, self._rows),
            events.ROTATE: self._rotate, events.HEARTBEAT: self._beat, events.MARIADB_GTID: self._begin, events.GTID: self._begin,
            events.GTID_TAGGED: self._begin,
            events.QUERY: self._query, events.QUERY_COMPRESSED: self._query, events.XID: self._end,
            events.TRANSACTION_PAYLOAD: self._payload, events.XA_PREPARE: xa.prepare,
            events.PARTIAL_UPDATE: self._partial_rows, events.EXECUTE_LOAD: self._load,
        }  # fmt: skip
        # Those of any transaction, but for one that is passed over.
        self._ordinary = self._handlers
        self._over = passed or {}
        self._statements: dict[Kind, Callable[[bytes, Statement], None]] = {
            Kind.BEGIN: self._begin_rows, Kind.COMMIT: self._commit, Kind.ROLLBACK: self._roll_back,
            Kind.XA_START: self._xa_start, Kind.XA_END: self._xa_end, Kind.XA_COMMIT: xa.commit, Kind.XA_ROLLBACK: xa.roll_back,
        }  # fmt: skip

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and its end was not fed yet."""
        return self._writer.transaction is not None

    @property
    def present(self) -> str:
        """GTID of the transaction that is being decoded; empty for none."""
        return self._group.text if self._group is not None and self.in_transaction else ""

    def feed(self, event: bytes, end: int, now_ms: int) -> None:
        """Decode one event, which ends at `end` without its checksum; raise CorruptInput or NeedsOperator."""
        intercept = self.xa.intercept
        if intercept is not None and intercept(event, end):
            return
        self._now_ms = self._writer.now_ms = now_ms
        self._size += len(event)
        try:
            self._handlers.get(event[4], self._unknown)(event, end)
        except MissingColumns:
            self._mark_event(
                event, f"the log lacks columns of changed rows: {errors.NOT_WHOLE}", errors.missing_columns
            )
        except (struct.error, IndexError, KeyError, ValueError, OverflowError, RecursionError) as error:
            raise self._corrupt(event, "cannot be decoded") from error

    def _pass(self, event: bytes, end: int) -> None:
        """Ignore an event without rows."""

    def _note_version(self, event: bytes, _end: int) -> None:
        self._tables.note_version(events.server_version(event))
        self.created[self._number] = int.from_bytes(event[:4], "little")

    def _unknown(self, event: bytes, _end: int) -> None:
        if event[4] in errors.EVENTS:
            raise errors.EVENTS[event[4]](self._where(event))
        if not event[17] & events.MAY_BE_IGNORED:
            raise self._corrupt(event, "is of an unknown type, and the log does not mark it as one to be ignored")

    def _map(self, event: bytes, end: int) -> None:
        body = event[events.HEADER_SIZE : end]
        number = int.from_bytes(body[:6], "little")
        try:
            self._mapped[number] = self._tables.decode_table_map(body)
        except UNDECODABLE as error:
            if not self._writer.passes_undecodable:
                raise
            # What follows of it cannot be read, and ends where its events do.
            database, name, _ = parse_names(body)
            why = error.message if isinstance(error, NoForm) else "the log's description of it cannot be read"
            self._mapped[number] = None
            self._note_moved([(database, name)], f"its changes were left out: {why}", recurs=True)

    def _rows(self, event: bytes, end: int) -> None:
        writer, now_ms = self._writer, self._now_ms
        transaction = writer.transaction
        if transaction is None:
            raise ValueError("rows outside a transaction")
        single = self._single
        if single is not None:
            single.begin_event(transaction, event)
        for table, kind, images, at, until in self._locate(event, end):
            if single is not None or until - at > self._largest:
                self._one_by_one.add(table, kind, images, at, until, now_ms)
                continue
            first = writer.ordinal
            try:
                if kind in events.INSERTS:
                    keys, values = table.inserts(images, at, until, transaction, first, now_ms)
                elif kind in events.UPDATES:
                    keys, values = table.updates(images, at, until, transaction, first, now_ms)
                else:
                    keys, values = table.deletes(images, at, until, transaction, first, now_ms)
            except UNDECODABLE:
                if not writer.passes_undecodable:
                    raise
                self._one_by_one.add(table, kind, images, at, until, now_ms)
                continue
            writer.add_rows(table, keys, values, are_deletes=kind in events.DELETES)

    def _partial_rows(self, event: bytes, _end: int) -> None:
        """Pass over rows that lack what did not change: a captured table needs a copy."""
        if self._mapped[int.from_bytes(event[19:25], "little")] is not None:
            reason = "the log has only what changed in JSON values: binlog_row_value_options is PARTIAL_JSON"
            self._mark_event(event, reason, errors.partial_json)

    def _mark_event(self, event: bytes, reason: str, refused: Callable[[str], NeedsOperator]) -> None:
        """Pass over a rows event of a captured table, which needs a copy; raise `refused` where no history keeps that."""
        table = self._mapped[int.from_bytes(event[19:25], "little")]
        if self._history is None or table is None or self._writer.transaction is None:
            raise refused(self._where(event))
        self._note_moved([(table.schema.schema, table.schema.table)], reason, recurs=True)

    def _locate(self, event: bytes, end: int) -> Iterable[Located]:
        """Return where the images of a rows event are that are sent; none of a table that is not captured."""
        kind = event[4]
        table = self._mapped[int.from_bytes(event[19:25], "little")]
        if table is None:
            return ()
        at = events.HEADER_SIZE + 8
        if kind in events.SECOND:
            at += int.from_bytes(event[at : at + 2], "little")
        at, lacks_generated = table.images_at(event, at, is_update=kind in events.UPDATES)
        if kind in events.COMPRESSED:
            event = events.unpacked(event[at:end])
            at, end = 0, len(event)
        if lacks_generated and table.generated is not None:
            event = table.generated.whole(event, at, end)
            at, end = 0, len(event)
        if table.versions is None:
            return ((table, kind, event, at, end),)
        return [(table, *run) for run in table.versions.runs(kind, event, at, end)]

    def _rotate(self, event: bytes, end: int) -> None:
        name, _ = events.rotated(event, end)
        base, number = _split(name)
        if base != self._base or number < self._number:
            raise errors.another_log(name, file_name(self._base, self._number))
        if self.in_transaction:
            raise ValueError("a file ends within a transaction")
        self._number = number

    def _beat(self, event: bytes, end: int) -> None:
        """Int32 end position in the header; the body is the file's name."""
        if not self.in_transaction:
            _, number = _split(event[events.HEADER_SIZE : end].decode())
            if number == self._number:
                self.passed = max(self.passed, place(number, min(int.from_bytes(event[13:17], "little"), COUNTED)))

    def _begin(self, event: bytes, end: int) -> None:
        timestamp, kind, server_id, size, log_pos, _flags = events.HEADER(event)
        if self.in_transaction:
            raise ValueError("a transaction begins within another")
        if kind == events.GTID_TAGGED:
            group, committed = tagged_group(event, end)
        else:
            group = events.mariadb_group(event, server_id) if self._mariadb else events.mysql_group(event)
            committed = 0 if self._mariadb else events.mysql_committed(event, end)
        commit = self._place_of(log_pos)
        if commit <= self.passed:
            raise ValueError("a transaction begins before the one before it ended")
        self._group, self._explicit, self._size = group, False, 0
        transaction = self._transaction(
            epoch=self._epoch,
            commit=commit,
            commit_us=committed or timestamp * 1_000_000,
            server_id=server_id,
            gtid=group.text,
            file=file_name(self._base, self._number),
        )
        if isinstance(transaction, DebeziumTransaction):
            transaction.move_to(log_pos - size)
        self._writer.begin(transaction)
        if self._over and (passed := self._over.get(group.text)) is not None:
            self._pass_over(passed, group)
        else:
            self.xa.begun(commit - len(event), group)

    def _pass_over(self, passed: Passed, group: Group) -> None:
        """Follow the present transaction to its end, and put a message in its place."""
        followed = PassedEvents(self._tables, is_single=group.standalone or group.xa == "complete" or not self._mariadb)

        def follow(event: bytes, end: int) -> None:
            if not followed.ends(event, end):
                return
            self._handlers = self._ordinary
            writer, transaction, touched = self._writer, self._writer.transaction, followed.touched
            assert transaction is not None
            if self._history is not None:
                self._note_moved(touched, passed.reason)
            content = passed.message(sorted(f"{database}.{table}" for database, table in touched))
            numbers = writer.next_numbers(b"")
            shared = self._tables.no_table.middle(transaction)
            writer.add(None, *message(PREFIX, content, shared, transaction, writer.ordinal, self._now_ms, numbers))
            _log.warning("%s; %d tables need a copy", passed.reason, len(touched))
            self._end(event)

        self._handlers = dict.fromkeys(range(256), follow)

    def _end(self, event: bytes, _end: int = 0) -> None:
        """End the transaction where an event in the file ends."""
        self.xa.check_end()
        transaction, group = self._writer.transaction, self._group
        if transaction is None or group is None:
            raise ValueError("a transaction ends that did not begin")
        log_pos, start = int.from_bytes(event[13:17], "little"), transaction.commit & 0xFFFFFFFF
        if start > COUNTED:
            end = transaction.commit + 1
        else:
            is_whole = start < log_pos < COUNTED and start + self._size < COUNTED
            end = place(self._number, log_pos if is_whole else COUNTED)
        self.passed = end
        self.marks.append(Mark(end, group))
        self._group = None
        self._mapped.clear()
        self._writer.end(end)

    def _end_xa(self, event: bytes) -> None:
        """End a transaction whose rows may have come from elsewhere."""
        self._size = 0
        self._end(event)

    def _place_of(self, offset: int) -> int:
        """Return the place of a transaction whose GTID event ends at an offset, of which the log has the lowest 32 bits."""
        passed = self.passed & 0xFFFFFFFF if self.passed >> 32 == self._number else 0
        if max(passed, offset) < COUNTED:
            return place(self._number, offset)
        counted = max(passed, COUNTED) + 1
        if counted >= 0xFFFFFFFF:
            raise ValueError("a file has more transactions behind 4 GiB than there are places for")
        return place(self._number, counted)

    def _query(self, event: bytes, end: int) -> None:
        query = events.query(event, end, compressed=event[4] == events.QUERY_COMPRESSED)
        _, statement = self._tables.statement(query)
        if statement.kind is Kind.REFUSED and self._tables.is_changed_by(statement):
            self._mark_changed(event, statement)
        if statement.opening.startswith(_DEFINING):
            self._tables.forget_generated()
        group = self._group
        if group is None:
            if statement.kind in {Kind.HARMLESS, Kind.COMMIT}:
                return
            raise ValueError("a statement outside a transaction")
        transaction = self._writer.transaction
        if isinstance(transaction, DebeziumTransaction):
            transaction.set_thread(query.thread)
        if statement.kind in self._statements:
            self._statements[statement.kind](event, statement)
            return
        if statement.kind is not Kind.REFUSED:
            self._apply(statement)
        if group.standalone or not (self._mariadb or self._explicit):
            self._end(event)

    def _begin_rows(self, _found: bytes, _statement: Statement) -> None:
        self._explicit = True

    def _xa_start(self, _found: bytes, _statement: Statement) -> None:
        # Savepoints may follow, which end nothing.
        self._explicit = True
        self.xa.start()

    def _xa_end(self, _found: bytes, _statement: Statement) -> None:
        """Wait for what follows: the prepare."""

    def _commit(self, event: bytes, _statement: Statement) -> None:
        self._end(event)

    def _load(self, event: bytes, end: int) -> None:
        """Pass over LOAD DATA that was logged as a statement, unless it is about a captured table."""
        _, statement = self._tables.statement(events.loading_query(event, end))
        if self._tables.is_changed_by(statement):
            self._mark_changed(event, statement)

    def _mark_changed(self, event: bytes, statement: Statement) -> None:
        """Note that a statement may have changed rows of its captured tables, or of all where it cannot be read which.

        Raises NeedsOperator where it may have ended a transaction, or where no history keeps that.
        """
        if self._history is None or self._writer.transaction is None or statement.opening.startswith("XA"):
            raise errors.by_statement(statement, self._where(event))
        if statement.tables:
            tables = {name for name in statement.tables if self._tables.captures(*name)}
        else:
            tables = self._tables.all_captured()
        opening = statement.opening or "one that cannot be read"
        self._note_moved(
            tables,
            f"a statement in the log ({opening}) may have changed rows: binlog_format is not ROW for every session",
            recurs=True,
        )

    def _note_moved(self, tables: Iterable[Name], reason: str, *, recurs: bool = False) -> None:
        """Note that captured tables need a copy since the present transaction; `recurs`: any other may have the same."""
        transaction = self._writer.transaction
        assert transaction is not None
        assert self._history is not None
        names = sorted(tables)
        self._history.move(
            [f"{database}.{table}" for database, table in names], reason, transaction.commit, recurs=recurs
        )
        for database, table in names:
            self._tables.renew_schema(database, table)

    def _roll_back(self, event: bytes, statement: Statement) -> None:
        """End a transaction; where it has rows, and for a part of them (ROLLBACK TO a savepoint), their tables need a copy."""
        if self._writer.ordinal:
            if self._history is None:
                raise errors.rolled_back(self._where(event))
            tables = {(table.schema.schema, table.schema.table) for table in self._mapped.values() if table is not None}
            reason = "a transaction was rolled back in part, and its rows are in the log all the same"
            self._note_moved(tables, reason, recurs=True)
        if " " not in statement.opening:
            self._end(event)

    def _apply(self, statement: Statement) -> None:
        """Empty the captured tables that a statement empties, and note those whose rows it moved."""
        transaction, history, tables = self._writer.transaction, self._history, self._tables
        assert transaction is not None
        if statement.kind is Kind.MOVES and not (statement.tables or statement.moved or statement.dropped):
            _log.warning(
                "%s: rows moved or vanished, and the names of the tables cannot be read; copy those that it names again",
                statement.opening,
            )
        emptied = list(statement.tables)
        if statement.dropped and history is not None:
            prefix = f"{statement.dropped}."
            names = history.names(prefix, transaction.commit)
            emptied += [(statement.dropped, name.removeprefix(prefix)) for name in names]
        for database, name in emptied:
            # What sent no row has none at the far side either.
            is_known = history is None or history.knows(f"{database}.{name}", transaction.commit)
            if is_known and tables.captures(database, name):
                self._empty(tables.emptied(database, name), transaction)
        for (database, name), reason in statement.moved:
            if history is not None and tables.captures(database, name):
                self._note_moved([(database, name)], reason)

    def _empty(self, table: Table, transaction: Transaction) -> None:
        if self._history is not None:
            self._history.empty(table.description.name)
        if self._truncates:
            numbers = self._writer.next_numbers(table.name)
            emptied = table.truncate(transaction, self._writer.ordinal, self._now_ms, *numbers)
            self._writer.add(table, None, emptied)

    def _payload(self, event: bytes, end: int) -> None:
        """Feed the events that a compressed transaction of MySQL's holds; of a large one round by round."""
        packed = events.Payload(event[events.HEADER_SIZE : end])
        inner = self._unpack(packed, event)
        first = next(inner, None)
        if first is None:
            return
        is_xa = first[0][4] == events.QUERY and events.query(*first, compressed=False).words.startswith(b"XA ")
        if packed.size > ROUND_BYTES and not is_xa:
            self.xa.decode_in_rounds(chain([first], inner))
            return
        for each, size in chain([first], inner):
            self.feed(each, size, self._now_ms)

    def _unpack(self, packed: events.Payload, event: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield the events that an event has compressed; raise CorruptInput where they are damaged."""
        size = self._size
        try:
            for each in packed.events():
                if each[4] == events.TRANSACTION_PAYLOAD:
                    raise ValueError("a compressed transaction within another")
                if each[4] in {events.XID, events.QUERY, events.XA_PREPARE}:
                    # The transaction ends where the payload does.
                    each = each[:13] + event[13:17] + each[17:]  # noqa: PLW2901
                yield each, len(each)
                # What the file has is the payload.
                self._size = size
        except ValueError as error:
            raise self._corrupt(event, "cannot be decoded") from error

    def _where(self, event: bytes) -> str:
        # What was prepared may be in another file, and has only the offset of its end.
        event = self.xa.decision or event
        offset = int.from_bytes(event[13:17], "little")
        file = file_name(self._base, self._number)
        ends = f", in an event that ends at {file}:{offset}" if offset else f", in {file}"
        transaction = self._writer.transaction
        if transaction is None:
            return f"after {file_name(self._base, self.passed >> 32)}:{self.passed & 0xFFFFFFFF}{ends}"
        assert self._group is not None
        return f"at position {Position(self._epoch, transaction.commit, self._writer.ordinal)}, GTID {self._group.text}{ends}"

    def _corrupt(self, event: bytes, wrong: str) -> CorruptInput:
        table = self._mapped.get(int.from_bytes(event[19:25], "little")) if event[4] in events.ROWS else None
        of = f" of {table.schema.schema}.{table.schema.table}" if table is not None else ""
        return CorruptInput(
            f"an event of type {event[4]}{of}, {len(event)} bytes long, {wrong} {self._where(event)}",
            hint="Nothing was skipped or confirmed: the log still holds it. Start the edge again; if it stops there again, look "
            "whether the server is of a kind that this release reads (docs/mariadb.md), and report it.",
        )


def _split(name: str) -> tuple[str, int]:
    try:
        return split_name(name)
    except CorruptInput as error:
        raise ValueError(error.message) from error
