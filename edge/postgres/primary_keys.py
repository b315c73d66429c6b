"""Primary keys, for tables whose replica identity does not tell them: all columns mark themselves, or none.

Asked when a table is announced in the log. The answer is the catalog's of now: a key that was changed after the change was
written is seen as it is now, and a table that was dropped meanwhile has no key. A deferrable primary key is none: within a
transaction two rows may have the same one, so records by it could replace another row's. PostgreSQL does not take it as
replica identity either.
"""

from edge.postgres.connection import Database
from edge.postgres.relations import Relation

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
