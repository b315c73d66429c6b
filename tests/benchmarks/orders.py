"""The workload: orders in a table of eight columns, changed by transactions of 40 inserts, 8 updates and 2 deletes.

The old row goes whole into the log (REPLICA IDENTITY FULL), so an update carries sixteen values. The rows are made inside the
server, to be quick; the log is the same as if clients had sent them.
"""

from typing import Any

TABLE = "public.orders"
CHANGES_PER_TRANSACTION = 50
#: Updates go to rows of the transaction whose number is the next lower multiple of five.
_FIRST = 5

_TABLE = """
    CREATE TABLE orders (
        id bigint PRIMARY KEY,
        customer_id integer NOT NULL,
        sku text NOT NULL,
        quantity integer NOT NULL,
        price numeric(12, 2) NOT NULL,
        status text NOT NULL,
        note text,
        placed_at timestamptz NOT NULL
    );
    ALTER TABLE orders REPLICA IDENTITY FULL;
"""
# The procedure commits, so it is called outside any transaction.
_PROCEDURE = """
    CREATE PROCEDURE fill(first_transaction integer, last_transaction integer) LANGUAGE plpgsql AS $$
    DECLARE base bigint;
    BEGIN
        FOR number IN first_transaction..last_transaction LOOP
            base := number::bigint * 40;
            INSERT INTO orders
            SELECT base + i, (base + i) % 9973, 'SKU-' || lpad(((base + i) * 7919 % 100000)::text, 6, '0'), 1 + i % 9,
                   ((base + i) % 100000) / 100.0, 'placed',
                   CASE i % 10 WHEN 0 THEN NULL WHEN 1 THEN E'said "leave it at the door"\\n' || number
                               ELSE 'to be delivered between nine and five, ring twice, floor ' || i END,
                   clock_timestamp()
            FROM generate_series(0, 39) AS i;
            UPDATE orders SET status = 'shipped', quantity = quantity + 1
            WHERE id = ANY (ARRAY(SELECT base - 40 * (number % 5) + 2 * i + 1 FROM generate_series(1, 8) AS i));
            DELETE FROM orders WHERE id IN (base + 2, base + 38);
            COMMIT;
        END LOOP;
    END $$
"""


def create(connection: Any) -> None:
    """Make the table."""
    with connection.cursor() as cursor:
        cursor.execute(_TABLE)
        cursor.execute(_PROCEDURE)


def fill(connection: Any, changes: int) -> None:
    """Commit so many changes, fifty in each transaction, into an empty table."""
    with connection.cursor() as cursor:
        # Only the making is hurried: nothing here is lost by a crash, for none comes.
        cursor.execute("SET synchronous_commit = off")
        cursor.execute("CALL fill(%s, %s)", (_FIRST, _FIRST - 1 + changes // CHANGES_PER_TRANSACTION))
        cursor.execute("RESET synchronous_commit")
