"""What is read from the catalog: the publication, and what the log does not have of tables: primary keys, columns, enum labels.

A publication is checked when a session begins and every few seconds. A primary key is read when a table whose columns all mark
themselves as key, or none, is announced in the log. The catalog has the present state: a key that was altered after the change
was written is seen as it is now, and a table that was dropped has no key. A deferrable primary key is none: within a transaction
two rows may have the same one, so records by it could replace another row's. PostgreSQL does not take it as replica identity
either.

Columns are read when a table is announced that is not known, or is not as it was (edge/snapshot/table_history.py): their numbers
last through renaming, and it is known which rows have values in them. So are the tables that a table is a partition of, whose
policy is its own; what was seen of that is kept, as the log may have changes of a partition that is none any more.
"""

import logging
from collections.abc import Iterator

from edge.postgres.checkpoint import PostgresCheckpoint
from edge.postgres.connection import Database
from edge.postgres.errors import CAPTURE_AGAIN
from edge.postgres.relations import Relation
from edge.records.alterations import Catalog, Published
from edge.records.column_policy import PolicyTable
from headrace.errors import NeedsOperator

_log = logging.getLogger(__name__)


def publication_oid(database: Database, name: str) -> int:
    """Return the oid of a publication, 0 when there is none."""
    return database.value("select oid::int8 from pg_publication where pubname = %s", name) or 0


def check_publication(database: Database, checkpoint: PostgresCheckpoint) -> None:
    """Raise NeedsOperator unless the publication is there, and is the one that `init` found or made."""
    oid = publication_oid(database, checkpoint.publication)
    if oid == checkpoint.publication_oid:
        return
    gone = f"publication {checkpoint.publication!r} " + (
        "was dropped" if oid == 0 else "was dropped and made again since 'init'"
    )
    raise NeedsOperator(
        f"{gone}: changes after {checkpoint.confirmed_lsn} may not have been published",
        hint=CAPTURE_AGAIN,
    )


_PUBLISHED = """
select n.nspname::text, c.relname::text,
    array(select attname::text from pg_attribute where attrelid = c.oid and attnum > 0 and not attisdropped),
    array(
        select a.attname::text
        from pg_index i join pg_attribute a on a.attrelid = c.oid and a.attnum = any(i.indkey::int2[])
        where i.indrelid = c.oid
          and case c.relreplident when 'i' then i.indisreplident else i.indisprimary and i.indimmediate end
    ),
    array(
        select array[above_space.nspname::text, above.relname::text]
        from pg_partition_ancestors(c.oid) as ancestor (oid)
        join pg_class above on above.oid = ancestor.oid join pg_namespace above_space on above_space.oid = above.relnamespace
        where above.oid <> c.oid
    )
from pg_publication_tables p
join pg_namespace n on n.nspname = p.schemaname
join pg_class c on c.relnamespace = n.oid and c.relname = p.tablename
where p.pubname = %s
"""


def published_columns(database: Database, publication: str) -> Iterator[PolicyTable]:
    """Yield the tables of a publication, and those that they are partitions of, with columns and key."""
    for schema, name, columns, key, above in database.rows(_PUBLISHED, publication):
        for of, table in ((schema, name), *above):
            yield PolicyTable(of, table, columns, key)


_KEY = """
select array_agg(a.attname::text order by k.ordinality)
from pg_index i
cross join lateral unnest(i.indkey::int2[]) with ordinality k(attnum, ordinality)
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
where i.indrelid = %s::int8::oid and i.indisprimary and i.indimmediate and k.ordinality <= i.indnkeyatts
"""


def primary_key(database: Database, relation: Relation) -> list[str]:
    """Return the names of a table's key columns in key order; none for a table without a primary key that holds at once."""
    names: list[str] = database.value(_KEY, relation.oid) or []
    return names


# A default that was dropped since is still there for rows of before (`atthasmissing`), unless the table was written again.
_COLUMNS = """
select attname::text, attnum::int, atthasdef or atthasmissing or attidentity <> '' or attgenerated <> '', relnatts::int,
       attnotnull
from pg_attribute join pg_class c on c.oid = attrelid
where attrelid = %s::int8::oid and attnum > 0 and not attisdropped
"""
_TABLES = """
select c.oid::int8::text, n.nspname || '.' || c.relname
from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.relkind in ('r', 'p')
"""
_LABELS = "select enumtypid::regtype::text, oid::int8::text, enumlabel::text from pg_enum order by 1, 2"


def columns_of(database: Database, relation: Relation) -> Catalog | None:
    """Return what the catalog has of a table's columns; None where it has others by now."""
    rows = database.rows(_COLUMNS, relation.oid)
    catalog = Catalog(
        {name: number for name, number, *_ in rows},
        {name: bool(is_filled) for name, _, is_filled, *_ in rows},
        # Columns that were dropped count: numbers are not used again.
        max((newest for _, _, _, newest, _ in rows), default=0),
        frozenset(name for name, *_, is_required in rows if is_required),
    )
    return catalog if all(column.name in catalog.numbers for column in relation.columns) else None


def enum_labels(database: Database) -> dict[str, dict[str, str]]:
    """Return the labels of all enum types, each by its OID, which lasts through renaming."""
    labels: dict[str, dict[str, str]] = {}
    for kind, number, label in database.rows(_LABELS):
        labels.setdefault(_name(kind), {})[number] = label
    return labels


def table_names(database: Database) -> dict[str, str]:
    """Return the names `schema.table` of all tables, by OID."""
    return dict(database.rows(_TABLES))


_PUBLISHES = """
select concat_ws(', ', case when pubinsert then 'insert' end, case when pubupdate then 'update' end,
                 case when pubdelete then 'delete' end, case when pubtruncate then 'truncate' end), pubviaroot
from pg_publication where pubname = %s
"""
#: Tables that a publication lists, with what another listing of the same table would have otherwise.
_LISTED = """
select n.nspname || '.' || c.relname,
       concat_ws(' ', r.oid, to_jsonb(r) ->> 'prattrs', md5(to_jsonb(r) ->> 'prqual'))
from pg_publication p join pg_publication_rel r on r.prpubid = p.oid
join pg_class c on c.oid = r.prrelid join pg_namespace n on n.oid = c.relnamespace
where p.pubname = %s
"""
#: The partitions of tables of which partitions arrive under the root's name, with their files. One that was made in another
#: transaction than it became a partition had rows before, which never arrive.
_PARTITIONS = """
select n.nspname || '.' || c.relname, (
    select string_agg(
        t.relid::oid::text || case when i.xmin = own.xmin then '' else '+' end || ':' || p.relfilenode, ' ' order by t.relid::oid
    )
    from pg_partition_tree(c.oid) t
    join pg_inherits i on i.inhrelid = t.relid join pg_class p on p.oid = t.relid join pg_type own on own.oid = p.reltype
)
from pg_publication_tables p
join pg_namespace n on n.nspname = p.schemaname join pg_class c on c.relnamespace = n.oid and c.relname = p.tablename
where p.pubname = %s and c.relkind = 'p'
"""


#: TRUNCATE gives a table and its indexes other files, and so do VACUUM FULL, CLUSTER, and some forms of ALTER TABLE, which keep
#: rows that are older than that. Where a table has none in its first pages, or they cannot be read, it was emptied.
_REWRITTEN_AT = """
select max(age(c.xmin)), has_table_privilege(%s::int8::oid, 'select'), %s::int8::oid::regclass::text
from pg_class c where c.oid = %s::int8::oid or c.oid in (select indexrelid from pg_index where indrelid = %s::int8::oid)
"""


def published(database: Database, name: str, former: Published | None = None) -> Published:
    """Return what a publication publishes, so that what is altered of it is found: the log has no record of that.

    `former`: what it published before, by which partitions that were truncated meanwhile are found.
    """
    rows = database.rows(_PUBLISHES, name)
    if not rows:
        # Who checks the publication finds that.
        return Published("", {}, {})
    kinds, via_root = rows[0]
    partitions = database.rows(_PARTITIONS, name) if via_root else []
    listed = {table: listing or "" for table, listing in database.rows(_LISTED, name)}
    before = former.partitions if former is not None else {}
    files_of = {table: _with_emptied(database, before.get(table, ""), files or "") for table, files in partitions}
    return Published(f"{kinds}; {via_root}", listed, files_of)


def _with_emptied(database: Database, former: str, files: str) -> str:
    """Return partitions with, behind each one's file, the file with which it was last seen to be empty, or seen at all."""
    before = dict(entry.partition(":")[::2] for entry in former.split())
    entries = []
    for entry in files.split():
        number, _, file = entry.partition(":")
        was, _, emptied = before.get(number, "").partition(":")
        if not was or (was != file and _is_emptied(database, int(number.rstrip("+")))):
            emptied = file
        entries.append(f"{number}:{file}:{emptied}")
    return " ".join(entries)


def _is_emptied(database: Database, oid: int) -> bool:
    """Return whether a table whose file is another one than before has no row of before."""
    ((age, is_readable, name),) = database.rows(_REWRITTEN_AT, oid, oid, oid, oid)
    if not is_readable or age is None:
        return True
    kept = f"select exists (select from only {name} where ctid < '(64,0)'::tid and age(xmin) > {int(age)})"  # noqa: S608
    return not database.value(kept)


#: The table itself, and all that it is a partition of or inherits from.
_LINEAGE = """
with recursive lineage as (
    select oid, oid = %s::int8::oid as is_own from pg_class where oid = %s::int8::oid
    union select i.inhparent, false from lineage l join pg_inherits i on i.inhrelid = l.oid
)
select l.is_own, n.nspname::text, c.relname::text
from lineage l join pg_class c on c.oid = l.oid join pg_namespace n on n.oid = c.relnamespace
"""
_ABOVE = """
with recursive lineage as (
    select inhrelid as oid, inhparent as above from pg_inherits
    union select l.oid, i.inhparent from lineage l join pg_inherits i on i.inhrelid = l.above
)
select n.nspname || '.' || c.relname, array_agg(an.nspname || '.' || a.relname)
from lineage l join pg_class c on c.oid = l.oid join pg_namespace n on n.oid = c.relnamespace
join pg_class a on a.oid = l.above join pg_namespace an on an.oid = a.relnamespace
group by 1
"""


class Lineages:
    """The tables that each table is a partition of, or inherits from; kept over sessions."""

    def __init__(self) -> None:
        self._seen: dict[int, set[tuple[str, str]]] = {}

    def above(self, database: Database, relation: Relation) -> list[tuple[str, str]] | None:
        """Return schema and name of all that were ever seen above a table, in order; None for a table that was never seen."""
        rows = database.rows(_LINEAGE, relation.oid, relation.oid)
        if rows:
            self._seen.setdefault(relation.oid, set()).update(
                (schema, name) for is_own, schema, name in rows if not is_own
            )
        seen = self._seen.get(relation.oid)
        if seen is None:
            _log.warning(
                "table %s.%s was dropped, so it is not known whether it was a partition of one that [policy] names: nothing of "
                "it leaves where exclude_tables is given, and rules hold for columns of the same name in any table",
                relation.schema,
                relation.table,
            )
        return sorted(seen) if seen is not None else None


def tables_above(database: Database) -> dict[str, list[str]]:
    """Return the tables, `schema.table`, that each table is a partition of or inherits from; none for one that is neither."""
    return dict(database.rows(_ABOVE))


def _name(kind: str) -> str:
    """Return a type's name as the log announces it: without its schema and without quotes."""
    return kind.rpartition(".")[2].strip('"')
