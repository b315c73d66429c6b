"""A source that cannot go on is held back alone: the others of its stream, and of tables that they share, go on."""

import json
import shutil
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.errors import NeedsOperator
from spark_jobs import command, preflight
from spark_jobs.bronze import load as bronze
from spark_jobs.load import Report
from spark_jobs.maintenance import replay
from spark_jobs.silver import rebuild
from spark_jobs.state import published

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(900)

J, L = "jakarta/bank", "london/bank"


def moved(source, partition=7):
    """Let what waits of a source come in another partition."""
    source.waiting = [(topic, partition, *rest) for topic, _, *rest in source.waiting]


def listed(lake, *options):
    """Return exit code and output of `headrace lake tables --stopped`."""
    result = CliRunner().invoke(
        command.lake, ["tables", "bank", *options, "--stopped", "--config", str(lake.file.path)]
    )
    return result.exit_code, result.output


def test_a_source_whose_records_are_out_of_order_is_held_back_alone_and_a_replay_lets_it_go_on(spark, logged_lake):
    # given
    lake = logged_lake()
    jakarta, london = lake.feeds
    for feed in lake.feeds:
        feed.commit(feed.schema(), feed.insert(id=1, name="a", balance="1.00"))
    lake.load()
    # when a load has what a source wrote to two partitions at once
    jakarta.commit(jakarta.update(id=1, name="b", balance="1.00"))
    early = jakarta.waiting
    jakarta.waiting = []
    jakarta.commit(jakarta.update(id=1, name="c", balance="1.00"))
    moved(jakarta)
    late = jakarta.waiting
    jakarta.waiting = []
    jakarta.commit(jakarta.update(id=1, name="d", balance="1.00"))
    jakarta.waiting = [*early, *late, *jakarta.waiting]
    london.commit(london.insert(id=2, name="a", balance="1.00"))
    report = lake.load()
    # then the other one goes on, and it stays as it was
    assert (report.changes, list(report.held_back), report.waiting) == ({"public.accounts": 1}, [J], {J: 3})
    with pytest.raises(NeedsOperator, match=f"source {J} is held back: its records are in several partitions at once"):
        Report(silver=report).check()
    before = [(J, 1, "a"), (L, 1, "a"), (L, 2, "a")]
    assert lake.rows("id", "name") == before
    assert not preflight.whole(lake.file, "bank")
    exit_code, output = listed(lake)
    assert (exit_code, f"bank: source {J} is held back" in output) == (3, True)
    (table,) = json.loads(listed(lake, "--json")[1])
    assert (table["state"], table["positions"][L]) == ("held back", london_position(lake))
    # and so it does in later loads, whatever came of it since alone would be
    jakarta.commit(jakarta.insert(id=3, name="a", balance="1.00"))
    moved(jakarta)
    london.commit(london.insert(id=4, name="a", balance="1.00"))
    report = lake.load()
    assert (report.changes, list(report.held_back), report.waiting) == ({"public.accounts": 1}, [J], {J: 4})
    before.append((L, 4, "a"))
    assert lake.rows("id", "name") == before
    assert list(lake.load().held_back) == [J]
    # and it goes on once an operator has replayed the stream, with all that it wrote
    replay.of_silver(spark, lake.file, "bank")
    assert lake.rows("id", "name") == before
    london.commit(london.insert(id=5, name="a", balance="1.00"))
    report = lake.load()
    assert (report.changes, report.held_back, report.waiting) == ({"public.accounts": 5}, {}, {})
    assert lake.rows("id", "name") == [(J, 1, "d"), (J, 3, "a"), (L, 1, "a"), (L, 2, "a"), (L, 4, "a"), (L, 5, "a")]
    assert listed(lake)[0] == 0
    assert preflight.whole(lake.file, "bank")


def london_position(lake):
    return published.latest(lake.spark, lake.file, "bank").positions[L]


def test_what_comes_late_in_a_former_partition_holds_its_source_back_and_is_never_skipped(spark, logged_lake):
    # given a source that was moved
    lake = logged_lake()
    jakarta, london = lake.feeds
    for feed in lake.feeds:
        feed.commit(feed.schema(), feed.insert(id=1, name="a", balance="1.00"))
    jakarta.commit(jakarta.insert(id=2, name="a", balance="1.00"))
    lake.load()
    jakarta.commit(jakarta.insert(id=3, name="late", balance="1.00"))
    late = jakarta.waiting
    jakarta.waiting = []
    jakarta.commit(jakarta.insert(id=4, name="a", balance="1.00"))
    moved(jakarta)
    lake.load()
    # when something comes late in the former partition, alone
    jakarta.waiting = late
    london.commit(london.insert(id=2, name="a", balance="1.00"))
    report = lake.load()
    # then
    assert (report.changes, list(report.held_back)) == ({"public.accounts": 1}, [J])
    rows = [(J, 1), (J, 2), (J, 4), (L, 1), (L, 2)]
    assert lake.rows("id") == rows
    # and it stays so whatever comes, also when the whole of bronze is read
    jakarta.commit(jakarta.insert(id=5, name="a", balance="1.00"))
    moved(jakarta)
    assert list(lake.load().held_back) == [J]
    shutil.rmtree(Path(lake.file.root, "silver", "bank", "public.accounts"))
    assert list(lake.load().held_back) == [J]
    # and a replay has it
    replay.of_silver(spark, lake.file, "bank")
    london.commit(london.insert(id=3, name="a", balance="1.00"))
    assert lake.load().held_back == {}
    assert lake.rows("id") == [(J, 1), (J, 2), (J, 3), (J, 4), (J, 5), (L, 1), (L, 2), (L, 3)]


def test_bronze_with_a_change_twice_lets_no_replay_accept_its_order(spark, logged_lake):
    # given a source that wrote the same to another partition again
    lake = logged_lake()
    jakarta, london = lake.feeds
    jakarta.commit(jakarta.schema({"entry": ("text", None, None)}, (), "public.log"))
    jakarta.commit(jakarta.insert("public.log", entry="a"))
    lake.load()
    jakarta.commit(jakarta.insert("public.log", entry="b"))
    jakarta.waiting = [*jakarta.waiting, *((t, 7, *rest) for t, _, *rest in jakarta.waiting)]
    assert list(lake.load().held_back) == [J]
    # when and then
    with pytest.raises(NeedsOperator, match="some of them twice"):
        replay.of_silver(spark, lake.file, "bank")
    # and where bronze is made again without it, the source goes on
    shutil.rmtree(Path(bronze.table_path(lake.file, "bank")))
    jakarta.commit(jakarta.insert("public.log", entry="c"))
    london.commit(london.schema(), london.insert(id=1, name="a", balance="1.00"))
    assert lake.load().held_back == {}


WIDE = {"id": ("int8", None, None), "name": ("text", None, None), "balance": ("text", None, None)}
ACCOUNTS = "public.accounts"


def of_table(lake):
    return published.latest(lake.spark, lake.file, "bank").tables[ACCOUNTS]


def test_a_source_whose_schema_does_not_fit_a_shared_table_is_held_back_in_it_alone(spark, logged_lake):
    # given a table of two sources
    lake = logged_lake()
    jakarta, london = lake.feeds
    for feed in lake.feeds:
        feed.commit(feed.schema(), feed.insert(id=1, name="a", balance="1.00"))
    lake.load()
    # when one of them changes a type, in what is not its first transaction
    early = jakarta.commit(jakarta.insert(id=2, name="a", balance="2.00"))
    changed = jakarta.commit(jakarta.schema(WIDE), jakarta.insert(id=3, name="a", balance="none"))
    london.commit(london.insert(id=2, name="a", balance="2.00"))
    log = {"entry": ("text", None, None)}
    jakarta.commit(jakarta.schema(log, (), "public.log"), jakarta.insert("public.log", entry="a"))
    report = lake.load()
    # then it is held back in that table alone, from there on
    assert (report.problems, list(report.held_back)) == ({}, [f"{J} in {ACCOUNTS}"])
    assert f"since position {changed}: {ACCOUNTS}: column balance" in report.held_back[f"{J} in {ACCOUNTS}"]
    assert lake.rows("id") == [(J, 1), (J, 2), (L, 1), (L, 2)]
    assert lake.rows("entry", table="public.log") == [(J, "a")]
    assert of_table(lake).positions[J] == early
    listing = json.loads(listed(lake, "--json")[1])
    assert [(each["table"], each["state"]) for each in listing] == [(ACCOUNTS, "held back")]
    # and a key that differs is as little a reason to stop
    london.commit(london.insert(id=4, name="a", balance="4.00"))
    jakarta.commit(jakarta.schema(WIDE, ("id", "name")), jakarta.insert(id=4, name="b", balance="4.00"))
    assert list(lake.load().held_back) == [f"{J} in {ACCOUNTS}"]
    assert lake.rows("id") == [(J, 1), (J, 2), (L, 1), (L, 2), (L, 4)]
    # and once a copy of it has a schema that fits, and the rows before it are gone, it goes on
    jakarta.commit(jakarta.schema(), jakarta.truncate(), jakarta.insert(id=9, name="z", balance="9.00"))
    replay.of_silver(spark, lake.file, "bank")
    assert lake.rows("id") == [(J, 1), (J, 2), (L, 1), (L, 2), (L, 4)]
    assert list(lake.load().held_back) == [f"{J} in {ACCOUNTS}"]
    done = rebuild.rebuild(spark, lake.file, "bank", ACCOUNTS)
    assert done.copies.keys() == {J}
    assert lake.rows("id") == [(J, 9), (L, 1), (L, 2), (L, 4)]
    assert of_table(lake).held_back == {}
    assert lake.load().held_back == {}


def test_a_value_that_is_not_of_its_type_holds_its_source_back_in_a_shared_table_alone(spark, logged_lake):
    # given
    lake = logged_lake()
    jakarta, london = lake.feeds
    for feed in lake.feeds:
        feed.commit(feed.schema(), feed.insert(id=1, name="a", balance="1.00"))
    lake.load()
    # when rows of one source are not of their types, the first of them in a transaction with others
    early = jakarta.commit(jakarta.insert(id=2, name="a", balance="2.00"))
    wrong = jakarta.commit(
        jakarta.insert(id=3, name="a", balance="3.00"), jakarta.insert(id=4, name="a", balance="secret")
    )
    jakarta.commit(jakarta.insert(id=5, name="a", balance="hidden"))
    london.commit(london.insert(id=2, name="a", balance="2.00"))
    report = lake.load()
    # then it is held back ahead of its transaction at most, by no word of its values
    assert (report.problems, list(report.held_back)) == ({}, [f"{J} in {ACCOUNTS}"])
    (reason,) = report.held_back.values()
    assert "column balance: no such value in its type" in reason
    assert "secret" not in reason
    assert "hidden" not in reason
    rows = lake.rows("id")
    assert rows in ([(J, 1), (L, 1), (L, 2)], [(J, 1), (J, 2), (L, 1), (L, 2)])
    assert of_table(lake).positions[J] <= early < wrong
    # and the other one goes on, also where the table is read live
    london.commit(london.update(id=2, name="b", balance="2.00"))
    assert list(lake.load().held_back) == [f"{J} in {ACCOUNTS}"]
    assert (L, 2, "b") in lake.rows("id", "name")
    # and it goes on, with all that it wrote, once the rows are corrected
    jakarta.commit(jakarta.update(id=4, name="a", balance="4.00"), jakarta.update(id=5, name="a", balance="5.00"))
    report = lake.load()
    assert (report.held_back, report.problems) == ({}, {})
    assert lake.rows("id", "balance") == [
        *((J, number, Decimal(number)) for number in range(1, 6)),
        *((L, number, Decimal(number)) for number in (1, 2)),
    ]
    assert listed(lake)[0] == 0


def test_a_source_that_is_new_to_a_table_and_does_not_fit_is_held_back_and_one_without_old_rows_too(spark, logged_lake):
    # given a table without a key, which one source has
    lake = logged_lake()
    jakarta, london = lake.feeds
    log = {"entry": ("text", None, None)}
    london.commit(london.schema(log, (), "public.log"), london.insert("public.log", entry="a"))
    lake.load()
    # when another one, which is new to it, has another type
    jakarta.commit(
        jakarta.schema({"entry": ("int8", None, None)}, (), "public.log"), jakarta.insert("public.log", entry=1)
    )
    london.commit(london.insert("public.log", entry="b"))
    assert list(lake.load().held_back) == [f"{J} in public.log"]
    assert lake.rows("entry", table="public.log") == [(L, "a"), (L, "b")]
    # and once all of its sources offend, the table stops
    london.commit(london.update("public.log", entry="c"))
    assert list(lake.load().problems) == ["public.log"]
    assert lake.rows("entry", table="public.log") == [(L, "a"), (L, "b")]
