"""The changes of one transaction, and how they get into a batch; written once for all engines.

A schema record goes ahead of a table's first change; a batch is cut before a change that does not fit; the last change of a
transaction has `last`; a change too large for a record, or with a value that cannot be decoded, is replaced by a dead letter, or
ends the edge; tombstones, BEGIN and END records are added as configured in `[records]`. Decoders call it with records that are
complete, so an event that cannot be decoded adds nothing. A decoder's fast path appends to the batcher itself and moves
`ordinal`.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from edge.records import envelope
from edge.records.alterations import Announcement
from edge.records.batcher import Batcher
from edge.records.envelope import Envelope, History, Table, Transaction
from headrace.configuration.edge import Records
from headrace.errors import NeedsOperator
from headrace.position import Position
from headrace.schema import TableSchema

_log = logging.getLogger(__name__)


T = TypeVar("T", bound=Transaction)

#: What a record's value would be that is replaced by a dead letter; None for a value that is whole.
Instead = envelope.TooLarge | envelope.Undecodable | None

_NOTHING_KNOWN = Announcement(None, 0)
_KEY_UNDECODABLE = "changes were left out: column {}, of the key, has values that cannot be decoded"


class TransactionWriter(Generic[T]):
    """Writes one transaction after another into a batcher; `largest` is the limit of a record's value, in bytes."""

    def __init__(
        self,
        batcher: Batcher,
        *,
        epoch: int,
        largest: int,
        records: Records,
        no_table: Envelope[T],
        history: History | None = None,
    ) -> None:
        #: The transaction that has begun and did not end; None between transactions.
        self.transaction: T | None = None
        #: The ordinal of the next change, and how many ordinals before it have no record.
        self.ordinal = self.skipped = 0
        #: When what is written was read, in milliseconds since 1970; set by the decoder.
        self.now_ms = 0
        self._copy_begins = False
        self._history = history
        self._batcher, self._epoch, self._largest, self._no_table = batcher, epoch, largest, no_table
        # Whether each record has its number in the transaction, and among those of its table.
        self._with_numbers = records.envelope == "debezium"
        self._with_ends, self._with_tombstones = records.transactions, records.tombstones is True
        self._stops_at_large = records.on_too_large == "stop"
        # Changes of the transaction by table, where its end reports them.
        self._counts: dict[bytes, int] = {}
        # Records of the transaction, and by table, where each has its number.
        self._numbers: dict[bytes, int] = {}
        self._total = 0
        batcher.limit_values(largest)

    def begin(self, transaction: T, first: int = 0) -> None:
        """Start a transaction, whose first change has this ordinal."""
        self.transaction, self.ordinal, self.skipped = transaction, first, first
        self._counts, self._numbers, self._total = {}, {}, 0
        self._batcher.begin(transaction.commit, transaction.commit_ms)
        if first:
            self._batcher.skip(first)

    def skip(self) -> None:
        """Leave a change or message out; it takes its ordinal all the same."""
        self.ordinal += 1
        self.skipped += 1
        self._batcher.skip(self.ordinal)

    def add(
        self,
        table: Table[T] | None,
        key: bytes | None,
        value: bytes,
        *,
        is_delete: bool = False,
        instead_of: Instead = None,
    ) -> None:
        """Add a change of a table, or a message, with the records that go ahead of it; raise as `fitted` does."""
        if table is not None:
            value = self.fitted(table, value, self.ordinal, instead_of)
        self._add(key, value, self.ordinal, self._ahead(table, 1), with_tombstone=is_delete and self._with_tombstones)
        if self._with_numbers:
            self._count(table, 1)
        self.ordinal += 1

    def add_key_change(
        self,
        table: Table[T],
        deleted: tuple[bytes, bytes],
        created: tuple[bytes, bytes],
        instead_of: Instead = None,
    ) -> None:
        """Add a change of a key as two records, key and value of each: a delete, with its tombstone, and a create.

        `instead_of`: what the create would be, where it lacks its large columns. They have one position, are in one batch, and
        name each other's keys in Debezium's headers. Raises as `fitted` does.
        """
        batcher, ordinal = self._batcher, self.ordinal
        former, was = deleted
        key, value = created
        was, value = self.fitted(table, was, ordinal), self.fitted(table, value, ordinal, instead_of)
        ahead = self._ahead(table, 2)
        size = len(was) + len(value) + sum(len(record) for _, record in ahead)
        if batcher.values and size > batcher.free_bytes:
            batcher.cut(ordinal)
        for ahead_key, record in ahead:
            batcher.add_ahead(record, ordinal, ahead_key)
        batcher.add_ahead(was, ordinal, former)
        batcher.add_header(envelope.NEW_KEY, key)
        if self._with_tombstones:
            batcher.add_ahead(None, ordinal, former)
            batcher.add_header(envelope.NEW_KEY, key)
        self._append(key, value)
        batcher.add_header(envelope.OLD_KEY, former)
        if self._with_numbers:
            self._count(table, 2)
        self.ordinal += 1

    def next_numbers(self, table: bytes) -> tuple[int, int]:
        """Return the next record's number in the transaction, and among those of a table, by its name; both from 1."""
        if not self._with_numbers:
            return self.ordinal + 1, self.ordinal + 1
        return self._total + 1, self._numbers.get(table, 0) + 1

    def _count(self, table: Table[T] | None, count: int) -> None:
        name = table.name if table is not None else b""
        self._total += count
        self._numbers[name] = self._numbers.get(name, 0) + count

    @contextmanager
    def copy_begins(self) -> Iterator[None]:
        """Add the truncate with which a copy of a whole table begins: what it finds altered is copied behind it."""
        self._copy_begins = True
        try:
            yield
        finally:
            self._copy_begins = False

    def add_copy_mark(self, schema: TableSchema, shared: Envelope[T], mark: str) -> None:
        """Add a mark of a table's copy (headrace.schema) as a change of no table: a schema record itself, it needs none ahead.

        `shared` is what the table's records share.
        """
        transaction = self.transaction
        assert transaction is not None
        source, names = shared.source(transaction, self.ordinal), shared.database_names
        number = self._total + 1 if self._with_numbers else self.ordinal - self.skipped + 1
        value = envelope.copy_mark(schema, mark, source, names, self.now_ms, transaction.id, number)
        self.add(None, None, value)

    def add_rows(
        self, table: Table[T], keys: list[bytes | None], values: list[bytes | None], *, are_deletes: bool = False
    ) -> None:
        """Add changes of one table; raise as `fitted` does."""
        batcher, ordinal = self._batcher, self.ordinal
        if self._with_numbers:
            self._count(table, len(values))
        if not table.schema_sent and self._repeats_schema(self._announced(table)):
            # Each has its schema record.
            for key, value in zip(keys, values, strict=True):
                assert value is not None
                self.add(table, key, value, is_delete=are_deletes)
            return
        ahead = self._ahead(table, len(values)) if (self._with_ends or not table.schema_sent) and values else []
        with_tombstone = are_deletes and self._with_tombstones
        size = sum(map(len, values))  # type: ignore[arg-type]
        if size <= batcher.free_bytes and not ahead and not with_tombstone:
            batcher.keys += keys
            batcher.values += values
            batcher.free_bytes -= size
            self.ordinal = ordinal + len(values)
            return
        held_keys, held_values, free = batcher.keys, batcher.values, batcher.free_bytes
        for key, value in zip(keys, values, strict=True):
            assert value is not None
            size = len(value)
            # There is never more space than a record may take.
            if size > free or ahead or with_tombstone:
                batcher.free_bytes = free
                self._add(key, self.fitted(table, value, ordinal), ordinal, ahead, with_tombstone=with_tombstone)
                ahead = []
                held_keys, held_values, free = batcher.keys, batcher.values, batcher.free_bytes
            else:
                held_keys.append(key)
                held_values.append(value)
                free -= size
            ordinal += 1
        batcher.free_bytes, self.ordinal = free, ordinal

    def add_outside(self, commit: int, key: bytes, value: bytes, end: int) -> None:
        """Add a message that belongs to no transaction: a commit number of its own, which ends at a place in the log."""
        batcher = self._batcher
        if batcher.values and len(value) > batcher.free_bytes:
            batcher.cut(0)
        batcher.begin(commit, self.now_ms)
        self._append(key, value)
        self.ordinal = 1
        batcher.commit(end)

    def end(self, place: int) -> bool:
        """End the transaction at a place in the log; return whether it has records."""
        transaction, values = self.transaction, self._batcher.values
        has_records = transaction is not None and self.ordinal > self.skipped
        if transaction is not None and has_records:
            # A tombstone follows its delete.
            newest = -1 if values[-1] is not None else -2
            last = values[newest]
            assert last is not None
            values[newest] = envelope.as_last(last)
            if self._with_ends:
                source = self._no_table.source(transaction, self.ordinal)
                count = self._total if self._with_numbers else self.ordinal - self.skipped
                self._append(*envelope.transaction_end(transaction.id, self._counts, count, source, self.now_ms))
                self.ordinal += 1
        self.transaction = None
        self._batcher.commit(place)
        return has_records

    @property
    def can_replace(self) -> bool:
        """Whether a row that cannot be decoded is replaced by a dead letter, and does not end the edge."""
        return self._history is not None and not self._stops_at_large

    @property
    def passes_undecodable(self) -> bool:
        """Whether that is so of a change, which is in a transaction."""
        return self.can_replace and self.transaction is not None

    def leave_out(self, table: Table[T], column: str) -> None:
        """Leave out a change whose key cannot be decoded: its table needs a copy. Raises as `History.move` does."""
        assert self._history is not None
        name, position = self._noted(table, column, self.ordinal, "it is left out")
        self._history.move([name], _KEY_UNDECODABLE.format(column), position.commit, recurs=True)
        table.schema_sent = False
        self.skip()

    def leave_out_copied(self, table: Table[T], column: str) -> None:
        """Leave out a row that is copied and whose key cannot be decoded. Raises as `History.mark` does."""
        assert self._history is not None
        name = f"{table.schema.schema}.{table.schema.table}"
        _log.warning("a row of %s cannot be decoded (column %s): it is not copied", name, column)
        self._batcher.dead_letters += 1
        self._history.mark(name, _KEY_UNDECODABLE.format(column))

    def _noted(self, table: Table[T], column: str, ordinal: int, what: str) -> tuple[str, Position]:
        """Log and count a change that cannot be decoded; return its table's name, and its position."""
        assert self.transaction is not None
        name = f"{table.schema.schema}.{table.schema.table}"
        position = Position(self._epoch, self.transaction.commit, ordinal)
        _log.warning("the change of %s at position %s cannot be decoded (column %s): %s", name, position, column, what)
        self._batcher.dead_letters += 1
        return name, position

    def fitted(self, table: Table[T], value: bytes, ordinal: int, instead_of: Instead = None) -> bytes:
        """Return the value, or the dead letter that replaces one too large for a record; raise NeedsOperator to stop there.

        `instead_of`: what the value would be, where it lacks its large columns, or what cannot be decoded.
        """
        if isinstance(instead_of, envelope.Undecodable):
            name, _ = self._noted(table, instead_of.column, ordinal, "a dead letter replaces it")
            if self._history is not None:
                self._history.mark(
                    name, f"rows are dead letters: values of column {instead_of.column} cannot be decoded"
                )
            return envelope.dead_letter(value, table.schema, instead_of)
        size = len(value) if instead_of is None else instead_of.size
        if size <= self._largest:
            return value
        assert self.transaction is not None
        position = Position(self._epoch, self.transaction.commit, ordinal)
        problem = too_large(f"{table.schema.schema}.{table.schema.table}", position, size, self._largest)
        if self._stops_at_large:
            raise problem
        column = envelope.largest_column(value) if instead_of is None else instead_of.column
        _log.warning("%s: a dead letter replaces it; its largest column is %s", problem.message, column)
        if self._history is not None:
            name = f"{table.schema.schema}.{table.schema.table}"
            self._history.warn(f"dead letters of {name}", _left_out(name, column, position))
        self._batcher.dead_letters += 1
        return envelope.dead_letter(value, table.schema, instead_of)

    def _add(
        self,
        key: bytes | None,
        value: bytes,
        ordinal: int,
        ahead: list[tuple[bytes | None, bytes]],
        *,
        with_tombstone: bool,
    ) -> None:
        """Add a change with the records ahead of it and its tombstone, all in one batch."""
        batcher = self._batcher
        if batcher.values and len(value) + sum(len(record) for _, record in ahead) > batcher.free_bytes:
            batcher.cut(ordinal)
        for ahead_key, record in ahead:
            batcher.add_ahead(record, ordinal, ahead_key)
        self._append(key, value)
        if with_tombstone and key is not None:
            batcher.add_tombstone(key, ordinal)

    def _ahead(self, table: Table[T] | None, count: int) -> list[tuple[bytes | None, bytes]]:
        """Return the records that go ahead of the next change, with their keys; `count` changes of its table are counted."""
        transaction, ordinal = self.transaction, self.ordinal
        assert transaction is not None
        ahead: list[tuple[bytes | None, bytes]] = []
        if self._with_ends:
            if ordinal == self.skipped:
                source = self._no_table.source(transaction, ordinal)
                ahead.append(envelope.transaction_begin(transaction.id, source, self.now_ms))
            if table is not None:
                self._counts[table.name] = self._counts.get(table.name, 0) + count
        if table is not None and not table.schema_sent:
            source = table.envelope.source(transaction, ordinal)
            names = table.envelope.database_names
            announced = self._announced(table)
            record = envelope.schema_record(table.schema, source, names, self.now_ms, announced.rewritten)
            ahead.append((None, record))
            table.schema_sent = not self._repeats_schema(announced)
        return ahead

    def _announced(self, table: Table[T]) -> Announcement:
        if self._history is None or self.transaction is None or table.description is None:
            return _NOTHING_KNOWN
        return self._history.announce(table.description, self.transaction.commit, is_copied=self._copy_begins)

    def _repeats_schema(self, announced: Announcement) -> bool:
        """Whether each change of a table carries its schema record in the present transaction."""
        assert self.transaction is not None
        return self._batcher.repeats_schema or announced.repeats_until >= self.transaction.commit

    def _append(self, key: bytes | None, value: bytes) -> None:
        self._batcher.keys.append(key)
        self._batcher.values.append(value)
        self._batcher.free_bytes -= len(value)


def _left_out(table: str, column: str, position: Position) -> str:
    """Return the warning about a dead letter."""
    return (
        f"a row of {table} was too large for a record at position {position} (column {column}): list such rows with "
        "'headrace bridge dead-letters', raise [records] largest_megabytes, and copy them with 'headrace edge snapshot "
        "--dead-letters'"
    )


def too_large(table: str, position: Position, size: int, largest: int) -> NeedsOperator:
    """Return the error of a change that is too large for a record; sizes in bytes."""
    return NeedsOperator(
        f"the change of {table} at position {position} makes a record of {size} bytes, more than the {largest} bytes of "
        "[records] largest_megabytes",
        hint="Raise it, and the topic's max.message.bytes with it; or leave on_too_large at 'dead-letter', so that a record "
        "with key, size and SHA-256 replaces the change. REPLICA IDENTITY FULL carries large columns twice.",
    )
