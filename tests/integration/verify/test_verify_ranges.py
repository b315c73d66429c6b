"""Differences are located: in ranges of the key, down to the rows in them."""

from headrace.verify.postgres.database import SourceDatabase
from spark_jobs.verify.compare import Difference, Range
from spark_jobs.verify.verify import Sample, verify
from tests.lake.verify_sides import SOURCE, Frames, address, rows


def test_a_changed_digit_a_missing_row_and_an_extra_row_are_each_located(bank, in_lake, verified):
    bank.execute("DELETE FROM accounts WHERE id = 300")

    result = verified(public__accounts=in_lake(row17="17.24", row42=None))["public.accounts"]

    assert (result.equal, result.rows_source, result.rows_lake) == (False, 499, 499)
    assert sorted(result.differences, key=lambda it: it.what) == [
        Difference(what="differs", key={"id": "17"}, columns=("balance",)),
        Difference(what="missing in the lake", key={"id": "42"}),
        Difference(what="only in the lake", key={"id": "300"}),
    ]


def test_a_row_that_differs_is_located_by_hash_where_the_key_is_text(database, spark, verified, small_ranges):
    database.execute("CREATE TABLE big (region text, id int, v int, PRIMARY KEY (region, id))")
    database.execute("INSERT INTO big SELECT 'r' || n % 3, n, n FROM generate_series(1, 9000) n; ANALYZE big")
    silver = spark.range(1, 9001).selectExpr(
        "concat('r', id % 3) AS region", "cast(id AS int) AS id", "cast(if(id = 1234, 0, id) AS int) AS v"
    )

    result = verified(public__big=silver)["public.big"]

    assert (result.ranges, result.ranges_compared) == (9, 9)
    assert result.differences == [Difference(what="differs", key={"region": "r1", "id": "1234"}, columns=("v",))]
    assert result.complete


def test_ranges_of_the_key_that_differ_are_told_with_the_rows_in_them(database, spark, verified, small_ranges):
    database.execute("CREATE TABLE big (id bigint PRIMARY KEY, v int)")
    database.execute("INSERT INTO big SELECT n, n FROM generate_series(1, 10000) n; ANALYZE big")
    silver = spark.range(1, 10_003).selectExpr("id", "cast(id AS int) AS v").where("id NOT BETWEEN 2500 AND 2600")

    result = verified(public__big=silver)["public.big"]

    assert result.differing == [
        Range(column="id", first=2001, last=3000, rows_source=1000, rows_lake=899),
        Range(column="id", first=9001, last=None, rows_source=1000, rows_lake=1002),
    ]
    assert sum(it.rows for it in result.differences) == 103
    assert result.complete


def test_a_leading_key_column_with_few_values_is_cut_by_hash_below_them(database, spark, verified, small_ranges):
    database.execute("CREATE TABLE big (shop smallint, id int, PRIMARY KEY (shop, id))")
    database.execute("INSERT INTO big SELECT n % 2, n FROM generate_series(1, 5000) n; ANALYZE big")
    silver = (
        spark.range(1, 5001).where("id <> 777").selectExpr("cast(id % 2 AS smallint) AS shop", "cast(id AS int) AS id")
    )

    result = verified(public__big=silver)["public.big"]

    assert result.differences == [Difference(what="missing in the lake", key={"shop": "1", "id": "777"})]
    assert result.complete


def test_keys_at_the_ends_of_their_type_are_compared(database, spark, verified, small_ranges):
    database.execute("CREATE TABLE wide (id bigint PRIMARY KEY)")
    database.execute("INSERT INTO wide VALUES (-9223372036854775808), (0), (9223372036854775807)")
    silver = rows(spark, "id", "(-9223372036854775807 - 1)", "(0L)", "(9223372036854775807)")

    assert verified(public__wide=silver)["public.wide"].equal


def test_a_sample_compares_some_ranges_and_says_how_many(bank, in_lake, database):
    bank.execute("ANALYZE accounts")
    with SourceDatabase.connect(SOURCE, address(database.dsn)) as source:
        (some,) = verify(SOURCE, source, Frames(public__accounts=in_lake()), sample=Sample(percent=10))
        (whole,) = verify(SOURCE, source, Frames(public__accounts=in_lake(row42=None)), sample=Sample(percent=100))

    assert (some.verdict, some.ranges, some.ranges_compared, some.rows_lake) == ("equal", 100, 10, 50)
    assert whole.differences == [Difference(what="missing in the lake", key={"id": "42"})]
    assert whole.differing == [Range(column="id", first=41, last=45, rows_source=5, rows_lake=4)]
