"""What is asked of the catalog: the publication, and primary keys that the replica identity does not show.

A publication is checked when a session begins and every few seconds. A primary key is asked for when a table whose columns all
mark themselves as key, or none, is announced in the log. The answer is the catalog's of now: a key that was changed after the
change was written is seen as it is now, and a table that was dropped meanwhile has no key. A deferrable primary key is none:
within a transaction two rows may have the same one, so records by it could replace another row's. PostgreSQL does not take it as
replica identity either.
"""

from collections.abc import Mapping

from edge.postgres.checkpoint import PostgresCheckpoint
from edge.postgres.connection import Database
from edge.postgres.errors import ANEW, quoted
from edge.postgres.relations import Relation
from headrace.errors import NeedsOperator


def publication_oid(database: Database, name: str) -> int:
    """Return the oid of a publication, 0 when there is none."""
    return database.value("select oid::int8 from pg_publication where pubname = %s", name) or 0


def make_publication(database: Database, name: str, tables: list[str], row_filters: Mapping[str, str]) -> None:
    """Make a publication of the listed tables, `schema.table`, or of all tables when none is listed.

    `row_filters` are conditions by table: rows that do not meet theirs never leave the server. Raises NeedsOperator when a
    table does not exist, or when the user may not.
    """
    listed = ", ".join(
        ".".join(map(quoted, table.split(".", 1))) + (f" where ({row_filters[table]})" if table in row_filters else "")
        for table in tables
    )
    database.rows(f"create publication {quoted(name)} for " + (f"table {listed}" if tables else "all tables"))


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
        hint=ANEW,
    )


_KEY = """
select array_agg(a.attname::text order by k.ordinality)
from pg_index i
cross join lateral unnest(i.indkey::int2[]) with ordinality k(attnum, ordinality)
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
where i.indrelid = %s::int8::oid and i.indisprimary and i.indimmediate and k.ordinality <= i.indnkeyatts
"""


class PrimaryKeys:
    """Asks the database on a connection of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def primary_key(self, relation: Relation) -> list[str]:
        """Return the names of a table's key columns in key order; none for a table without a primary key that holds at once."""
        names: list[str] = self._database.value(_KEY, relation.oid) or []
        return names
