"""Every type, from a database's redo log to silver, proved equal by `headrace verify`: no part writes a value its own way."""

import random
from contextlib import closing

import pytest
from psycopg2.extras import execute_values

from tests.end_to_end.pipeline import Pipeline
from tests.integration.verify_types import RANDOMS, TABLE_OF_EVERY_TYPE, random_row

#: Decimals that are no numbers, with a limit and without.
NOT_NUMBERS = """
    CREATE TABLE not_numbers (id int PRIMARY KEY, limited numeric(9,2), free numeric);
    INSERT INTO not_numbers VALUES (1, 'NaN', 'NaN'), (2, 1.50, 'Infinity'), (3, NULL, '-Infinity'), (4, 'NaN', 'NaN');
    UPDATE not_numbers SET limited = 'NaN', free = '-Infinity' WHERE id = 2;
    UPDATE not_numbers SET limited = 4.25, free = 'Infinity' WHERE id = 4;
"""


@pytest.mark.usefixtures("compiled_queries")
def test_every_type_arrives_as_it_was_committed(pipeline: Pipeline) -> None:
    # Given everything running.
    pipeline.start()
    region = pipeline.regions[0]

    # When rows of every type, ordinary and extreme, are written, changed and removed.
    with region.connection() as connection, closing(connection.cursor()) as cursor:
        cursor.execute(TABLE_OF_EVERY_TYPE)
        cursor.execute(RANDOMS)
        chance = random.Random(20260131)
        execute_values(cursor, "INSERT INTO randoms VALUES %s", [random_row(chance, number) for number in range(1000)])
        cursor.execute("UPDATE randoms SET single = single, words = words || '!' WHERE id % 7 = 0")
        cursor.execute("DELETE FROM randoms WHERE id % 11 = 0")
        cursor.execute(NOT_NUMBERS)
        cursor.execute("UPDATE everything SET id = id + 100, words = NULL WHERE id = 1")
    pipeline.wait_until_drained()
    pipeline.load()

    # Then the lake holds them, bit for bit.
    assert "not equal" not in pipeline.verify()
