"""Reads chunks by COPY, each in a short transaction of its own, and writes watermarks into the log.

A watermark is a transactional logical message, a small transaction of its own, so nothing is needed in the source but the right
to connect and to select. Every chunk has a list of the transactions that it did not see: without it, one whose commit is in the
log and not visible yet would be missed. Used by the snapshot's thread alone.

Dead letters' rows are selected by their keys: values become literals that the server casts to the key's own types, so nothing is
compared as text.
"""

import base64
import binascii
import re
import struct
from collections.abc import Callable
from typing import Any

from edge.postgres.catalog import tables_above
from edge.postgres.connection import Database
from edge.postgres.key_order import one_of
from edge.postgres.relations import Relation
from edge.postgres.rows import PAD
from edge.postgres.snapshot_table import SnapshotTable, describe, named, published
from edge.postgres.visibility import Moment
from edge.records.column_policy import Policy
from edge.snapshot.chunk_reader import ChunkReader, check_keys, unclear
from edge.snapshot.plan import Key, LogTable
from edge.snapshot.ports import Chunk, Described, MomentGone
from headrace.configuration.edge import Postgresql, Records
from headrace.errors import NeedsOperator, Retryable

_NULL = b"\\N"
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_CHARACTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_HEADER = struct.Struct(">cI").pack
#: Byte1('t') Int32(length), for columns of ordinary lengths.
_HEADERS = [_HEADER(b"t", length) for length in range(4096)]


def columns(row: bytes) -> list[bytes | None]:
    """Return the columns of a row, None for null."""
    return [None if column == _NULL else _plain(column) for column in row.split(b"\t")]


def key_of(row: bytes, table: SnapshotTable) -> Key:
    """Return the key of a row."""
    texts = columns(row)
    return [(texts[number] or b"").decode() for number in table.key]


def insert(oid: int, count: int) -> Callable[[bytes], bytes]:
    """Return what turns rows of a relation with so many columns into padded Insert messages; ValueError for another number.

    Byte1('I') Int32(relation) Byte1('N') Int16(columns) {Byte1('n') | Byte1('t') Int32(length) Byten(text)}...
    """
    head = b"I" + oid.to_bytes(4, "big") + b"N" + count.to_bytes(2, "big")
    join = b"".join

    def escaped(row: bytes) -> bytes:
        return head + join([_column(column) for column in row.split(b"\t")]) + PAD

    names = [f"c{number}" for number in range(count)]
    # Straight code for rows without null, escape or long text: nothing but lookups of headers, and one join.
    source = f"""
def message(row):
    {", ".join(names)}, = row.split(tab)
    if backslash not in row:
        try:
            return join((head, {", ".join(f"header[len({name})], {name}" for name in names)}, pad))
        except IndexError:
            pass
    return escaped(row)
"""
    scope = {
        "tab": b"\t",
        "backslash": b"\\",
        "join": join,
        "head": head,
        "header": _HEADERS,
        "pad": PAD,
        "escaped": escaped,
    }
    exec(compile(source, f"<rows of {oid}>", "exec"), scope)  # noqa: S102 - made of numbers alone.
    message: Callable[[bytes], bytes] = scope["message"]  # type: ignore[assignment]
    return message


def _column(column: bytes) -> bytes:
    if column == _NULL:
        return b"n"
    text = _plain(column)
    return _HEADER(b"t", len(text)) + text


def _plain(column: bytes) -> bytes:
    return _ESCAPED.sub(_character, column) if b"\\" in column else column


def _character(match: re.Match[bytes]) -> bytes:
    character = match[1]
    return _CHARACTERS.get(character, character)


#: The prefix of our own logical messages.
PREFIX = "headrace"

#: A chunk is read by the key's index, independently of statistics; no chunk sorts the table. A table with row security that would
#: hide rows is refused, since the log hides none. A chunk that waits for a lock is given up.
_SETTINGS = """
set enable_seqscan = off; set enable_bitmapscan = off; set enable_sort = off; set max_parallel_workers_per_gather = 0;
set row_security = off; set lock_timeout = '10s'; set statement_timeout = '10min';
set idle_in_transaction_session_timeout = '1min'
"""


class SnapshotReader(ChunkReader[Database, SnapshotTable]):
    """A connection that reads chunks of published tables."""

    def __init__(self, config: Postgresql, source: str, policy: Policy) -> None:
        super().__init__(Database(config, source))
        self._config, self._source = config, source
        # Of a table without a key.
        self._moment: Moment | None = None
        self._publication = config.publication
        self._policy = policy
        self._database.rows(_SETTINGS)

    def published(self) -> list[str]:
        """Return the tables of the publication."""
        above = tables_above(self._database) if self._policy.has_rules else {}
        names = published(self._database, self._publication)
        return [name for name in names if self._policy.admits_name(name, above.get(name, ()))]

    def named(self, names: list[str]) -> list[str]:
        """Return the names under which the publication carries tables."""
        return named(self._database, self._publication, names)

    def describe(self, name: str, where: str | None) -> Described:
        """Return a table, with the planner's estimate of its rows."""
        above = tables_above(self._database) if self._policy.has_rules else {}
        if not self._policy.admits_name(name, above.get(name, ())):
            raise NeedsOperator(
                f"table {name} does not leave the region: [policy] keeps it",
                hint="Name it in [policy] include_tables, or take it out of exclude_tables.",
            )
        table = describe(self._database, self._publication, name)
        if not table.key and where is not None:
            raise NeedsOperator(
                f"table {name} has no key, so it is copied whole, and never by a condition",
                hint="Request its snapshot without --where.",
            )
        relation = Relation.parse(table.messages[-1], {})
        columns = [column.name for column in relation.columns]
        # Raises for a table that the stream leaves out.
        self._policy.treatments(relation.schema, relation.table, columns, table.key_names)
        (plan,) = self._database.checked_rows(table.estimate(where))[0][0]
        estimate = int(plan["Plan"]["Plan Rows"])
        if not table.key:
            return Described(table, estimate, of_moment=True)
        return Described(table, estimate, LogTable(table.oid, table.key_names, table.order))

    def rows(self, table: SnapshotTable, where: str | None, after: Key | None, count: int, limit_bytes: int) -> Chunk:
        """Return the next rows in key order, or of a table without a key by their places at one moment."""
        if table.key:
            return super().rows(table, where, after, count, limit_bytes)
        if after is None:
            self.leave()
            self._moment = Moment(self._config, self._source, table)
        elif self._moment is None:
            raise MomentGone("rows without a key are of one moment, and the transaction that held it is gone")
        assert self._moment is not None
        return self._moment.chunk(self._database, table, after, count, limit_bytes)

    def leave(self) -> None:
        """Leave the moment of which a table without a key is copied, if any."""
        moment, self._moment = self._moment, None
        if moment is not None:
            moment.leave()

    def write_watermark(self, content: bytes, table: SnapshotTable | None = None) -> None:
        """Commit a watermark; the server's own synchronous_commit decides when that is done.

        A table's columns cannot be altered from the lock of the select on to the commit.
        """
        database, statement = self._database, "select pg_logical_emit_message(true, %s, %s)"
        if table is None:
            database.rows(statement, PREFIX, content)
            return
        self._check(table)
        database.rows("begin isolation level read committed")
        # Names are quoted. A failure closes the connection, and so ends the transaction.
        database.rows(f"select from {table.source} limit 0")
        self._check(table)
        database.rows(statement, PREFIX, content)
        database.rows("commit")

    def _statements(self, table: SnapshotTable) -> SnapshotTable:
        return table

    def _key_of(self, table: SnapshotTable, row: bytes) -> Key:
        return key_of(row, table)

    def _run(self, table: SnapshotTable, statement: str, limit_bytes: int) -> tuple[list[bytes], int, bool, str]:
        database = self._database
        database.rows("begin isolation level repeatable read, read only")
        try:
            seen: str = database.value("select pg_current_snapshot()::text")
            self._check(table)
            rows, size, whole = database.copied(statement, limit_bytes)
        finally:
            database.rows("rollback")
        # The shape is that of the copy's own moment, which lies behind the transaction's snapshot.
        self._check(table)
        return rows, size, whole, seen

    def _check(self, table: SnapshotTable) -> None:
        if not table.is_still(self._database):
            raise Retryable("a table was altered or its publication changed since it was described")


#: Of each column of a table the type beneath its domain.
_BASES = """
with recursive base as (
    select a.attname, t.oid, t.typtype, t.typbasetype from pg_attribute a join pg_type t on t.oid = a.atttypid
    where a.attrelid = %s::int8::oid and a.attnum > 0 and not a.attisdropped
    union all
    select b.attname, t.oid, t.typtype, t.typbasetype from base b join pg_type t on b.typtype = 'd' and t.oid = b.typbasetype
)
select attname::text, oid::regtype::text from base where typtype <> 'd'
"""
_TIMES = frozenset({"date", "time without time zone", "timestamp without time zone"})
_OTHERS = frozenset({"time with time zone", "money", "bit", "bit varying"})


def condition(database: Database, publication: str, name: str, keys: list[dict[str, Any]], records: Records) -> str:
    """Return a condition in SQL that is true of the rows with these keys, as records have them.

    Raises NeedsOperator for a table that cannot be copied, and for keys that are not its own.
    """
    table = describe(database, publication, name)
    bases = dict(database.rows(_BASES, table.oid))
    for column in table.key_names:
        base = bases[column]
        if _has_form(base, records):
            raise unclear(name, f"{column!r} is written in one of Debezium's forms")
    check_keys(name, keys, table.key_names)
    return one_of(
        table.compared, [[_text(key[column], bases[column], name) for column in table.key_names] for key in keys]
    )


def _has_form(base: str, records: Records) -> bool:
    """Whether values of a type are written in a form from which its text is not made again."""
    return (
        (base == "numeric" and records.decimal != "string")
        or (base in _TIMES and records.time != "iso")
        or (base == "bytea" and records.binary != "base64")
        or (base == "interval" and records.interval != "text")
        or (records.types == "debezium" and (base in _OTHERS or base.endswith("[]")))
    )


def _text(value: Any, base: str, name: str) -> str:
    """Return a value as the type's input function takes it."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str() if base == "bytea":
            try:
                return "\\x" + base64.b64decode(value, validate=True).hex()
            except binascii.Error as error:
                raise unclear(name, "a value is not in base64") from error
        case str() if "\0" not in value:
            return value
    raise unclear(name, "a value cannot be one of a key")
