"""Fixtures: a bank in a database and in the lake, and what verify says of the two."""

import pytest

from headrace.verify.postgres.database import SourceDatabase
from spark_jobs.verify import verify as verification
from spark_jobs.verify.verify import verify
from tests.lake.verify_sides import SOURCE, Frames, address


@pytest.fixture
def verified(database):
    """Return a function that verifies the test's database against frames named `schema__table`."""

    def run(tables=(), **frames):
        with SourceDatabase.connect(SOURCE, address(database.dsn)) as source:
            return {report.table: report for report in verify(SOURCE, source, Frames(**frames), tables)}

    return run


@pytest.fixture
def bank(database):
    database.execute("CREATE TABLE accounts (id int PRIMARY KEY, name text, balance numeric(10,2))")
    database.execute("INSERT INTO accounts SELECT n, 'name ' || n, n + 0.25 FROM generate_series(1, 500) n")
    return database


@pytest.fixture
def in_lake(spark):
    """Return a function that gives the rows of the bank's accounts as Spark has them, with some replaced."""

    def make(**replaced):
        changes = {int(name.removeprefix("row")): expression for name, expression in replaced.items()}
        balance = "".join(f"WHEN id = {row} THEN {value} " for row, value in changes.items() if value is not None)
        return (
            spark.range(1, 501)
            .selectExpr(
                "cast(id as int) AS id",
                "concat('name ', id) AS name",
                f"cast(CASE {balance} ELSE id + 0.25 END AS decimal(10,2)) AS balance"
                if balance
                else "cast(id + 0.25 AS decimal(10,2)) AS balance",
            )
            .where(f"id NOT IN ({', '.join(str(row) for row, value in changes.items() if value is None) or 0})")
        )

    return make


@pytest.fixture
def small_ranges(monkeypatch):
    """Cut tables into ranges of 1,000 rows."""
    monkeypatch.setattr(verification, "_ROWS", 1000)
