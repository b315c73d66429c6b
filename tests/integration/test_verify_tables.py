"""Each table of a real database against rows in Spark: equal for every type, and every difference found and located."""

import json
import random
from contextlib import closing
from typing import ClassVar

import pytest
from psycopg2.extensions import parse_dsn
from psycopg2.extras import execute_values
from pyspark.sql import functions

from headrace.configuration.postgresql import PostgresqlConnection
from headrace.errors import NeedsOperator, NotConnected
from spark_jobs.verify import verify as verification
from spark_jobs.verify.compare import Difference, Range
from spark_jobs.verify.source import SourceDatabase
from spark_jobs.verify.verify import verify
from tests.integration.verify_types import RANDOMS, SILVER_OF_EVERY_TYPE, TABLE_OF_EVERY_TYPE, random_row

SOURCE = "jakarta/bank"


class Frames:
    """Silver tables that a test made by itself."""

    policy: ClassVar = {}

    def __init__(self, **frames) -> None:
        self._frames = {name.replace("__", "."): frame for name, frame in frames.items()}

    def names(self, source):
        return set(self._frames)

    def frame(self, source, name):
        return self._frames.get(name)

    def treated(self, source, name):
        return self.policy

    def problem(self, name):
        return "its key was changed" if name == "public.stopped" else None


@pytest.fixture
def verified(database):
    """Return a function that verifies the test's database against frames named `schema__table`."""

    def run(table=None, **frames):
        with SourceDatabase.connect(SOURCE, address(database.dsn)) as source:
            return {report.table: report for report in verify(SOURCE, source, Frames(**frames), table)}

    return run


def address(dsn, **changes) -> PostgresqlConnection:
    given = parse_dsn(dsn)
    known = {"host": given["host"], "port": int(given["port"]), "database": given["dbname"], "user": given["user"]}
    return PostgresqlConnection(**(known | changes))


def rows(spark, columns, *values):
    """Return a frame of rows given as SQL; no Python process has to start for them."""
    return spark.sql(f"SELECT * FROM VALUES {', '.join(values)} AS t({columns})")


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


def test_a_table_of_every_type_is_equal(database, spark, verified):
    database.execute(TABLE_OF_EVERY_TYPE)

    found = verified(public__everything=spark.sql(SILVER_OF_EVERY_TYPE))["public.everything"]

    assert (found.equal, found.reasons, found.differences) == (True, [], [])
    assert found.rows_source == found.rows_lake == 7


def test_random_values_have_one_text_in_both_engines(database, spark, verified, tmp_path):
    chance = random.Random(20260131)
    given = [random_row(chance, number) for number in range(1000)]
    database.execute(RANDOMS)
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        execute_values(cursor, "INSERT INTO randoms VALUES %s", given)
    # As text, which is all that JSON keeps exactly.
    names = ("id", "whole", "exact", "single", "double", "words", "day", "local", "instant", "bytes")
    (tmp_path / "rows.json").write_text(
        "\n".join(json.dumps(dict(zip(names, map(as_text, row), strict=True))) for row in given), encoding="utf-8"
    )
    silver = (
        spark.read.schema(", ".join(f"{name} string" for name in names))
        .json(str(tmp_path / "rows.json"))
        .selectExpr(
            *("cast(id AS int) AS id", "cast(whole AS bigint) AS whole", "cast(exact AS decimal(38,18)) AS exact"),
            *(
                "cast(single AS float) AS single",
                "cast(double AS double) AS double",
                "words",
                "cast(day AS date) AS day",
            ),
            *(
                "cast(local AS timestamp_ntz) AS local",
                "cast(instant AS timestamp) AS instant",
                "unhex(bytes) AS bytes",
            ),
        )
    )

    found = verified(public__randoms=silver)["public.randoms"]

    assert found.differences == []
    assert (found.equal, found.rows_lake) == (True, 1000)


def as_text(value):
    return value.hex() if isinstance(value, bytes) else str(value)


@pytest.mark.parametrize(
    ("column", "other"),
    [
        ("whole", "-4"),
        ("exact", "12.5001BD"),
        ("free", "'1.50'"),
        ("single", "float('1.1000001')"),
        ("double", "1.1000000000000003D"),
        ("flag", "false"),
        ("words", "'naïve|~5:é😀 '"),
        ("padded", "'ab'"),
        ("day", "date'2026-02-01'"),
        ("local", "timestamp_ntz'2026-01-31 09:15:00.250001'"),
        ("instant", "timestamp'2026-01-31 07:15:00.249999'"),
        ("bytes", "X'00fe'"),
        ("document", "'{\"a\":1}'"),
        ("words", "null"),
        ("nothing", "''"),
    ],
)
def test_one_value_that_differs_is_found_in_every_type(database, spark, verified, column, other):
    database.execute(TABLE_OF_EVERY_TYPE)
    silver = spark.sql(SILVER_OF_EVERY_TYPE)
    kind = silver.schema[column].dataType.simpleString()
    changed = silver.selectExpr(
        *(
            f"CASE WHEN id = 1 THEN cast({other} AS {kind}) ELSE {name} END AS {name}" if name == column else name
            for name in silver.columns
        )
    )

    found = verified(public__everything=changed)["public.everything"]

    assert not found.equal
    assert found.differences == [Difference(what="differs", key={"id": "1"}, columns=(column,))]


def test_a_changed_digit_a_missing_row_and_an_extra_row_are_each_located(bank, in_lake, verified):
    bank.execute("DELETE FROM accounts WHERE id = 300")

    found = verified(public__accounts=in_lake(row17="17.24", row42=None))["public.accounts"]

    assert (found.equal, found.rows_source, found.rows_lake) == (False, 499, 499)
    assert sorted(found.differences, key=lambda it: it.what) == [
        Difference(what="differs", key={"id": "17"}, columns=("balance",)),
        Difference(what="missing in the lake", key={"id": "42"}),
        Difference(what="only in the lake", key={"id": "300"}),
    ]


@pytest.fixture
def small_ranges(monkeypatch):
    """Cut tables into ranges of 1,000 rows."""
    monkeypatch.setattr(verification, "_ROWS", 1000)


def test_a_row_that_differs_is_located_by_hash_where_the_key_is_text(database, spark, verified, small_ranges):
    database.execute("CREATE TABLE big (region text, id int, v int, PRIMARY KEY (region, id))")
    database.execute("INSERT INTO big SELECT 'r' || n % 3, n, n FROM generate_series(1, 9000) n; ANALYZE big")
    silver = spark.range(1, 9001).selectExpr(
        "concat('r', id % 3) AS region", "cast(id AS int) AS id", "cast(if(id = 1234, 0, id) AS int) AS v"
    )

    found = verified(public__big=silver)["public.big"]

    assert (found.ranges, found.ranges_compared) == (9, 9)
    assert found.differences == [Difference(what="differs", key={"region": "r1", "id": "1234"}, columns=("v",))]
    assert found.complete


def test_ranges_of_the_key_that_differ_are_told_with_the_rows_in_them(database, spark, verified, small_ranges):
    database.execute("CREATE TABLE big (id bigint PRIMARY KEY, v int)")
    database.execute("INSERT INTO big SELECT n, n FROM generate_series(1, 10000) n; ANALYZE big")
    silver = spark.range(1, 10_003).selectExpr("id", "cast(id AS int) AS v").where("id NOT BETWEEN 2500 AND 2600")

    found = verified(public__big=silver)["public.big"]

    assert found.differing == [
        Range(column="id", first=2001, last=3000, rows_source=1000, rows_lake=899),
        Range(column="id", first=9001, last=None, rows_source=1000, rows_lake=1002),
    ]
    assert sum(it.rows for it in found.differences) == 103
    assert found.complete


def test_a_leading_key_column_with_few_values_is_cut_by_hash_below_them(database, spark, verified, small_ranges):
    database.execute("CREATE TABLE big (shop smallint, id int, PRIMARY KEY (shop, id))")
    database.execute("INSERT INTO big SELECT n % 2, n FROM generate_series(1, 5000) n; ANALYZE big")
    silver = (
        spark.range(1, 5001).where("id <> 777").selectExpr("cast(id % 2 AS smallint) AS shop", "cast(id AS int) AS id")
    )

    found = verified(public__big=silver)["public.big"]

    assert found.differences == [Difference(what="missing in the lake", key={"shop": "1", "id": "777"})]
    assert found.complete


def test_keys_at_the_ends_of_their_type_are_compared(database, spark, verified, small_ranges):
    database.execute("CREATE TABLE wide (id bigint PRIMARY KEY)")
    database.execute("INSERT INTO wide VALUES (-9223372036854775808), (0), (9223372036854775807)")
    silver = rows(spark, "id", "(-9223372036854775807 - 1)", "(0L)", "(9223372036854775807)")

    assert verified(public__wide=silver)["public.wide"].equal


def test_a_sample_compares_some_ranges_and_says_how_many(bank, in_lake, database):
    bank.execute("ANALYZE accounts")
    with SourceDatabase.connect(SOURCE, address(database.dsn)) as source:
        (some,) = verify(SOURCE, source, Frames(public__accounts=in_lake()), sample=10)
        (whole,) = verify(SOURCE, source, Frames(public__accounts=in_lake(row42=None)), sample=100)

    assert (some.verdict, some.ranges, some.ranges_compared, some.rows_lake) == ("equal", 100, 10, 50)
    assert whole.differences == [Difference(what="missing in the lake", key={"id": "42"})]
    assert whole.differing == [Range(column="id", first=41, last=45, rows_source=5, rows_lake=4)]


def test_a_table_without_a_key_is_compared_as_rows_that_may_be_equal(database, spark, verified):
    database.execute("CREATE TABLE log (a int, b text)")
    database.execute("INSERT INTO log VALUES (1, 'x'), (1, 'x'), (2, NULL)")

    same = rows(spark, "a, b", "(2, NULL)", "(1, 'x')", "(1, 'x')")
    other = rows(spark, "a, b", "(2, NULL)", "(1, 'x')", "(2, NULL)")

    assert verified(public__log=same)["public.log"].equal
    found = verified(public__log=other)["public.log"]
    assert not found.equal
    assert sorted(it.what for it in found.differences) == ["missing in the lake", "only in the lake"]
    assert [it.key for it in found.differences] == [{}, {}]


def test_a_table_that_one_side_does_not_have_is_equal_only_when_it_has_no_rows(database, spark, verified):
    database.execute("CREATE TABLE empty (id int)")
    database.execute("CREATE TABLE unseen (id int); INSERT INTO unseen VALUES (1), (2)")

    found = verified(public__gone=rows(spark, "id", "(1)"), public__ended=rows(spark, "id", "(1)").limit(0))

    assert {name: report.equal for name, report in found.items()} == {
        "public.empty": True,
        "public.unseen": False,
        "public.gone": False,
        "public.ended": True,
    }
    assert found["public.unseen"].reasons == ["the table is missing in the lake"]
    assert (found["public.unseen"].rows_source, found["public.unseen"].rows_lake) == (2, None)
    assert found["public.gone"].reasons[0].startswith("the table is not at the source: it was dropped or renamed there")


def test_a_table_that_the_load_stopped_at_says_why_when_it_differs(database, spark, verified):
    database.execute("CREATE TABLE stopped (id int); INSERT INTO stopped VALUES (1), (2)")

    behind = verified(public__stopped=rows(spark, "id", "(1)"))["public.stopped"]
    level = verified(public__stopped=rows(spark, "id", "(1)", "(2)"))["public.stopped"]

    assert behind.reasons == ["the load stopped at this table: its key was changed"]
    assert (level.equal, level.reasons) == (True, [])


def test_partitions_stand_for_themselves_unless_silver_has_the_whole(database, spark, verified):
    database.execute("CREATE TABLE sales (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    database.execute("CREATE TABLE sales_low PARTITION OF sales FOR VALUES FROM (0) TO (10)")
    database.execute("CREATE TABLE sales_high PARTITION OF sales FOR VALUES FROM (10) TO (20)")
    database.execute("INSERT INTO sales VALUES (1), (11)")

    def frame(*numbers):
        return rows(spark, "id", *(f"({number})" for number in numbers))

    parts = verified(public__sales_low=frame(1), public__sales_high=frame(11))
    whole = verified(public__sales=frame(1, 11))

    assert {name: it.equal for name, it in parts.items()} == {"public.sales_low": True, "public.sales_high": True}
    assert {name: it.equal for name, it in whole.items()} == {"public.sales": True}


def test_a_column_that_the_lake_has_not_seen_counts_as_null_there(bank, in_lake, verified):
    bank.execute("ALTER TABLE accounts ADD COLUMN note text")
    assert verified(public__accounts=in_lake())["public.accounts"].equal

    bank.execute("UPDATE accounts SET note = 'late' WHERE id = 9")

    found = verified(public__accounts=in_lake())["public.accounts"]
    assert found.differences == [Difference(what="differs", key={"id": "9"}, columns=("note",))]


def test_a_scale_that_was_widened_at_the_source_compares_by_value(bank, in_lake, verified):
    bank.execute("ALTER TABLE accounts ALTER balance TYPE numeric(12,4)")

    assert verified(public__accounts=in_lake())["public.accounts"].equal


def test_types_that_cannot_hold_the_same_values_are_named(bank, in_lake, verified):
    bank.execute("ALTER TABLE accounts ALTER id TYPE text")

    found = verified(public__accounts=in_lake())["public.accounts"]

    assert not found.equal
    assert found.reasons == ["column id is text at the source and integer in the lake"]


def test_one_table_alone_can_be_asked_for_with_or_without_its_schema(bank, in_lake, verified):
    bank.execute("CREATE SCHEMA other CREATE TABLE accounts (id int) CREATE TABLE more (id int)")
    accounts = in_lake()

    assert set(verified("accounts", public__accounts=accounts)) == {"public.accounts", "other.accounts"}
    assert set(verified("public.accounts", public__accounts=accounts)) == {"public.accounts"}
    assert set(verified("nothing", public__accounts=accounts)) == set()


def test_names_that_need_quotes_are_compared(database, spark, verified):
    database.execute('CREATE TABLE "Odd ""name" ("a`b" int PRIMARY KEY, "c "" %s" text)')
    database.execute('INSERT INTO "Odd ""name" VALUES (1, \'x\')')
    silver = rows(spark, '`a``b`, `c " %s`', "(1, 'x')")

    assert verified(**{'public__Odd "name': silver})['public.Odd "name'].equal


def test_a_database_that_does_not_keep_utf8_is_compared_by_characters(postgres, spark):
    postgres.psql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        postgres.psql("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, chr(233))", "latin")
        silver = rows(spark, "id, v", "(1, 'é')")
        with SourceDatabase.connect(SOURCE, address(postgres.dsn("latin"))) as source:
            (found,) = verify(SOURCE, source, Frames(public__t=silver))
    finally:
        postgres.psql("DROP DATABASE latin WITH (FORCE)")

    assert found.equal


def test_a_source_is_read_in_one_snapshot_that_cannot_write(bank):
    with SourceDatabase.connect(SOURCE, address(bank.dsn)) as source:
        before = source.query("SELECT count(*) FROM accounts", "accounts")
        bank.execute("DELETE FROM accounts WHERE id = 1")
        after = source.query("SELECT count(*) FROM accounts", "accounts")
        with pytest.raises(NeedsOperator, match="PostgreSQL error 25006"):
            source.query("INSERT INTO accounts VALUES (0) RETURNING id", "accounts")

    assert before == after == [(500,)]


def test_a_database_that_cannot_be_reached_is_said_with_its_address(database):
    gone = address(database.dsn, port=1)

    with pytest.raises(NotConnected, match=f"jakarta/bank: 127.0.0.1:1/{database.name} cannot be reached"):
        SourceDatabase.connect(SOURCE, gone).__enter__()


def test_a_database_that_refuses_needs_an_operator(database):
    unknown = address(database.dsn, user="nobody")

    with pytest.raises(NeedsOperator, match="refuses user 'nobody'"):
        SourceDatabase.connect(SOURCE, unknown).__enter__()


def test_a_table_that_may_not_be_read_is_named_with_the_grant_to_run_and_the_others_are_compared(bank, in_lake):
    bank.execute("CREATE TABLE later (id int)")
    bank.execute(f"CREATE ROLE reader_{bank.name} LOGIN; GRANT SELECT ON later TO reader_{bank.name}")
    try:
        with SourceDatabase.connect(SOURCE, address(bank.dsn, user=f"reader_{bank.name}")) as source:
            accounts, later = verify(SOURCE, source, Frames(public__accounts=in_lake()))
    finally:
        bank.execute(f"DROP OWNED BY reader_{bank.name}; DROP ROLE reader_{bank.name}")

    assert (accounts.verdict, later.verdict) == ("not compared", "equal")
    assert "may not read public.accounts" in accounts.reasons[0]
    assert "GRANT SELECT ON public.accounts" in accounts.reasons[0]


def test_columns_that_the_policy_treats_are_left_out_and_named(spark, bank, verified, in_lake, monkeypatch):
    # Given a lake that holds other names, and no balances, because of the edge's policy.
    treated = in_lake().withColumn("name", functions.lit("****")).drop("balance")

    # When it is said so, then the rest is compared; a row too few is found all the same.
    monkeypatch.setattr(Frames, "policy", {"name": "mask", "balance": "exclude"})
    report = verified(public__accounts=treated)["public.accounts"]
    assert (report.verdict, report.treated) == ("equal", {"name": "mask", "balance": "exclude"})
    assert not verified(public__accounts=treated.where("id <> 7"))["public.accounts"].equal

    # When the key is hashed, then rows are compared without it.
    monkeypatch.setattr(Frames, "policy", {"id": "hash", "name": "mask"})
    hashed = in_lake().withColumn("id", functions.md5(functions.col("id").cast("string")))
    assert verified(public__accounts=hashed)["public.accounts"].equal
    changed = in_lake(row17="0.01").withColumn("id", functions.lit("hashed"))
    assert not verified(public__accounts=changed)["public.accounts"].equal

    # When nothing is said, then it differs.
    monkeypatch.setattr(Frames, "policy", {})
    assert not verified(public__accounts=treated)["public.accounts"].equal
