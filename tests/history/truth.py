"""The truth about one database: a `test_decoding` slot of the test's own, read back by SQL when the writers have stopped.

Assumes that the slot is made before the first change and that the edge captures every table. Reading it moves nothing, so
it can be read again.
"""

from typing import Any

from tests.history.decoding import transactions
from tests.history.transactions import Row, Transaction, value

SLOT = "truth"

_READ = """
    SELECT lsn::text, data
    FROM pg_logical_slot_peek_changes(%s, NULL, NULL, 'include-timestamp', '1', 'skip-empty-xacts', '1')
"""
_COLUMNS = """
    SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_KEYS = """
    SELECT n.nspname || '.' || c.relname, a.attname
    FROM pg_index i
    JOIN pg_class c ON c.oid = i.indrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
    WHERE i.indisprimary AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
    ORDER BY 1, k.place
"""


def begin(connection: Any, slot: str = SLOT) -> None:
    """Make the slot: from here on the truth is kept."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", (slot,))


def committed(connection: Any, slot: str = SLOT) -> list[Transaction]:
    """Return all that was committed since `begin`, in commit order."""
    with connection.cursor() as cursor:
        cursor.execute("SET datestyle = 'ISO, YMD'; SET timezone = 'UTC'; SET bytea_output = 'hex'")
        cursor.execute(_READ, (slot,))
        return list(transactions(cursor.fetchall()))


def keys(connection: Any) -> dict[str, tuple[str, ...]]:
    """Return the primary key of each table that has one, `schema.table` to columns in key order."""
    results: dict[str, tuple[str, ...]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_KEYS)
        for table, column in cursor.fetchall():
            results[table] = (*results.get(table, ()), column)
    return results


def stored(connection: Any, table: str) -> list[Row]:
    """Return a table's rows as they are now, in the form of records."""
    with connection.cursor() as cursor:
        cursor.execute("SET datestyle = 'ISO, YMD'; SET timezone = 'UTC'; SET bytea_output = 'hex'")
        cursor.execute(_COLUMNS, (table,))
        columns = cursor.fetchall()
        # A cast would not print every type as its own output function does.
        texts = ", ".join(
            f'"{name}"::text'
            if kind == "boolean"
            else f"""CASE WHEN "{name}" IS NOT NULL THEN format('%s', "{name}") END"""
            for name, kind in columns
        )
        cursor.execute(f"SELECT {texts} FROM {table}")
        return [
            {name: value(kind, text) for (name, kind), text in zip(columns, row, strict=True)}
            for row in cursor.fetchall()
        ]
