"""A table's columns as the catalog has them now: their numbers, which last through renaming, and which rows get values in them.

Queried when a table is announced that is not known, or is not as it was. Called through edge/snapshot/table_history.py.
"""

from edge.postgres.connection import Database
from edge.postgres.relations import Relation
from edge.records.alterations import Catalog

# A default that was dropped since is still there for rows of before (`atthasmissing`), unless the table was written again.
_COLUMNS = """
select attname::text, attnum::int, atthasdef or atthasmissing or attidentity <> '' or attgenerated <> '', relnatts::int
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
        {name: number for name, number, _, _ in rows},
        {name: bool(is_filled) for name, _, is_filled, _ in rows},
        # Columns that were dropped count: numbers are not used again.
        max((newest for _, _, _, newest in rows), default=0),
    )
    return catalog if all(column.name in catalog.numbers for column in relation.columns) else None


def enum_labels(database: Database) -> dict[str, dict[str, str]]:
    """Return the labels of all enum types, each by its OID, which lasts through renaming."""
    found: dict[str, dict[str, str]] = {}
    for kind, number, label in database.rows(_LABELS):
        found.setdefault(_name(kind), {})[number] = label
    return found


def table_names(database: Database) -> dict[str, str]:
    """Return the names `schema.table` of all tables, by OID."""
    return dict(database.rows(_TABLES))


def _name(kind: str) -> str:
    """Return a type's name as the log announces it: without its schema and without quotes."""
    return kind.rpartition(".")[2].strip('"')
