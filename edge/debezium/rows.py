"""The engine's records of one source as changes: tables by their Connect schemas, keys and values in the edge's envelope.

A table is made again where its schemas change, and its schema record goes ahead. `[policy]` applies to columns here: nothing that
it keeps back is in what this returns. Rows without a value that is another one in a record are in it as the engine wrote them.
"""

import re
from binascii import b2a_base64
from collections.abc import Callable, Collection
from hashlib import md5
from typing import Any, Final, NamedTuple
from uuid import UUID

from msgspec import Raw, json

from edge.debezium.connectors import CONNECTORS, Connector, Documents, Postgres, Unproven
from edge.debezium.frames import MALFORMED, NULL, Change, EngineRecord, Source
from edge.debezium.values import Convert, same
from edge.records.alterations import TableDescription
from edge.records.column_policy import LeftOut, Policy
from headrace.errors import CorruptInput
from headrace.formats import UNREADABLE
from headrace.schema import Column, TableSchema

#: What Debezium has in an old row of which the log has the key alone: null, or the type's empty value for columns NOT NULL.
_EMPTY: Final[tuple[Any, ...]] = (None, 0, [], {})
_EMPTY_TEXT: Final = re.compile(r"(0(\.0+)?)?|A*=*|(1970-01-01)?T?(00:00:00)?(Z|\+00)?")
#: Connect's types whose values in JSON have parts, and those that JSON has several forms of.
_OF_PARTS: Final = frozenset({"array", "map", "struct"})
_OF_FORMS: Final = frozenset({"float", "double"})
_OPERATIONS: Final = frozenset("cudrt")
_ABSENT: Final = object()
#: Made once: the decoder of a union is not cached.
_CHANGE: Final = json.Decoder(Change | None).decode


class _Field(NamedTuple):
    name: str
    #: None where the value in JSON is that of the record.
    convert: Convert | None
    hide: Callable[[bytes], bytes] | None
    is_key: bool


class Placeholders:
    """The forms in which Debezium writes its placeholder, by a column's type (its UnchangedToastedPlaceholder)."""

    def __init__(self, placeholder: str) -> None:
        content = placeholder.encode()
        # As Java's UUID.nameUUIDFromBytes makes it, which has no namespace.
        name_based = UUID(bytes=md5(content, usedforsecurity=False).digest(), version=3)
        # In text, in base64 where bytes are, for hstore, and as the only element of an array of one of them or of uuid.
        self._texts = {
            placeholder,
            b2a_base64(content, newline=False).decode(),
            json.encode({placeholder: placeholder}).decode(),
        }
        self._arrays = [*([text] for text in self._texts), [str(name_based)], [*content]]
        # One of these is in each form.
        in_base64, in_numbers = b2a_base64(content, newline=False), json.encode([*content])
        self._parts = content, in_base64, str(name_based).encode(), in_numbers[1:-1]

    def may_be_in(self, value: bytes) -> bool:
        """Whether a record may have a placeholder: to look through all its values takes longer."""
        text, in_base64, name_based, in_numbers = self._parts
        return text in value or in_base64 in value or name_based in value or in_numbers in value

    def names(self, values: dict[str, Any]) -> list[str]:
        """Return the columns whose value is the placeholder."""
        texts, arrays = self._texts, self._arrays
        return [
            name
            for name, value in values.items()
            if (value.__class__ is str and value in texts) or (value.__class__ is list and value in arrays)
        ]


class Table:
    """A captured table by one schema; the envelope is that of an edge of ours at such a database."""

    def __init__(
        self, schema: TableSchema, shared: Any, fields: list[_Field], key_types: set[str], *, admitted: bool
    ) -> None:
        self.schema, self.envelope, self.admitted = schema, shared, admitted
        self.schema_sent = False
        #: What existing rows became by an alteration is not known here.
        self.description: TableDescription | None = None
        self.name = json.encode(f"{schema.schema}.{schema.table}")
        self._fields, self._key_fields = fields, [field for field in fields if field.is_key]
        self._converted = [(field.name, field.convert) for field in fields if field.convert is not None]
        self._hides = any(field.hide is not None for field in fields)
        #: Whether records have its rows as the engine writes them.
        self.is_plain = not (self._converted or self._hides or schema.excluded)
        self._has_plain_key = [field.name for field in self._key_fields] == schema.key and not key_types & _OF_FORMS

    def is_called(self, schema: str, table: str) -> bool:
        """Whether these are its schema and its name."""
        return self.schema.table == table and self.schema.schema == schema

    def whole_row(self, values: dict[str, Any]) -> bytes:
        """Return a row as JSON that has all columns; its values are used up."""
        if self._hides or len(values) != len(self._fields):
            # Columns are left out.
            return self.row(values)
        for name, convert in self._converted:
            if (value := values[name]) is not None:
                values[name] = convert(value)
        return json.encode(values)

    def row(self, values: dict[str, Any], without: Collection[str] = (), *, keys_alone: bool = False) -> bytes:
        """Return a row as JSON, without some columns."""
        row: dict[str, Any] = {}
        for name, convert, hide, _ in self._key_fields if keys_alone else self._fields:
            value = values.get(name, _ABSENT)
            if value is _ABSENT or name in without:
                continue
            if value is not None:
                if convert is not None:
                    value = convert(value)
                if hide is not None:
                    value = hide(_text(value)).decode()
            row[name] = value
        return json.encode(row)

    def unchanged(self, names: list[str]) -> list[str]:
        """Return those of some columns that a record has, in its order."""
        return [name for name, _, _, _ in self._fields if name in names]

    def key(self, values: dict[str, Any]) -> bytes | None:
        """Return the key of a row; None for a table without one; raise KeyError for a row without a column of it."""
        for name in self.schema.key:
            values[name]
        return self.row(values, keys_alone=True) if self.schema.key else None

    def written_key(self, written: bytes | None) -> bytes | None:
        """Return the same of a plain row, by the key that the engine wrote; raise TypeError where there is none."""
        if not self.schema.key:
            return None
        values: dict[str, Any] = json.decode(written)  # type: ignore[arg-type]
        # Both have their own form of a control character.
        if written is None or not self._has_plain_key or len(values) != len(self.schema.key) or b"\\" in written:
            return self.key(values)
        for name in self.schema.key:
            values[name]
        return written

    def has_key_alone(self, before: dict[str, Any]) -> bool:
        """Whether an old row may be the key alone: Debezium fills the rest with what is empty."""
        return bool(self.schema.key) and all(
            _is_empty(value) for name, value in before.items() if name not in self.schema.key
        )


class Rows:
    """The tables of one engine's process, by the numbers of its schemas."""

    def __init__(self, connector: str, source: str, policy: Policy, placeholder: str) -> None:
        self.connector: Connector = CONNECTORS[connector]
        self._source, self._policy, self._placeholder = source, policy, placeholder
        self._placeholders = Placeholders(placeholder)
        self._schemas: dict[int, dict[str, Any]] = {}
        self._tables: dict[tuple[str, int, int], Table] = {}
        # Which pair of schemas each table has now.
        self._present: dict[str, tuple[str, int, int]] = {}
        #: The newest table, by the numbers of its schemas.
        self._newest: tuple[tuple[int, int], Table] | None = None
        #: What is around the ordinal of the newest record, and what all with the same share; of others each has its own.
        self._around: tuple[Any, bytes, bytes] = None, b"", b""
        self._differs = not isinstance(self.connector, Postgres)
        self._is_unproven = isinstance(self.connector, Unproven)
        self._has_documents = isinstance(self.connector, Documents)

    def add_schema(self, content: bytes) -> None:
        """Note a schema by its number."""
        try:
            self._schemas[int.from_bytes(content[:4], "big")] = json.decode(content[4:], type=dict[str, Any])
        except UNREADABLE as error:
            raise CorruptInput("a schema of Debezium's engine cannot be read") from error

    @staticmethod
    def parse(record: EngineRecord) -> Change | None:
        """Return the change in a record; None for what is no change of a table."""
        value = record.value
        if not value:
            return None
        try:
            change = _CHANGE(value)
            # Rows that are passed on have to be text.
            value.decode()
        except UNREADABLE as error:
            raise CorruptInput(f"a record of {record.topic} is no change as Debezium writes it") from error
        return change if change is not None and change.op in _OPERATIONS else None

    def read(self, record: EngineRecord) -> Change | None:
        """Return the change in a record, with rows also where the source has documents."""
        change = self.parse(record)
        if change is None or not isinstance(self.connector, Documents):
            return change
        try:
            return self.connector.rows(record.key, change, self._placeholder)
        except MALFORMED as error:
            raise CorruptInput(f"the key of a document of {record.topic} is none") from error

    def table(self, record: EngineRecord, change: Change) -> Table:
        """Return the table of a change, by the schemas that its record has."""
        numbers, source = (record.key_schema, record.value_schema), change.source
        of = self.connector.schema(source)
        if self._newest is not None and self._newest[0] == numbers and self._newest[1].is_called(of, source.table):
            return self._newest[1]
        # Debezium gives tables one topic whose names differ in characters that Kafka does not have.
        name = f"{of}.{source.table}"
        used = (name, record.key_schema if change.op != "t" else -2, record.value_schema)
        present = self._present.get(name)
        if change.op == "t" and present is not None and present[2] == record.value_schema:
            # A truncate has no key, nor its schema.
            used = present
        table = self._tables.get(used)
        if table is None:
            try:
                table = self._tables[used] = self._describe(record, change.source)
            except MALFORMED as error:
                raise CorruptInput(f"the schema of {record.topic} is none of Debezium's changes") from error
        if present != used:
            table.schema_sent = False
            if present is not None:
                # Another description of the table has another number, and a former one does not come again.
                del self._tables[present]
                for former, number in zip(present[1:], used[1:], strict=True):
                    if number >= 0 and former != number:
                        self._schemas.pop(former, None)
            self._present[name] = used
        self._newest = numbers, table
        return table

    def _describe(self, record: EngineRecord, source: Source) -> Table:
        fields = (
            self.connector.fields()
            if isinstance(self.connector, Documents)
            else _fields(self._schemas[record.value_schema], "after")
        )
        keys = [] if record.key_schema < 0 else self._schemas[record.key_schema]["fields"]
        key = [each["field"] for each in keys]
        names = [each["field"] for each in fields]
        of = self.connector.schema(source)
        admitted = self._policy.admits(of, source.table)
        try:
            treatments = self._policy.treatments(of, source.table, names, key)
        except LeftOut:
            admitted, treatments = False, [None] * len(names)
        columns, kept, excluded = [], [], []
        for position, (field, treatment) in enumerate(zip(fields, treatments, strict=True), start=1):
            name = field["field"]
            if treatment is not None and treatment.hide is None:
                excluded.append(name)
                continue
            column = self.connector.column(field, position, optional=name not in key)
            convert: Convert | None = self.connector.converter(field, column)
            if convert is same and field.get("type") not in _OF_PARTS:
                convert = None
            kept.append(_Field(name, convert, treatment.hide if treatment else None, name in key))
            if treatment is not None:
                text = self.connector.text
                column = Column(
                    name=name, type_name=text, position=position, optional=name not in key, policy=treatment.action
                )
            columns.append(column)
        schema = TableSchema(schema=of, table=source.table, key=key, columns=columns, excluded=excluded)
        shared = self.connector.table(self._source, source)
        return Table(schema, shared, kept, {str(each.get("type")) for each in keys}, admitted=admitted)

    def record(
        self,
        record: EngineRecord,
        table: Table,
        change: Change,
        transaction: Any,
        ordinal: int,
        number: int,
        now_ms: int,
    ) -> tuple[bytes | None, bytes]:
        """Return key and value of a change, which is what a record has."""
        before: bytes | Raw = change.before
        after: bytes | Raw = change.after
        key, unchanged = None, b""
        value = record.value or b""
        # A copied row is whole, but for large objects of some that were never run; one whose key changed comes as an insert.
        may_lack = (self._is_unproven or change.op != "r") and self._placeholders.may_be_in(value)
        if change.op == "t":
            before = after = NULL
        elif may_lack or not table.is_plain or self._has_documents or b"\\u" in value:
            # Java writes a character beyond the first 65,536 in twelve bytes.
            key, before, after, unchanged = self._convert(table, change, may_lack=may_lack)
        else:
            key = table.written_key(record.key)
            if not self.connector.has_whole_rows and before != NULL:
                row = json.decode(before)
                if table.has_key_alone(row):
                    before = table.row(row, keys_alone=True)
        of = table, change.op, transaction, now_ms
        if self._differs or self._around[0] != of:
            self._around = of, *self.connector.around(table.envelope, change, transaction, now_ms)
        _, ahead, between = self._around
        return key, b'{"before":%b,"after":%b,%b%b%08x%b%d}}' % (
            before, after, unchanged, ahead, ordinal, between, number,
        )  # fmt: skip

    def _convert(self, table: Table, change: Change, *, may_lack: bool) -> tuple[bytes | None, bytes, bytes, bytes]:
        """Return key and rows with values as a record has them, and the names of columns whose values the log does not carry."""
        before, after, unchanged = json.decode(change.before), json.decode(change.after), b""
        holder = after or before
        key = table.key(holder) if holder is not None else None
        keys_alone = before is not None and not self.connector.has_whole_rows and table.has_key_alone(before)
        if self._has_documents or keys_alone or may_lack:
            rows = [
                b"null" if row is None else table.row(row, self._placeholders.names(row), keys_alone=alone)
                for row, alone in ((before, keys_alone), (after, False))
            ]
            if after is not None and (missing := table.unchanged(self._placeholders.names(after))):
                unchanged = b'"unchanged":%b,' % json.encode(missing)
        else:
            rows = [b"null" if row is None else table.whole_row(row) for row in (before, after)]
        return key, rows[0], rows[1], unchanged


def _fields(schema: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = next(each for each in schema["fields"] if each["field"] == name)["fields"]
    return found


def _is_empty(value: Any) -> bool:
    return bool(_EMPTY_TEXT.fullmatch(value)) if isinstance(value, str) else value in _EMPTY


def _text(value: Any) -> bytes:
    """Return a value as text, as the policy's rules take it."""
    if isinstance(value, bool):
        return b"t" if value else b"f"
    return value.encode() if isinstance(value, str) else json.encode(value)
