"""The envelope around a row: its parts that are the same for every engine (docs/records.md), and what each engine adds.

A record ends with its transaction; schema records, the beginning and end of transactions, and dead letters are made here once.
Only the engine can make a record's `source` block: it comes from the engine (edge/postgres/envelope.py, edge/mysql/envelope.py)
up to and including the ordinal, without the closing quote.

What the writer of transactions takes from an engine, and from the history of tables, is implemented by edge/postgres,
edge/mysql and edge/snapshot/table_history.py; written for edge/records/transaction_writer.py.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import json

from edge.records.alterations import Announcement, TableDescription
from headrace import __version__
from headrace.schema import TableSchema


class Transaction(Protocol):
    """What an engine has of a transaction when it begins."""

    #: The commit number of its positions, and when it committed, in milliseconds since 1970.
    commit: int
    commit_ms: int

    @property
    def id(self) -> bytes:
        """Its id as JSON."""


T_contra = TypeVar("T_contra", bound=Transaction, contravariant=True)


class Envelope(Protocol[T_contra]):
    """What an engine's records of one table share."""

    #: The fields of a schema record that name the database and the schema.
    database_names: bytes

    def source(self, transaction: T_contra, ordinal: int) -> bytes:
        """Return the `source` block up to and including the ordinal, without the closing quote."""


class Table(Protocol[T_contra]):
    """A captured table."""

    schema: TableSchema
    #: Whether its schema record was sent.
    schema_sent: bool
    #: `schema.table` as JSON.
    name: bytes

    @property
    def description(self) -> TableDescription | None:
        """What is compared with the table as it was before; None where that is not done."""

    @property
    def envelope(self) -> Envelope[T_contra]:
        """What its records share."""


class History(Protocol):
    """What tables looked like before (edge/snapshot/table_history.py)."""

    def announce(self, table: TableDescription, place: int, *, is_copied: bool = False) -> Announcement:
        """Note a table ahead of its schema record in the transaction at a place; the same answer each time there.

        `is_copied`: whether a copy of the whole table begins just there. Raises NoSpace or NeedsOperator where what was found
        cannot be made durable.
        """

    def knows(self, table: str, place: int) -> bool:
        """Return whether a table of this name may have sent records ahead of a place; unknown ones did not."""

    def names(self, prefix: str, place: int) -> list[str]:
        """Return the names, in order, that begin with a prefix, of tables that sent records ahead of a place."""

    def move(self, tables: Iterable[str], reason: str, place: int, *, recurs: bool = False) -> None:
        """Note that a transaction at a place changed tables' rows without records: their next schema records have the reason.

        `recurs`: any transaction may have the same, so that it is no reason for one copy after another. Raises NoSpace or
        NeedsOperator where that cannot be made durable.
        """

    def mark(self, table: str, reason: str) -> None:
        """Note that a table needs a copy, since the values of one of its rows did not arrive. Raises as `move` does."""

    def warn(self, name: str, words: str) -> None:
        """Add a warning about a table, by its own name, to what the status shows until the edge ends."""

    def empty(self, table: str) -> None:
        """Note that a table has no rows any more, and so needs no copy."""


#: How a record ends, and how the last record of its transaction does.
END, LAST_END = b"}}", b',"last":true}}'
#: How one in Avro begins, which no JSON does, and the same two ends (edge/records/avro_records.py).
AVRO_MARK = 0
AVRO_END, AVRO_LAST_END = b"\0", b"\2\1"
#: Debezium's headers of the two records of a changed key: the delete's has the new key, the create's the former one.
NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"

#: What a mark of a copy has another value of; in the names ahead of it the quotes would be escaped.
_NO_SNAPSHOT, _MARKED = b',"snapshot":"false"', b',"snapshot":"%b"'
_NULL, _BEFORE, _AFTER, _UNCHANGED = b"null", b'{"before":', b',"after":', b'"unchanged":'


class TableNames:
    """The parts of a source block by which a record names where it comes from, made once for each table."""

    def __init__(self, *, connector: str, source: str, database: str, schema: str, table: str) -> None:
        #: Its beginning, up to the time of the commit in milliseconds since 1970.
        self.head = b'"source":{"version":%b,"connector":%b,"name":%b,"ts_ms":' % (
            json.encode(__version__), json.encode(connector), json.encode(source),
        )  # fmt: skip
        names = json.encode(database), json.encode(schema), json.encode(table)
        #: What comes behind the time, of a change in the log and of a row that a snapshot copies.
        self.streamed, self.copied = (
            b',"snapshot":"%b","db":%b,"schema":%b,"table":%b,' % (kind, *names) for kind in (b"false", b"incremental")
        )
        #: The fields of a schema record that name the database and the schema.
        self.database_names = b'"databaseName":%b,"schemaName":%b' % names[:2]


def schema_record(
    schema: TableSchema, source: bytes, database_names: bytes, now_ms: int, rewritten: list[str] | None = None
) -> bytes:
    """Return the schema record that goes ahead of a table's first change; `database_names` are its two name fields.

    `rewritten` is why existing rows changed without a record, where that is known.
    """
    change = json.encode(schema.change())
    mark = b"" if rewritten is None else b',"rewritten":%b' % json.encode(rewritten)
    return b'{%b"},"ts_ms":%d,%b,"ddl":null,"tableChanges":[%b]%b}' % (source, now_ms, database_names, change, mark)


def copy_mark(
    schema: TableSchema, mark: str, source: bytes, database_names: bytes, now_ms: int, transaction: bytes, number: int
) -> bytes:
    """Return a schema record that marks the beginning or the end of the table's copy (headrace.schema).

    It ends as a change does, with its transaction's id as JSON and its number in the transaction.
    """
    change, marked = json.encode(schema.change()), source.replace(_NO_SNAPSHOT, _MARKED % mark.encode(), 1)
    return b'{%b,"ddl":null,"tableChanges":[%b],%b"},"ts_ms":%d,"transaction":{"id":%b,"total_order":%d%b' % (
        database_names, change, marked, now_ms, transaction, number, END,
    )  # fmt: skip


def transaction_begin(transaction: bytes, source: bytes, now_ms: int) -> tuple[bytes, bytes]:
    """Return key and value of the record that goes ahead of a transaction's first change; its id is JSON."""
    return _status(b"BEGIN", transaction, _NULL, _NULL, source, now_ms)


def transaction_end(
    transaction: bytes, changes: Mapping[bytes, int], count: int, source: bytes, now_ms: int
) -> tuple[bytes, bytes]:
    """Return key and value of a transaction's last record; `changes` has the number of changes by the table's JSON name."""
    listed = b",".join(b'{"data_collection":%b,"event_count":%d}' % changed for changed in changes.items())
    return _status(b"END", transaction, b"%d" % count, b"[%b]" % listed, source, now_ms)


def _status(
    status: bytes, transaction: bytes, count: bytes, collections: bytes, source: bytes, now_ms: int
) -> tuple[bytes, bytes]:
    value = b'{"status":"%b","id":%b,"event_count":%b,"data_collections":%b,%b"},"ts_ms":%d}' % (
        status, transaction, count, collections, source, now_ms,
    )  # fmt: skip
    return b'{"id":%b}' % transaction, value


def as_last(value: bytes) -> bytes:
    """Return a change as the last one of its transaction."""
    if value[0] == AVRO_MARK:
        return value.removesuffix(AVRO_END) + AVRO_LAST_END
    return value.removesuffix(END) + LAST_END


class _Rows(msgspec.Struct):
    before: msgspec.Raw
    after: msgspec.Raw
    # Empty where the record has none.
    former_key: msgspec.Raw = msgspec.Raw()
    unchanged: msgspec.Raw = msgspec.Raw()


class TooLarge(NamedTuple):
    """A record's value that is too large to be made: its size in bytes, the SHA-256 of its row's JSON, and its largest column."""

    size: int
    digest: str
    column: str


class Undecodable(NamedTuple):
    """A row with a value that cannot be decoded: its size in the log in bytes, and that value's column.

    It has no SHA-256: of a short row that would show which values it may have.
    """

    size: int
    column: str


def largest_column(value: bytes) -> str:
    """Return the name of the largest column of a change."""
    rows = json.decode(value, type=_Rows)
    sizes = [
        (len(bytes(column)), name)
        for row in (rows.before, rows.after)
        if bytes(row) != _NULL
        for name, column in json.decode(row, type=dict[str, msgspec.Raw]).items()
    ]
    return max(sizes)[1]


def dead_letter(value: bytes, schema: TableSchema, instead_of: TooLarge | Undecodable | None = None) -> bytes:
    """Return the record that replaces a change which is too large, or cannot be decoded: the same with the key's columns alone.

    `too_large` in it has the value's size, and the SHA-256 of the row's JSON: of the new row, of the old one for a delete.
    Of what cannot be decoded it has the size in the log, and the column.
    """
    rows = json.decode(value, type=_Rows)
    before, after = bytes(rows.before), bytes(rows.after)
    at = len(_BEFORE) + len(before) + len(_AFTER) + len(after) + 1
    if bytes(rows.unchanged):
        at += len(_UNCHANGED) + len(bytes(rows.unchanged)) + 1
    former = b""
    if bytes(rows.former_key):
        former = b'"former_key":%b,' % bytes(rows.former_key)
        at += len(former)
    is_delete = after == _NULL
    if instead_of is None:
        instead_of = TooLarge(len(value), sha256(before if is_delete else after).hexdigest(), "")
    left_out = [] if is_delete else [column.name for column in schema.columns if column.name not in schema.key]
    unchanged = b"%b%b," % (_UNCHANGED, json.encode(left_out)) if left_out else b""
    if isinstance(instead_of, Undecodable):
        instead = b'"","column":%b' % json.encode(instead_of.column)
    else:
        instead = b'"%b"' % instead_of.digest.encode()
    return b'%b%b%b%b,%b%b"too_large":{"bytes":%d,"sha256":%b},%b' % (
        _BEFORE, key_columns(before, schema), _AFTER, key_columns(after, schema), former, unchanged, instead_of.size, instead,
        value[at:],
    )  # fmt: skip


def key_columns(row: bytes, schema: TableSchema) -> bytes:
    """Return a row with the key's columns alone."""
    if row == _NULL:
        return row
    fields = json.decode(row, type=dict[str, msgspec.Raw])
    return json.encode({name: value for name, value in fields.items() if name in schema.key})
