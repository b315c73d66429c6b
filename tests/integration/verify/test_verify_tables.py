"""Tables of a real database against rows in Spark: without keys, on one side alone, in partitions, with other columns."""

from pyspark.sql import functions

from spark_jobs.verify.compare import Difference
from tests.lake.verify_sides import Frames, rows


def test_a_table_without_a_key_is_compared_as_rows_that_may_be_equal(database, spark, verified):
    database.execute("CREATE TABLE log (a int, b text)")
    database.execute("INSERT INTO log VALUES (1, 'x'), (1, 'x'), (2, NULL)")

    same = rows(spark, "a, b", "(2, NULL)", "(1, 'x')", "(1, 'x')")
    other = rows(spark, "a, b", "(2, NULL)", "(1, 'x')", "(2, NULL)")

    assert verified(public__log=same)["public.log"].equal
    result = verified(public__log=other)["public.log"]
    assert not result.equal
    assert sorted(it.what for it in result.differences) == ["missing in the lake", "only in the lake"]
    assert [it.key for it in result.differences] == [{}, {}]


def test_a_table_that_one_side_does_not_have_is_equal_only_when_it_has_no_rows(database, spark, verified):
    database.execute("CREATE TABLE empty (id int)")
    database.execute("CREATE TABLE unseen (id int); INSERT INTO unseen VALUES (1), (2)")

    result = verified(public__gone=rows(spark, "id", "(1)"), public__ended=rows(spark, "id", "(1)").limit(0))

    assert {name: report.equal for name, report in result.items()} == {
        "public.empty": True,
        "public.unseen": False,
        "public.gone": False,
        "public.ended": True,
    }
    assert result["public.unseen"].reasons == ["the table is missing in the lake"]
    assert (result["public.unseen"].rows_source, result["public.unseen"].rows_lake) == (2, None)
    assert result["public.gone"].verdict == "not compared"
    assert (
        result["public.gone"].reasons[0].startswith("the table is not at the source: it was dropped or renamed there")
    )


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

    result = verified(public__accounts=in_lake())["public.accounts"]
    assert result.differences == [Difference(what="differs", key={"id": "9"}, columns=("note",))]


def test_a_scale_that_was_widened_at_the_source_compares_by_value(bank, in_lake, verified):
    bank.execute("ALTER TABLE accounts ALTER balance TYPE numeric(12,4)")

    assert verified(public__accounts=in_lake())["public.accounts"].equal


def test_types_that_cannot_hold_the_same_values_are_named(bank, in_lake, verified):
    bank.execute("ALTER TABLE accounts ALTER id TYPE text")

    result = verified(public__accounts=in_lake())["public.accounts"]

    assert not result.equal
    assert result.reasons == ["column id is text at the source and integer in the lake"]


def test_one_table_alone_can_be_asked_for_with_or_without_its_schema(bank, in_lake, verified):
    bank.execute("CREATE SCHEMA other CREATE TABLE accounts (id int) CREATE TABLE more (id int)")
    accounts = in_lake()

    assert set(verified(["accounts"], public__accounts=accounts)) == {"public.accounts", "other.accounts"}
    assert set(verified(["public.accounts"], public__accounts=accounts)) == {"public.accounts"}
    assert set(verified(["nothing"], public__accounts=accounts)) == set()


def test_names_that_need_quotes_are_compared(database, spark, verified):
    database.execute('CREATE TABLE "Odd ""name" ("a`b" int PRIMARY KEY, "c "" %s" text)')
    database.execute('INSERT INTO "Odd ""name" VALUES (1, \'x\')')
    silver = rows(spark, '`a``b`, `c " %s`', "(1, 'x')")

    assert verified(**{'public__Odd "name': silver})['public.Odd "name'].equal


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
