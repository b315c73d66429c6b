"""A table's changes, from message to key and value: exactly, column by column, for every tuple; and plans by which C does the
same (edge/compiled/pgoutput.c), where that was compiled.

edge/postgres/rows_compiled.py does it faster in Python for what comes often. Both leave whatever holds something unusual to the
exact functions; tables with a column that has a form of its own (`[records]`, `[policy]`) have no plans. Every message is padded
with four bytes, so that the kind and length of a trailing null can be read at once. Whatever is not a tuple of this table raises
ValueError, struct.error or IndexError, which edge/postgres/pgoutput.py turns into CorruptInput.
"""

import struct
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Final, Self

from msgspec import json

from edge import compiled
from edge.postgres import envelope, values
from edge.postgres.debezium_types import DebeziumType
from edge.postgres.envelope import Around
from edge.postgres.relations import Relation
from edge.records.alterations import TableDescription
from headrace.schema import TableSchema

PAD = bytes(4)
TEXT, NULL, UNCHANGED = b"tnu"
#: Kind and length of a column.
HEADER = struct.Struct(">BI").unpack_from

#: A column's JSON; None where the log does not carry it.
Columns = list[bytes | None]
KeyAndValue = tuple[bytes | None, bytes]
#: From a padded message and the parts of Around to key and value.
Change = Callable[..., KeyAndValue]


class Table:
    """How one relation's tuples become records."""

    def __init__(
        self,
        relation: Relation,
        schema: TableSchema,
        shared: envelope.Table,
        debezium_types: Sequence[DebeziumType | None] = (),
        *,
        admitted: bool = True,
    ) -> None:
        """Make it from a relation and its schema; columns that the schema does not name are left out of records."""
        self.relation = relation
        self.schema = schema
        self.envelope = shared
        #: Whether its changes leave the region.
        self.admitted = admitted
        #: Whether its schema record went ahead.
        self.schema_sent = False
        #: What is compared with the table as it was before; None where that is not done.
        self.description: TableDescription | None = None
        #: Its functions by the first eight bytes of a message (edge/postgres/rows_compiled.py); None before its first change.
        self.changes: dict[bytes, Change] | None = None
        #: As JSON, with its schema.
        self.name = json.encode(f"{relation.schema}.{relation.table}")
        self.names = [json.encode(column.name) for column in relation.columns]
        self.identity = [number for number, column in enumerate(relation.columns) if column.identity]
        index = {column.name: number for number, column in enumerate(relation.columns)}
        #: Numbers of the key's columns, in key order.
        self.key_columns = [index[name] for name in schema.key]
        # How many columns the key has, where they are the first ones.
        self._leading_keys = (
            len(self.key_columns) if sorted(self.key_columns) == list(range(len(self.key_columns))) else 0
        )
        #: How a new tuple begins.
        self.new = b"N" + struct.pack(">H", len(relation.columns))
        columns = list(zip(relation.columns, debezium_types or [None] * len(relation.columns), strict=True))
        #: The type by which each column is written; FORMED for one that has a form of its own.
        self.kinds = [values.FORMED if form and form.convert else column.type_oid for column, form in columns]
        self.converters = [
            form.convert if form and form.convert else values.converter(column.type_oid) for column, form in columns
        ]
        sent = {column.name for column in schema.columns}
        for number, (column, _) in enumerate(columns):
            if column.name not in sent:
                self.kinds[number], self.converters[number] = values.LEFT_OUT, values.left_out
        #: Numbers of the columns that records hold.
        self.held = [number for number, kind in enumerate(self.kinds) if kind != values.LEFT_OUT]
        #: What a column has that the log does not carry, in a new row and in an old one; None where the row has no such field.
        self.placeholders: Columns = [None] * len(columns)
        self.fallbacks: Columns = [None] * len(columns)

    def for_snapshot(self) -> Self:
        """Return the same for rows that a snapshot reads."""
        other = copy(self)
        other.envelope, other.changes = self.envelope.for_snapshot(), None
        return other

    def former_key(self, message: bytes) -> bytes | None:
        """Return the key in the old tuple of an Update message; None for a table without a key."""
        old, _ = self._tuple(message, 8)
        return self._key(old)

    def insert(self, message: bytes, *around: bytes) -> KeyAndValue:
        """Byte1('I') Int32(relation) Byte1('N') TupleData."""
        row, offset = self._tuple(message, 8)
        _ends(message, offset)
        return self._key(row), b'{"before":null,"after":%b,%b' % (
            self._row(row),
            self._rest(self.envelope.created, around),
        )

    def update(self, message: bytes, *around: bytes) -> KeyAndValue:
        """Byte1('U') Int32(relation) [Byte1('K' or 'O') TupleData] Byte1('N') TupleData."""
        before, offset = values.NULL, 5
        old: Columns = [None] * len(self.names)
        kind = message[5:6]
        if kind != b"N":
            old, offset = self._tuple(message, 8)
            if kind == b"K":
                old = [value if number in self.identity else None for number, value in enumerate(old)]
            before = self._old_row(old)
        if message[offset : offset + 3] != self.new:
            raise ValueError("no new tuple")
        new, offset = self._tuple(message, offset + 3)
        _ends(message, offset)
        # What the log leaves out did not change, so an old row that carries it has the new one's value.
        new = [was if value is None else value for value, was in zip(new, old, strict=True)]
        unchanged = self._absent(new)
        return self._key(new), b'{"before":%b,"after":%b,%b%b' % (
            before,
            self._row(new),
            unchanged,
            self._rest(b"u", around),
        )

    def delete(self, message: bytes, *around: bytes) -> KeyAndValue:
        """Byte1('D') Int32(relation) Byte1('K' or 'O') TupleData."""
        old, offset = self._tuple(message, 8)
        _ends(message, offset)
        key = self._key(old)
        if message[5:6] == b"K":
            old = [value if number in self.identity else None for number, value in enumerate(old)]
        return key, b'{"before":%b,"after":null,%b' % (self._old_row(old), self._rest(b"d", around))

    def changes_key(self, message: bytes) -> bool:
        """Return whether an Update message with an old tuple changes the key of its row."""
        if not self.key_columns:
            return False
        if self._leading_keys:
            # No text holds a zero byte, so what begins with the key's columns and their lengths is a tuple.
            end = 8
            for _ in range(self._leading_keys):
                kind, length = HEADER(message, end)
                end += 5 + length if kind == TEXT else 1
            at = message.find(self.new, end) + len(self.new)
            if message[8:9] == b"t" and message[at : at + end - 8] == message[8:end]:
                return False
        old, offset = self._texts(message, 8)
        new, _ = self._texts(message, offset + 3)
        return any(new[number] is not None and new[number] != old[number] for number in self.key_columns)

    def key_change(
        self, message: bytes, at_delete: Around, at_create: Around
    ) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]]:
        """Return an Update message that changes the key as a delete and a create, key and value of each.

        The create names the former key: there a reader that keeps rows finds columns that the log does not carry.
        """
        old, offset = self._tuple(message, 8)
        former = self._key(old)
        if message[5:6] == b"K":
            old = [value if number in self.identity else None for number, value in enumerate(old)]
        if message[offset : offset + 3] != self.new:
            raise ValueError("no new tuple")
        new, offset = self._tuple(message, offset + 3)
        _ends(message, offset)
        new = [was if value is None else value for value, was in zip(new, old, strict=True)]
        key = self._key(new)
        assert former is not None
        assert key is not None
        unchanged = self._absent(new)
        named = b'"former_key":%b,%b' % (former, unchanged)
        deleted = b'{"before":%b,"after":null,%b' % (self._old_row(old), self._rest(b"d", at_delete))
        created = b'{"before":null,"after":%b,%b%b' % (self._row(new), named, self._rest(b"c", at_create))
        return (former, deleted), (key, created)

    def truncate(self, around: Around) -> bytes:
        """Return the value of a truncate, which has no key."""
        return b'{"before":null,"after":null,' + self._rest(b"t", around)

    def _rest(self, op: bytes, around: tuple[bytes, ...]) -> bytes:
        return self.envelope.rest(op, Around(*around))

    def _tuple(self, message: bytes, offset: int) -> tuple[Columns, int]:
        """Int16(columns), which is checked already, then {Byte1('n' or 'u') | Byte1('t') Int32(length) Byten(text)}..."""
        columns: Columns = []
        for convert in self.converters:
            kind, length = HEADER(message, offset)
            if kind == TEXT:
                offset += 5 + length
                columns.append(convert(message[offset - length : offset]))
            elif kind == NULL:
                offset += 1
                columns.append(values.NULL)
            elif kind == UNCHANGED:
                offset += 1
                columns.append(None)
            else:
                raise ValueError("a column is neither text, null nor unchanged")
        return columns, offset

    def _texts(self, message: bytes, offset: int) -> tuple[Columns, int]:
        """Return a tuple's columns as the log has them, None for those that are null or absent, and the offset behind it."""
        texts: Columns = []
        for _ in self.kinds:
            kind, length = HEADER(message, offset)
            offset += 5 + length if kind == TEXT else 1
            texts.append(message[offset - length : offset] if kind == TEXT else None)
        return texts, offset

    def _row(self, columns: Columns) -> bytes:
        return self._object(columns, self.placeholders)

    def _old_row(self, columns: Columns) -> bytes:
        return self._object(columns, self.fallbacks)

    def _object(self, columns: Columns, absent: Columns) -> bytes:
        """Return a row's JSON; `absent` has what a column that the log does not carry has, None for no such field."""
        sent = (
            (self.names[number], value if (value := columns[number]) is not None else absent[number])
            for number in self.held
        )
        return b"{%b}" % b",".join(b"%b:%b" % (name, value) for name, value in sent if value is not None)

    def _absent(self, columns: Columns) -> bytes:
        """Return the part of a record that names the columns without a value; empty when there is none."""
        names = b",".join(self.names[number] for number in self.held if columns[number] is None)
        return b'"unchanged":[%b],' % names if names else b""

    def _key(self, columns: Columns) -> bytes | None:
        if not self.key_columns:
            return None
        fields = []
        for number in self.key_columns:
            value = columns[number]
            if value is None:
                raise ValueError("the log does not carry a key column")
            fields.append(b"%b:%b" % (self.names[number], value))
        return b"{%b}" % b",".join(fields)


def _ends(message: bytes, offset: int) -> None:
    if offset != len(message) - len(PAD):
        raise ValueError("a message does not end where its columns do")


#: The module in C, or None.
module: Any = compiled.module

#: From rows, the first of them, free bytes, the largest row's, changed keys, lists for keys and values, and the parts of a record
#: from its ordinal on, to the first row that is not added, and what is left of the free bytes.
CopyRows = Callable[..., tuple[int, int]]

#: Of a column that is null, as it is not part of the key, in a tuple that has the key alone.
_ABSENT: Final = "0"
_TEXT: Final = "e"
#: How the module converts types, by OID; others are texts.
_FORMS: Final[dict[int, str]] = {
    values.LEFT_OUT: "-", values.BOOL: "b", values.BYTEA: "x", values.TIMESTAMP: "t", values.TIMESTAMPTZ: "z",
    **dict.fromkeys(values.INTEGERS, "n"), **dict.fromkeys(values.FLOATS, "f"), **dict.fromkeys(values.PLAIN, "p"),
}  # fmt: skip


def plan_insert(table: Table) -> Change | None:
    """Return the function for Insert messages."""
    return _plan(table, table.insert, table.envelope.created, [_forms(table)], [b'{"before":null,"after":{', b"},"])


def plan_update(table: Table) -> Change | None:
    """Return the function for Update messages with the new tuple alone."""
    return _plan(table, table.update, b"u", [_forms(table)], [b'{"before":null,"after":{', b"},"])


def plan_whole_update(table: Table) -> Change | None:
    """Return the function for Update messages with the whole old tuple."""
    forms = _forms(table)
    return _plan(table, table.update, b"u", [forms, forms], [b'{"before":{', b'},"after":{', b"},"])


def plan_delete(table: Table) -> Change | None:
    """Return the function for Delete messages with the whole tuple."""
    return _plan(table, table.delete, b"d", [_forms(table)], [b'{"before":{', b'},"after":null,'])


def plan_key_delete(table: Table) -> Change | None:
    """Return the function for Delete messages with the key alone."""
    if any(fallback is not None for fallback in table.fallbacks):
        return None
    forms = [form if number in table.identity else _ABSENT for number, form in enumerate(_forms(table))]
    return _plan(table, table.delete, b"d", [forms], [b'{"before":{', b'},"after":null,'])


def _forms(table: Table) -> list[str]:
    return [_FORMS.get(kind, _TEXT) for kind in table.kinds]


def plan_copied(table: Table) -> CopyRows | None:
    """Return the function for many rows of a table as COPY prints them."""
    insert_in_c: Any = plan_insert(table)
    return insert_in_c and insert_in_c.__self__.copy  # type: ignore[no-any-return]


def _plan(table: Table, exact: Change, op: bytes, tuples: list[list[str]], around_rows: list[bytes]) -> Change | None:
    """Return a function for one kind of message, given the forms of its tuples and what is around their rows."""
    if module is None or values.FORMED in table.kinds or not table.kinds:
        return None
    if not all(tuples[-1][number] not in {"-", _ABSENT} for number in table.key_columns):
        return None
    shared = table.envelope
    *heads, last = around_rows
    constants = (*heads, last + shared.head, shared.middle, b'"},"op":"%b","ts_ms":' % op, b"}}")
    forms = "".join(form for forms in tuples for form in forms).encode()
    names = tuple(name + b":" for name in table.names) * len(tuples)
    change: Change = module.Plan(forms, names, tuple(table.key_columns), constants, exact).decode
    return change
