"""A table as a chunk is read from it: what the stream publishes of it, its key, and the messages that announce it.

Everything comes from the catalog, and equals what pgoutput sends in Relation and Type messages, so that a chunk's rows and the
log's changes are of one relation. Column lists, row filters, generated columns and partitions are as the publication has them.
A table that cannot be copied raises NeedsOperator with what to do.
"""

import struct
from dataclasses import dataclass
from typing import Any

from edge.postgres.connection import Database
from edge.postgres.errors import quoted
from edge.postgres.key_order import KeyColumn, KeyIndex, behind, described, find_keys, literal, one_of, ordered
from edge.postgres.relations import FIRST_NAMED_TYPE
from edge.snapshot.chunk_reader import where_clause
from edge.snapshot.plan import Key
from headrace.errors import NeedsOperator

_PUBLISHED = "select schemaname || '.' || tablename from pg_publication_tables where pubname = %s order by 1"
_PARTITIONS = """
select pn.nspname || '.' || p.relname, n.nspname || '.' || c.relname
from pg_class p
join pg_namespace pn on pn.oid = p.relnamespace
cross join lateral pg_partition_tree(p.oid) t
join pg_class c on c.oid = t.relid
join pg_namespace n on n.oid = c.relnamespace
join pg_publication_tables pub on pub.schemaname = n.nspname and pub.tablename = c.relname
where pn.nspname || '.' || p.relname = any(%s) and p.relkind = 'p' and t.isleaf and pub.pubname = %s
order by 2
"""
_TABLE = """
select c.oid::int8, n.nspname::text, c.relname::text, c.relkind::text, c.relreplident::text, p.oid::int8
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join pg_publication_tables t on t.schemaname = n.nspname and t.tablename = c.relname and t.pubname = %s
left join pg_publication p on p.pubname = t.pubname
where n.nspname || '.' || c.relname = %s and c.relkind in ('r', 'p')
"""
#: Since PostgreSQL 15 a publication may list columns and filter rows.
_LISTED = """
select attnames::text[], rowfilter from pg_publication_tables
where pubname = %s and schemaname = %s and tablename = %s
"""
_COLUMNS = """
select a.attnum::int, a.attname::text, a.atttypid::int8, a.atttypmod, format_type(a.atttypid, a.atttypmod), a.attgenerated <> ''
from pg_attribute a
where a.attrelid = %s::int8::oid and a.attnum > 0 and not a.attisdropped
order by a.attnum
"""
_DEFERRABLE = (
    "select exists (select from pg_index where indrelid = %s::int8::oid and indisprimary and not indimmediate)"
)
_TYPES = """
with recursive base as (
    select t.oid as named, t.oid, t.typtype, t.typbasetype from pg_type t where t.oid = any(%s::int8[]::oid[])
    union all
    select b.named, t.oid, t.typtype, t.typbasetype from base b join pg_type t on b.typtype = 'd' and t.oid = b.typbasetype
)
select b.named::int8, n.nspname::text, t.typname::text
from base b join pg_type t on t.oid = b.oid join pg_namespace n on n.oid = t.typnamespace
where b.typtype <> 'd'
"""
#: What makes a chunk fit the table: read in the chunk's own transaction, and again after it.
_SHAPE = """
select md5(concat_ws('|', c.relname, c.relnamespace, c.relreplident, c.relfilenode, (
    select string_agg(
        concat_ws(' ', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attisdropped, a.attgenerated), ',' order by a.attnum
    )
    from pg_attribute a where a.attrelid = c.oid and a.attnum > 0
), (
    select string_agg(concat_ws(' ', i.indexrelid, i.indisprimary, i.indisreplident), ',' order by i.indexrelid)
    from pg_index i where i.indrelid = c.oid and (i.indisprimary or i.indisreplident)
), (
    select string_agg(concat_ws(' ', r.prrelid, r.prattrs, r.prqual), ',' order by r.prrelid)
    from pg_publication_rel r
    where r.prpubid = p.oid and r.prrelid in (select c.oid union all select relid from pg_partition_ancestors(c.oid))
), p.pubviaroot, to_jsonb(p) -> 'pubgencols'))
from pg_publication p cross join pg_class c where p.oid = %s::int8::oid and c.oid = %s::int8::oid
"""


@dataclass(frozen=True, kw_only=True)
class SnapshotTable:
    """A table that can be copied."""

    oid: int
    publication_oid: int
    #: How many columns are published, and their names in SQL.
    count: int
    selected: str
    #: Where the key's columns are among them, their names, and how SQL compares them.
    key: tuple[int, ...]
    key_names: tuple[str, ...]
    compared: tuple[KeyColumn, ...]
    #: The table in SQL, with its row filter.
    source: str
    row_filter: str | None
    #: Type and Relation messages.
    messages: tuple[bytes, ...]
    #: A sum over all that a chunk has to fit.
    shape: str

    @property
    def order(self) -> str:
        """By what rows are ordered, with types and collations: behind a key of another order are other rows."""
        return f"{described(self.compared)} ({', '.join(column.cast for column in self.compared)})"

    def is_still(self, database: Database) -> bool:
        """Whether the table is as described."""
        return shape(database, self.oid, self.publication_oid) == self.shape

    def select_after(self, where: str | None, after: Key | None, count: int) -> str:
        """Return the statement that copies rows behind a key, in key order."""
        parts = behind(self.compared, after) if after is not None else [None]
        return self._copy([[self.row_filter, where, part] for part in parts], f" limit {count}")

    def select_between(self, first: str, before: int) -> str:
        """Return the statement that copies rows by their places, from one on up to a block, each place ahead of its row."""
        there = f"ctid >= {literal(first)} and ctid < '({before},0)'"
        conditions = where_clause([self.row_filter, there])
        return f"copy (select ctid, {self.selected} from {self.source}{conditions}) to stdout"  # noqa: S608 - as in _copy.

    def select_keys(self, where: str | None, keys: list[Key]) -> str:
        """Return the statement that copies the rows of these keys."""
        return self._copy([[self.row_filter, where, one_of(self.compared, keys)]])

    def estimate(self, where: str | None) -> str:
        """Return the statement that estimates how many rows there are."""
        return f"explain (format json) select 1 from {self.source}{where_clause([self.row_filter, where])}"  # noqa: S608

    def _copy(self, parts: list[list[str | None]], rest: str = "") -> str:
        # Names are quoted, values are literals; a condition is the operator's own.
        rest = f" order by {ordered(self.compared)}{rest}"
        selects = [f"select {self.selected} from {self.source}{where_clause(part)}{rest}" for part in parts]  # noqa: S608
        if len(selects) > 1:
            # Each is read by the index. The server does not see that they are ordered together, and sorts a few chunks' rows.
            selects = [f"select * from (({') union all ('.join(selects)})) parts{rest}"]  # noqa: S608
        return f"copy ({selects[0]}) to stdout"


def shape(database: Database, oid: int, publication_oid: int) -> str | None:
    """Return a sum over all that a chunk has to fit; None when the table is gone."""
    text: str | None = database.value(_SHAPE, publication_oid, oid)
    return text


def published(database: Database, publication: str) -> list[str]:
    """Return the tables that a publication carries, by the names that the stream uses."""
    return [name for (name,) in database.rows(_PUBLISHED, publication)]


def named(database: Database, publication: str, names: list[str]) -> list[str]:
    """Return the names under which tables are published: their own, or those of their partitions; of others their own."""
    carried = set(published(database, publication))
    others = [name for name in names if name not in carried]
    leaves: dict[str, list[str]] = {}
    for name, leaf in database.rows(_PARTITIONS, others, publication) if others else []:
        leaves.setdefault(name, []).append(leaf)
    return [leaf for name in names for leaf in leaves.get(name, [name])]


def describe(database: Database, publication: str, name: str) -> SnapshotTable:
    """Return a table by its name, `schema.table`; raise NeedsOperator when it cannot be copied."""
    rows = database.rows(_TABLE, publication, name)
    if not rows:
        raise NeedsOperator(
            f"table {name} does not exist", hint="Check its name: schema.table, as the database has it."
        )
    oid, schema, table, kind, identity, publication_oid = rows[0]
    if publication_oid is None:
        raise NeedsOperator(
            f"table {name} is not in publication {publication!r}: its changes would be missing",
            hint=f"Add it first: alter publication {quoted(publication)} add table {quoted(schema)}.{quoted(table)};",
        )
    before = shape(database, oid, publication_oid)
    listed, row_filter = None, None
    if database.version >= 150_000:
        listed, row_filter = database.rows(_LISTED, publication, schema, table)[0]
    # Before PostgreSQL 18 no generated column is published, whatever the view lists.
    generated = database.version >= 180_000
    columns = [
        column
        for column in database.rows(_COLUMNS, oid)
        if (generated or not column[5]) and (listed is None or column[1] in listed)
    ]
    numbers = [column[0] for column in columns]
    primary, replica = find_keys(database, oid)
    key = replica if identity == "i" else primary
    if key is None and database.value(_DEFERRABLE, oid):
        raise NeedsOperator(
            f"the primary key of {name} is deferrable: two rows may have the same one for a moment, so it does not identify rows",
            hint="Make it one that is not deferrable, or give the table a unique index over columns that are not null: "
            "alter table … replica identity using index …; then request the snapshot again.",
        )
    if key is None and kind == "p":
        raise NeedsOperator(
            f"table {name} has no key, and is published with its partitions' rows as its own: they are of no one moment",
            hint="Give it a primary key, or let the publication carry the partitions: publish_via_partition_root = false; "
            "then request the snapshot again.",
        )
    if key is not None and not set(key) <= set(numbers):
        raise NeedsOperator(
            f"table {name} has no key that is published, so its rows cannot be distinguished",
            hint="Give it a primary key, or a unique index over columns that are not null: alter table … replica identity "
            "using index …; then request the snapshot again.",
        )
    by_number = {column[0]: column for column in columns}
    keyed = [(by_number[number], index) for number, index in (key or {}).items()]
    return SnapshotTable(
        oid=oid,
        publication_oid=publication_oid,
        count=len(columns),
        selected=", ".join(quoted(column[1]) for column in columns),
        key=tuple(numbers.index(column[0]) for column, _ in keyed),
        key_names=tuple(column[1] for column, _ in keyed),
        compared=tuple(KeyColumn.of(column[1], column[4], index) for column, index in keyed),
        # Other tables that inherit from this one are published by themselves.
        source=("" if kind == "p" else "only ") + f"{quoted(schema)}.{quoted(table)}",
        row_filter=row_filter,
        messages=(
            *_type_messages(database, [column[2] for column in columns]),
            _relation_message(oid, schema, table, identity, columns, _identity(identity, primary, replica)),
        ),
        shape=before or "",
    )


def _identity(identity: str, primary: KeyIndex | None, replica: KeyIndex | None) -> set[int] | None:
    """Return the columns that a Relation message flags; None for all."""
    if identity == "f":
        return None
    index = {"d": primary, "i": replica}.get(identity)
    return set(index or ())


def _relation_message(
    oid: int, schema: str, table: str, identity: str, columns: list[tuple[Any, ...]], flagged: set[int] | None
) -> bytes:
    """Byte1('R') Int32(oid) String(namespace) String(name) Int8(identity) Int16(columns) and the columns.

    For each column Int8(flags) String(name) Int32(type) Int32(modifier).
    """
    message = b"R" + struct.pack(">I", oid) + _string(schema) + _string(table)
    message += identity.encode() + struct.pack(">H", len(columns))
    for number, name, type_oid, modifier, _, _ in columns:
        flags = flagged is None or number in flagged
        message += bytes([flags]) + name.encode() + b"\0" + struct.pack(">Ii", type_oid, modifier)
    return message


def _type_messages(database: Database, types: list[int]) -> list[bytes]:
    """Byte1('Y') Int32(oid) String(namespace) String(name): of a domain, the type beneath."""
    oids = sorted({oid for oid in types if oid >= FIRST_NAMED_TYPE})
    rows = database.rows(_TYPES, oids) if oids else []
    return [b"Y" + struct.pack(">I", oid) + _string(schema) + name.encode() + b"\0" for oid, schema, name in rows]


def _string(schema: str) -> bytes:
    """Return a zero-terminated string; the server leaves the name of its own catalog out."""
    return ("" if schema == "pg_catalog" else schema).encode() + b"\0"
