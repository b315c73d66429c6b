"""A table's changes, from rows events to keys and values.

Rows event: Int48 table id, Int16 flags, in version 2 Int16 length of what else is there, packed number of columns, a bit for
each column that the images have (for updates a second time), then the images: a bit for each null, then the values. An update
has two images for each row. Whatever is not rows of this table raises ValueError, struct.error or IndexError.

Rows of an event are added together, which takes a fraction of the time, or one by one (`SingleRows`): where each record has its
own numbers, a change of a key is two records, or some cannot be decoded.
"""

import hashlib
from collections.abc import Iterator
from typing import Final

from msgspec import json

from edge.mysql import envelope, events, rows_compiled
from edge.mysql.careful_rows import CarefulRows, LargeRow, LargeRows, RowChange
from edge.mysql.careful_rows import Undecodable as Lacking
from edge.mysql.column_codec import ColumnCodec, blank
from edge.mysql.envelope import DebeziumTransaction, Transaction
from edge.mysql.generated_columns import GeneratedColumns, SystemVersioning
from edge.mysql.rows_compiled import Images
from edge.mysql.table_map import TableMap, packed
from edge.records.alterations import KnownColumn, TableDescription
from edge.records.column_policy import UNDECODABLE
from edge.records.envelope import TooLarge, Undecodable
from edge.records.transaction_writer import Instead, TransactionWriter
from headrace.configuration.edge import Records
from headrace.schema import Column, TableSchema

#: A record of one row: the row, the table's part, its number in the event, place, ordinal, the rest, how many changes so far.
_INSERTED, _DELETED = b'{"before":null,"after":%b,%b%d%b%08x%b%d}}', b'{"before":%b,"after":null,%b%d%b%08x%b%d}}'

_KIND_IN_C: Final = {
    **dict.fromkeys(events.INSERTS, rows_compiled.INSERT), **dict.fromkeys(events.UPDATES, rows_compiled.UPDATE),
    **dict.fromkeys(events.DELETES, rows_compiled.DELETE),
}  # fmt: skip

KeysAndValues = tuple[list[bytes | None], list[bytes | None]]


class MissingColumns(ValueError):  # noqa: N818 - a state of the log.
    """The images do not have every column: binlog_row_image is not FULL."""


class Table:
    """One table, as one table map describes it."""

    def __init__(
        self,
        described: TableMap,
        codes: list[ColumnCodec],
        shared: envelope.Table,
        versions: SystemVersioning | None = None,
        generated: GeneratedColumns | None = None,
    ) -> None:
        names = [json.encode(field.name) for field in described.fields]
        index = {field.name: number for number, field in enumerate(described.fields)}
        key = [index[name] for name in described.key]
        sent = [(field, code) for field, code in zip(described.fields, codes, strict=True) if code.policy != "exclude"]
        self.envelope = shared
        self.schema = TableSchema(
            schema=described.database,
            table=described.table,
            key=list(described.key),
            columns=[
                Column(
                    name=field.name,
                    type_name=code.type_name,
                    length=code.length,
                    scale=code.scale,
                    position=number,
                    optional=field.nullable,
                    policy=code.policy,
                    form=code.form_name,
                    enum_values=list(code.members) if code.form_name and code.members else None,
                )
                for number, (field, code) in enumerate(sent, 1)
            ],
            excluded=[
                field.name
                for number, (field, code) in enumerate(zip(described.fields, codes, strict=True))
                if code.policy == "exclude" and (versions is None or number not in versions.columns)
            ],
        )
        #: `database.table` as JSON.
        self.name = json.encode(f"{described.database}.{described.table}")
        #: Which of its rows are current; None where all are.
        self.versions = versions
        #: The columns that the images of updates and deletes may lack; None where they have all.
        self.generated = generated
        #: Whether its schema record went ahead.
        self.schema_sent = False
        #: What is compared with the table as it was before.
        self.description = TableDescription(
            identity=f"{described.database}.{described.table}",
            name=f"{described.database}.{described.table}",
            # As the schema record has them: in that the log and the catalog, by which chunks are read, agree.
            columns=tuple(KnownColumn(it.name, it.type_name, it.length, it.scale) for it in self.schema.columns),
            schema=hashlib.sha256(json.encode(self.schema.change())).hexdigest()[:16],
            catalog=lambda: None,
            left_out=self.schema.excluded,
        )
        self._keyed = Images(names, codes, key)
        self._bare = Images(names, codes, []) if key else self._keyed
        #: What decodes its rows events in C; None where that is Python alone.
        self.in_c = rows_compiled.images(names, codes, key)
        columns = list(index)
        self._careful = CarefulRows(self.schema, columns, codes, key)
        self._large = LargeRows(columns, codes, key, self._keyed)
        keys_alone = [code if number in key else blank(code) for number, code in enumerate(codes)]
        self._keys_alone = CarefulRows(self.schema, columns, keys_alone, key)
        self._width = len(names)
        self._bytes = (len(names) + 7) // 8
        # Sizes of what is ahead of the images, of inserts and deletes and of updates; and what of it was looked at already, with
        # whether the images lack generated columns.
        width = 1 if len(names) < 251 else 3
        self._head_sizes = (width + self._bytes, width + 2 * self._bytes)
        self._heads: dict[bytes, bool] = {}
        self._of: Transaction | None = None
        self._middle = b""

    def truncate(self, transaction: Transaction, ordinal: int, now_ms: int, total: int, of_table: int) -> bytes:
        """Return the value of a truncate, which has no key, with its numbers in the transaction and of its table, from 1."""
        return b'{"before":null,"after":null,%b0%b%08x%b%b}}' % (
            self.envelope.middle(transaction), transaction.place, ordinal, envelope.end(b"t", transaction, now_ms),
            transaction.number(total, of_table),
        )  # fmt: skip

    def keys(self, m: bytes, p: int, e: int) -> set[bytes | None]:
        """Return the keys of all images, old and new, from `p` to `e`, that can be decoded; None for that of no key."""
        return {key for _, _, key, _, lacks in self._keys_alone.changes(events.WRITE_2, m, p, e) if lacks is None}

    def copied(self, rows: list[bytes], transaction: Transaction, first: int, now_ms: int) -> list[bytes | None]:
        """Return the values of rows that a snapshot read, the first of which has this ordinal."""
        middle, place = self.envelope.middle(transaction, copied=True), transaction.place
        end, numbers = envelope.end(b"r", transaction, now_ms), transaction.number
        return [
            b'{"before":null,"after":%b,%b%d%b%08x%b%b}}'
            % (row, middle, number, place, first + number, end, numbers(number + 1, number + 1))
            for number, row in enumerate(rows)
        ]

    def copied_changes(
        self, kind: int, m: bytes, transaction: Transaction, first: int, now_ms: int
    ) -> list[bytes | None]:
        """Return the values of the changes that images are, as a part of a copy; the first of them has this ordinal."""
        middle, place, numbers = self.envelope.middle(transaction, copied=True), transaction.place, transaction.number
        values: list[bytes | None] = []
        for number, (_, old, _, new, _) in enumerate(self.changes(kind, m, 0, len(m), careful=True)):
            op = b"r" if old is None else b"d" if new is None else b"u"
            values.append(
                b'{"before":%b,"after":%b,%b%d%b%08x%b%b}}'
                % (
                    *(old or b"null", new or b"null", middle, number, place, first + number),
                    *(envelope.end(op, transaction, now_ms), numbers(number + 1, number + 1)),
                )
            )
        return values

    def large_changes(self, kind: int, m: bytes, p: int, e: int, largest: int) -> Iterator[RowChange]:
        """Yield each change of a large event, without large columns where its record would be beyond `largest` bytes."""
        return self._large.changes(kind, m, p, e, largest)

    def changes(self, kind: int, m: bytes, p: int, e: int, *, careful: bool = False) -> Iterator[RowChange]:
        """Yield each change; `careful`: also those with values that cannot be decoded."""
        if careful:
            yield from self._careful.changes(kind, m, p, e)
            return
        if self.in_c is not None and (decoded := self.in_c.changes(_KIND_IN_C[kind], m, p, e)) is not None:
            yield from decoded
            return
        images, size = self._keyed, self._bytes
        while p < e:
            former = old = key = new = None
            if kind not in events.INSERTS:
                p, former, old = images[m[p : p + size]](m, p + size)
            if kind not in events.DELETES:
                p, key, new = images[m[p : p + size]](m, p + size)
            yield former, old, key, new, None
        if p != e:
            raise ValueError("rows do not end where their event does")

    def images_at(self, event: bytes, at: int, *, is_update: bool) -> tuple[int, bool]:
        """Return where the images begin, `at` being where the number of columns is, and whether they lack generated columns.

        Raises MissingColumns when they lack other columns, ValueError when they are of another table.
        """
        size = self._head_sizes[is_update]
        head = event[at : at + size]
        lacks = self._heads.get(head)
        if lacks is None:
            # What was in order before is in order.
            lacks = self._heads[head] = self._lacks_generated(event, at, is_update=is_update)
        return at + size, lacks

    def _lacks_generated(self, event: bytes, at: int, *, is_update: bool) -> bool:
        width, at = packed(event, at)
        if width != self._width:
            raise ValueError("rows have another number of columns than their table map")
        size, every = self._bytes, (1 << width) - 1
        present = {
            int.from_bytes(event[start : start + size], "little") & every for start in (at, at + size * is_update)
        }
        if present == {every}:
            return False
        if self.generated is None or present != {self.generated.others}:
            raise MissingColumns
        return True

    def _between(self, transaction: Transaction) -> bytes:
        if self._of is not transaction:
            self._of, self._middle = transaction, self.envelope.middle(transaction)
        return self._middle

    def inserts(self, m: bytes, p: int, e: int, transaction: Transaction, first: int, now_ms: int) -> KeysAndValues:
        """Return keys and values of the rows from `p` to `e`, the first of which has this ordinal."""
        return self._single(rows_compiled.INSERT, m, p, e, transaction, first, now_ms)

    def updates(self, m: bytes, p: int, e: int, transaction: Transaction, first: int, now_ms: int) -> KeysAndValues:
        """Return keys and values of the pairs of rows from `p` to `e`."""
        middle, place = self._between(transaction), transaction.place
        end = envelope.end(b"u", transaction, now_ms)
        if (decoded := self._decode_in_c(rows_compiled.UPDATE, m, p, e, first, middle, place, end)) is not None:
            return decoded
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        images, bare, size, number = self._keyed, self._bare, self._bytes, first
        while p < e:
            p, _, old = bare[m[p : p + size]](m, p + size)
            p, key, row = images[m[p : p + size]](m, p + size)
            keys.append(key)
            values.append(
                b'{"before":%b,"after":%b,%b%d%b%08x%b%d}}'
                % (old, row, middle, number - first, place, number, end, (number := number + 1))
            )
        if p != e:
            raise ValueError("rows do not end where their event does")
        return keys, values

    def deletes(self, m: bytes, p: int, e: int, transaction: Transaction, first: int, now_ms: int) -> KeysAndValues:
        """Return keys and values of the rows from `p` to `e`."""
        return self._single(rows_compiled.DELETE, m, p, e, transaction, first, now_ms)

    def _single(
        self, kind: int, m: bytes, p: int, e: int, transaction: Transaction, first: int, now_ms: int
    ) -> KeysAndValues:
        form, op = (_INSERTED, b"c") if kind == rows_compiled.INSERT else (_DELETED, b"d")
        middle, place = self._between(transaction), transaction.place
        end = envelope.end(op, transaction, now_ms)
        if (decoded := self._decode_in_c(kind, m, p, e, first, middle, place, end)) is not None:
            return decoded
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        images, size, number = self._keyed, self._bytes, first
        while p < e:
            p, key, row = images[m[p : p + size]](m, p + size)
            keys.append(key)
            values.append(form % (row, middle, number - first, place, number, end, (number := number + 1)))
        if p != e:
            raise ValueError("rows do not end where their event does")
        return keys, values

    def _decode_in_c(
        self, kind: int, m: bytes, p: int, e: int, first: int, middle: bytes, place: bytes, end: bytes
    ) -> KeysAndValues | None:
        """Return the same, made in C; None where that is not compiled, and for what is unusual."""
        in_c = self.in_c
        decoded: KeysAndValues | None = in_c and in_c.decode(kind, m, p, e, first, middle, place, end)
        return decoded


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
                created = self._record(table, _NULL, new, b"c", row, now_ms, b'"former_key":%b,' % former)
                writer.add_key_change(table, (former, deleted), (key, created), _instead_of(created, lacks))

    def _record(
        self, table: Table, before: bytes, after: bytes, op: bytes, row: int, now_ms: int, former_key: bytes = b""
    ) -> bytes:
        """Return a change's value; one with a former key has another record of the same change ahead of it."""
        writer, transaction = self._writer, self._writer.transaction
        assert transaction is not None
        total, of_table = (number + bool(former_key) for number in writer.next_numbers(table.name))
        return b'{"before":%b,"after":%b,%b%b%d%b%08x%b%b}}' % (
            before, after, former_key, table.envelope.middle(transaction), row, transaction.place, writer.ordinal,
            envelope.end(op, transaction, now_ms), transaction.number(total, of_table),
        )  # fmt: skip


def _instead_of(value: bytes, lacks: Lacking | LargeRow | None) -> Instead:
    """Return what a record's value would be without what it lacks."""
    if isinstance(lacks, LargeRow):
        return TooLarge(len(value) + lacks.more, lacks.digest, lacks.column)
    return Undecodable(lacks.size, lacks.column) if lacks is not None else None
