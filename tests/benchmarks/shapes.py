"""Workloads by shape: which tables, how many columns, which replica identity.

Each shape is written by transactions of 50 changes, from inside the server, to be quick: the log is the same as if clients had
sent them. Every column's value is an expression over `i`, the row's number.
"""

from dataclasses import dataclass
from typing import Any

CHANGES_PER_TRANSACTION = 50


@dataclass(frozen=True)
class Table:
    """A table with the key `id bigint`, and what one transaction does to it."""

    name: str
    #: Column definitions and the values of an inserted row.
    columns: tuple[tuple[str, str], ...]
    #: What an update sets.
    update: str
    inserts: int = 3
    updates: int = 1
    deletes: int = 1


@dataclass(frozen=True)
class Shape:
    """Tables that one transaction changes together."""

    name: str
    tables: tuple[Table, ...]

    def create(self, connection: Any) -> None:
        """Make the tables, and the procedure that fills them."""
        with connection.cursor() as cursor:
            for table in self.tables:
                columns = "".join(f", {definition}" for definition, _ in table.columns)
                cursor.execute(f"CREATE TABLE {table.name} (id bigint PRIMARY KEY{columns})")
            body = "\n".join(_statements(table) for table in self.tables)
            # The procedure commits, so it is called outside any transaction.
            cursor.execute(
                "CREATE PROCEDURE fill(transactions integer) LANGUAGE plpgsql AS $$ BEGIN "
                f"FOR nth IN 1..transactions LOOP {body} COMMIT; END LOOP; END $$"
            )

    def fill(self, connection: Any, changes: int) -> None:
        """Commit so many changes, fifty in each transaction, into empty tables."""
        with connection.cursor() as cursor:
            cursor.execute("SET synchronous_commit = off")
            cursor.execute("CALL fill(%s)", (changes // CHANGES_PER_TRANSACTION,))
            cursor.execute("RESET synchronous_commit")


def _statements(table: Table) -> str:
    values = "".join(f", {value}" for _, value in table.columns)
    base, last = f"nth::bigint * {table.inserts}", table.inserts - table.deletes
    return (
        f"INSERT INTO {table.name} SELECT {base} + i{values} FROM generate_series(0, {table.inserts - 1}) AS i; "
        f"UPDATE {table.name} SET {table.update} WHERE id BETWEEN {base} AND {base} + {table.updates - 1}; "
        f"DELETE FROM {table.name} WHERE id BETWEEN {base} + {last} AND {base} + {table.inserts - 1};"
    )


_NAME = "'name ' || i * 7919 % 1000"
MIXED = Shape(
    "ten tables of different shapes, default identity",
    (
        Table("pairs", (("value text", _NAME),), "value = 'changed'"),
        Table(
            "readings",
            (("at timestamptz", "clock_timestamp()"), ("celsius float8", "i / 7.0"), ("valid bool", "i % 2 = 0")),
            "celsius = 0",
        ),
        Table(
            "accounts",
            (
                ("number uuid", "gen_random_uuid()"),
                ("balance numeric(18, 4)", "i * 12345.6789"),
                ("settings jsonb", """'{"currency": "IDR", "limits": [10, 20]}'"""),
            ),
            "balance = balance + 1",
        ),
        Table("documents", (("title text", _NAME), ("body text", "repeat('a page of text, ', 60)")), "title = 'new'"),
        Table("flags", tuple((f"flag{at} bool", f"i % {at + 2} = 0") for at in range(12)), "flag0 = true"),
        Table("blobs", (("content bytea", "decode(repeat('00ff', 100), 'hex')"),), "content = 'x'"),
        Table(
            "events",
            (
                ("kind varchar(20)", "'clicked'"),
                ("payload json", """'{"page": "/", "user": {"id": 1, "name": "a\\"b"}}'"""),
            ),
            "kind = 'seen'",
        ),
        Table(
            "visits",
            (
                ("day date", "current_date"),
                ("at time", "localtime"),
                ("seen timestamp", "localtimestamp"),
                ("ip inet", "'10.0.0.1'"),
            ),
            "day = day + 1",
        ),
        Table("people", tuple((f"part{at} varchar(40)", _NAME) for at in range(6)), "part0 = null"),
        Table("sums", tuple((f"sum{at} numeric(20, 2)", f"i * {at + 1}.25") for at in range(8)), "sum0 = 0"),
    ),
)

_WIDE = [
    *((f"count{at} integer", f"i * {at + 1}") for at in range(30)),
    *((f"label{at} text", _NAME) for at in range(30)),
    *((f"price{at} numeric(12, 2)", f"i * {at + 1}.25") for at in range(20)),
    *((f"at{at} timestamptz", "clock_timestamp()") for at in range(19)),
]
WIDE = Shape(
    "rows of 100 columns, default identity",
    (Table("wide", tuple(_WIDE), "count0 = 0, label0 = 'changed'", inserts=40, updates=8, deletes=2),),
)
