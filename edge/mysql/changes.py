"""The changes of one transaction, on their way into a batch.

A schema record goes ahead of a table's first change; a batch is cut before a change that it has no room for; the last change of
a transaction says that it is the last. Called by edge/mysql/decoder.py with records that are decoded already, so an event that
cannot be decoded adds nothing.
"""

from edge.batcher import Batcher
from edge.mysql import envelope, refusals
from edge.mysql.envelope import Transaction
from edge.mysql.table import Table
from headrace.position import Position


class Changes:
    """What the open transaction has changed so far."""

    def __init__(self, batcher: Batcher, *, epoch: int, largest: int) -> None:
        #: The transaction that has begun and did not end; None between transactions.
        self.transaction: Transaction | None = None
        #: How many changes the transaction has so far: the ordinal of the next one.
        self.ordinal = self._first = 0
        self._batcher, self._epoch, self._largest = batcher, epoch, largest
        batcher.bound(largest)

    def begin(self, transaction: Transaction, first: int = 0) -> None:
        """Start a transaction, whose first change has this ordinal."""
        self.transaction, self.ordinal, self._first = transaction, first, first
        self._batcher.begin(transaction.commit, transaction.commit_ms)
        if first:
            self._batcher.skip(first)

    def add(self, table: Table, keys: list[bytes | None], values: list[bytes | None], now_ms: int) -> None:
        """Add changes of a table; raise NeedsOperator for one that is too large for a record."""
        batcher, transaction, ordinal = self._batcher, self.transaction, self.ordinal
        assert transaction is not None
        schema = None
        if not table.told and values:
            schema = table.schema_record(transaction, ordinal, now_ms)
        size = sum(map(len, values)) + len(schema or b"")  # type: ignore[arg-type]
        if size <= batcher.room and schema is None:
            batcher.keys += keys
            batcher.values += values
            batcher.room -= size
            self.ordinal = ordinal + len(values)
            return
        for key, value in zip(keys, values, strict=True):
            assert value is not None
            size = len(value) + len(schema or b"")
            if len(value) > self._largest:
                position = Position(self._epoch, transaction.commit, ordinal)
                raise refusals.too_large(table.schema, position, len(value), self._largest)
            if size > batcher.room and batcher.values:
                batcher.cut(ordinal)
            if schema is not None:
                batcher.glue(schema, ordinal)
                table.told, schema = True, None
            batcher.keys.append(key)
            batcher.values.append(value)
            batcher.room -= len(value)
            ordinal += 1
        self.ordinal = ordinal

    def end(self, place: int) -> None:
        """End the transaction at a place in the log."""
        if self.ordinal > self._first:
            values = self._batcher.values
            last = values[-1]
            assert last is not None
            values[-1] = last.removesuffix(envelope.END) + envelope.LAST_END
        self.transaction = None
        self._batcher.commit(place)
