"""Writes at a steady rate and notes when each COMMIT returned; a process of its own, so that timing disturbs nobody.

Arguments: DSN, transactions a second, changes a transaction, seconds. Prints a line for each transaction: its number and the
monotonic clock, which all processes of a machine share, right after COMMIT returned. The pace does not wait for slow ones.
"""

import sys
import time

import psycopg2

_INSERT = """
    INSERT INTO orders
    SELECT %(number)s::bigint * 1000 + i, i, 'tx' || %(number)s, 1, 12.50, 'placed', 'at a steady rate', clock_timestamp()
    FROM generate_series(1, %(changes)s) AS i
"""


def main(dsn: str, rate: int, changes: int, seconds: int) -> None:
    """Write."""
    connection = psycopg2.connect(dsn)
    returned = []
    with connection.cursor() as cursor:
        begun = time.monotonic()
        for number in range(rate * seconds):
            time.sleep(max(0.0, begun + number / rate - time.monotonic()))
            cursor.execute(_INSERT, {"number": number, "changes": changes})
            connection.commit()
            returned.append(time.monotonic())
    print("\n".join(f"{number} {moment!r}" for number, moment in enumerate(returned)))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
