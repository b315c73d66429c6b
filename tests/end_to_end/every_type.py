"""Rows of every type, ordinary and extreme, written, changed and removed at one region: no part writes a value its own way."""

import random
from contextlib import closing

from psycopg2.extras import execute_values

from tests.end_to_end.pipeline import Region
from tests.integration.verify.verify_types import RANDOMS, TABLE_OF_EVERY_TYPE, random_row

#: Decimals that are no numbers, with a limit and without.
_NOT_NUMBERS = """
    CREATE TABLE not_numbers (id int PRIMARY KEY, limited numeric(9,2), free numeric);
    INSERT INTO not_numbers VALUES (1, 'NaN', 'NaN'), (2, 1.50, 'Infinity'), (3, NULL, '-Infinity'), (4, 'NaN', 'NaN');
    UPDATE not_numbers SET limited = 'NaN', free = '-Infinity' WHERE id = 2;
    UPDATE not_numbers SET limited = 4.25, free = 'Infinity' WHERE id = 4;
"""
#: The tables that there are afterwards.
TABLES = {"public.everything", "public.randoms", "public.not_numbers"}


def write_every_type(region: Region) -> None:
    """Make the tables, and write to them."""
    with region.connection() as connection, closing(connection.cursor()) as cursor:
        cursor.execute(TABLE_OF_EVERY_TYPE)
        cursor.execute(RANDOMS)
        chance = random.Random(20260131)
        execute_values(cursor, "INSERT INTO randoms VALUES %s", [random_row(chance, number) for number in range(1000)])
        cursor.execute("UPDATE randoms SET single = single, words = words || '!' WHERE id % 7 = 0")
        cursor.execute("DELETE FROM randoms WHERE id % 11 = 0")
        cursor.execute(_NOT_NUMBERS)
        cursor.execute("UPDATE everything SET id = id + 100, words = NULL WHERE id = 1")
