"""The changes of one transaction, on their way into a batch.

A schema record goes ahead of a table's first change; a batch is cut before a change that it has no room for; the last change of
a transaction says that it is the last; what `[records]` asks for stands beside them. Called by edge/mysql/decoder.py with records
that are decoded already, so an event that cannot be decoded adds nothing.
"""

import logging

from edge.mysql import decode_errors, envelope, transaction_metadata
from edge.mysql.envelope import Transaction
from edge.mysql.rows import Table
from edge.mysql.transaction_metadata import TransactionMetadata
from edge.records.batcher import Batcher
from headrace.configuration.records import Records
from headrace.position import Position

_log = logging.getLogger(__name__)


class TransactionWriter:
    """What the open transaction has changed so far; `largest` is the most that a record's value may have, in bytes."""

    def __init__(
        self, batcher: Batcher, *, epoch: int, largest: int, records: Records, ends: TransactionMetadata
    ) -> None:
        #: The transaction that has begun and did not end; None between transactions.
        self.transaction: Transaction | None = None
        #: How many changes the transaction has so far: the ordinal of the next one.
        self.ordinal = self._first = 0
        self._batcher, self._epoch, self._largest, self._records, self._ends = batcher, epoch, largest, records, ends
        self._tells_ends = records.transactions
        # TransactionWriter of the transaction by table, where that is told.
        self._counts: dict[str, int] = {}
        self._now_ms = 0
        batcher.limit_values(largest)

    def begin(self, transaction: Transaction, first: int = 0) -> None:
        """Start a transaction, whose first change has this ordinal."""
        self.transaction, self.ordinal, self._first = transaction, first, first
        self._counts = {}
        self._batcher.begin(transaction.commit, transaction.commit_ms)
        if first:
            self._batcher.skip(first)

    def add(
        self,
        table: Table,
        keys: list[bytes | None],
        values: list[bytes | None],
        now_ms: int,
        *,
        deletes: bool = False,
    ) -> None:
        """Add changes of a table; raise NeedsOperator for one that is too large for a record, unless a letter takes its place."""
        batcher, ordinal = self._batcher, self.ordinal
        if batcher.repeats_schema and not table.schema_sent and len(values) > 1:
            for key, value in zip(keys, values, strict=True):
                self.add(table, [key], [value], now_ms, deletes=deletes)
            return
        goes_ahead = self._tells_ends or not table.schema_sent
        ahead = self._ahead(table, len(values), now_ms) if goes_ahead and values else []
        buries = deletes and self._records.tombstones
        size = sum(map(len, values))  # type: ignore[arg-type]
        if size <= batcher.room and not ahead and not buries:
            batcher.keys += keys
            batcher.values += values
            batcher.room -= size
            self.ordinal = ordinal + len(values)
            return
        held_keys, held_values, room = batcher.keys, batcher.values, batcher.room
        for key, value in zip(keys, values, strict=True):
            assert value is not None
            size = len(value)
            # No room is larger than a record may be.
            if size > room or ahead or buries:
                batcher.room = room
                self._add_one(table, key, value, ordinal, ahead, buries=buries)
                ahead = []
                held_keys, held_values, room = batcher.keys, batcher.values, batcher.room
            else:
                held_keys.append(key)
                held_values.append(value)
                room -= size
            ordinal += 1
        batcher.room, self.ordinal = room, ordinal

    def _add_one(
        self,
        table: Table,
        key: bytes | None,
        value: bytes,
        ordinal: int,
        ahead: list[tuple[bytes | None, bytes]],
        *,
        buries: bool,
    ) -> None:
        """Add a change with what stands ahead of it and behind it, all in one batch."""
        batcher = self._batcher
        if len(value) > self._largest:
            value = self._letter(table, value, ordinal)
        if batcher.values and len(value) + sum(len(glued) for _, glued in ahead) > batcher.room:
            batcher.cut(ordinal)
        for glued_key, glued in ahead:
            batcher.add_ahead(glued, ordinal, glued_key)
        self._put(key, value)
        if buries and key is not None:
            batcher.add_tombstone(key, ordinal)

    def end(self, place: int) -> None:
        """End the transaction at a place in the log."""
        transaction, values = self.transaction, self._batcher.values
        if transaction is not None and self.ordinal > self._first:
            # A tombstone follows its delete.
            newest = -1 if values[-1] is not None else -2
            last = values[newest]
            assert last is not None
            values[newest] = last.removesuffix(envelope.END) + envelope.LAST_END
            if self._tells_ends:
                self._put(*self._ends.end(transaction, self._counts, self.ordinal, self._now_ms))
        self.transaction = None
        self._batcher.commit(place)

    def _ahead(self, table: Table, count: int, now_ms: int) -> list[tuple[bytes | None, bytes]]:
        """Return the records that go ahead of the next change of a table, with their keys."""
        transaction, ordinal = self.transaction, self.ordinal
        assert transaction is not None
        ahead: list[tuple[bytes | None, bytes]] = []
        if self._tells_ends:
            self._now_ms = now_ms
            if ordinal == self._first:
                ahead.append(self._ends.begin(transaction, ordinal, now_ms))
            name = f"{table.schema.schema}.{table.schema.table}"
            self._counts[name] = self._counts.get(name, 0) + count
        if not table.schema_sent:
            ahead.append((None, table.schema_record(transaction, ordinal, now_ms)))
            table.schema_sent = not self._batcher.repeats_schema
        return ahead

    def _put(self, key: bytes | None, value: bytes) -> None:
        self._batcher.keys.append(key)
        self._batcher.values.append(value)
        self._batcher.room -= len(value)

    def _letter(self, table: Table, value: bytes, ordinal: int) -> bytes:
        """Return what takes the place of a value that is too large; raise NeedsOperator to stop there."""
        assert self.transaction is not None
        position = Position(self._epoch, self.transaction.commit, ordinal)
        problem = decode_errors.too_large(table.schema, position, len(value), self._largest)
        if self._records.on_too_large == "stop":
            raise problem
        _log.warning("%s: a dead letter takes its place", problem.message)
        self._batcher.dead_letters += 1
        return transaction_metadata.without_row(value, table.schema.key)
