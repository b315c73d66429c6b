"""Changes of rows events, added one by one: where each record has its own numbers, or a change of a key is two records.

For `[records] envelope = "debezium"` and `key_change = "delete-create"`. Other settings add the rows of an event together
(edge/mysql/rows.py), which takes a fraction of the time, unless some of them cannot be decoded.
"""

from edge.mysql import envelope
from edge.mysql.careful_rows import LargeRow
from edge.mysql.careful_rows import Undecodable as Lacking
from edge.mysql.envelope import DebeziumTransaction, Transaction
from edge.mysql.rows import Table
from edge.records.column_policy import UNDECODABLE
from edge.records.envelope import TooLarge, Undecodable
from edge.records.transaction_writer import Instead, TransactionWriter
from headrace.configuration.edge import Records

_NULL = b"null"


class SingleRows:
    """Adds the changes of one source to its writer."""

    def __init__(self, writer: TransactionWriter[Transaction], records: Records, largest: int) -> None:
        """`largest`: the limit of a record's value, in bytes."""
        self._writer = writer
        self._splits_keys = records.key_change == "delete-create"
        self._largest = largest

    @staticmethod
    def are_wanted(records: Records) -> bool:
        """Whether changes have to be added so."""
        return records.envelope == "debezium" or records.key_change == "delete-create"

    def begin_event(self, transaction: Transaction, event: bytes) -> None:
        """Note where the event begins whose rows follow.

        MariaDB does not write that within a transaction, nor MySQL in a compressed one: they have the place where it begins.
        """
        end = int.from_bytes(event[13:17], "little")
        if isinstance(transaction, DebeziumTransaction) and end:
            transaction.move_to(end - int.from_bytes(event[9:13], "little"))

    def add(self, table: Table, kind: int, images: bytes, at: int, until: int, now_ms: int) -> None:
        """Add the changes that the images of a rows event of this kind are, or their dead letters.

        Raises as the table's functions do where the source is to stop, or where an image has no end.
        """
        writer = self._writer
        try:
            if until - at > self._largest:
                changes = list(table.large_changes(kind, images, at, until, self._largest))
            else:
                changes = list(table.changes(kind, images, at, until))
        except UNDECODABLE:
            if not writer.passes_undecodable:
                raise
            changes = list(table.changes(kind, images, at, until, careful=True))
        for row, (former, old, key, new, lacks) in enumerate(changes):
            if isinstance(lacks, Lacking) and lacks.in_key:
                writer.leave_out(table, lacks.column)
            elif old is None:
                value = self._record(table, _NULL, new or _NULL, b"c", row, now_ms)
                writer.add(table, key, value, instead_of=_instead_of(value, lacks))
            elif new is None:
                value = self._record(table, old, _NULL, b"d", row, now_ms)
                instead = _instead_of(value, lacks) if isinstance(lacks, LargeRow) else None
                writer.add(table, former, value, is_delete=True, instead_of=instead)
            elif former == key or not self._splits_keys or former is None or key is None:
                value = self._record(table, old, new, b"u", row, now_ms)
                writer.add(table, key, value, instead_of=_instead_of(value, lacks))
            else:
                deleted = self._record(table, old, _NULL, b"d", row, now_ms)
                created = self._record(table, _NULL, new, b"c", row, now_ms, 1, b'"former_key":%b,' % former)
                writer.add_key_change(table, (former, deleted), (key, created), _instead_of(created, lacks))

    def _record(
        self,
        table: Table,
        before: bytes,
        after: bytes,
        op: bytes,
        row: int,
        now_ms: int,
        behind: int = 0,
        more: bytes = b"",
    ) -> bytes:
        """Return a change's value; `behind` is how many records of the same change are ahead of it."""
        writer, transaction = self._writer, self._writer.transaction
        assert transaction is not None
        total, of_table = (number + behind for number in writer.next_numbers(table.name))
        return b'{"before":%b,"after":%b,%b%b%d%b%08x%b%b}}' % (
            before, after, more, table.envelope.middle(transaction), row, transaction.place, writer.ordinal,
            envelope.end(op, transaction, now_ms), transaction.number(total, of_table),
        )  # fmt: skip


def _instead_of(value: bytes, lacks: Lacking | LargeRow | None) -> Instead:
    """Return what a record's value would be without what it lacks."""
    if isinstance(lacks, LargeRow):
        return TooLarge(len(value) + lacks.more, lacks.digest, lacks.column)
    return Undecodable(lacks.size, lacks.column) if lacks is not None else None
