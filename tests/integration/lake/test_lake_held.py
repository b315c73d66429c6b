"""A source that cannot go on is held alone: in a table that it does not fit, or, out of order, in all; the others go on."""

import shutil
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from headrace.errors import NeedsOperator, NotConnected
from spark_jobs import preflight
from spark_jobs.bronze import load as bronze
from spark_jobs.load import Report
from spark_jobs.maintenance import replay
from spark_jobs.query import engine, published_tables
from spark_jobs.silver import load as silver
from spark_jobs.silver import rebuild
from spark_jobs.state import published, published_rows
from spark_jobs.verify.lake import LakeAt

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(900)

J, L = "jakarta/bank", "london/bank"
ACCOUNTS, LOG = "public.accounts", "public.log"
PLAIN = {"id": ("int8", None, None), "name": ("text", None, None), "balance": ("text", None, None)}


#: What is published had no columns for sources that are held.
_BEFORE = published_rows.COLUMNS
for _added in (", problem: string", "held_back map<string, struct<`at`: string, reason: string, `schema`: string>>, "):
    assert _added in _BEFORE
    _BEFORE = _BEFORE.replace(_added, "", 1)


def shared(logged_lake, settings=""):
    """Return a lake of a release before whose table of accounts has a row of each source, and the feeds of both."""
    lake = logged_lake(settings)
    for feed in lake.feeds:
        feed.commit(feed.schema(), feed.insert(id=1, name="a", balance="1.00"))
    with patch.object(published_rows, "COLUMNS", _BEFORE):
        lake.load()
    return lake, *lake.feeds


def table(lake, name=ACCOUNTS):
    return published.latest(lake.spark, lake.file, "bank").tables[name]


def moved(source, partition=7):
    """Let what waits of a source come in another partition; return it."""
    waiting = [(topic, partition, *rest) for topic, _, *rest in source.waiting]
    source.waiting = []
    return waiting


def test_a_source_that_is_out_of_order_is_held_alone_until_a_replay_takes_it_by_its_positions(spark, logged_lake):
    # given
    lake, jakarta, london = shared(logged_lake)
    # when a load has what a source wrote to two partitions at once
    jakarta.commit(jakarta.update(id=1, name="b", balance="1.00"))
    early = moved(jakarta, 0)
    jakarta.commit(jakarta.update(id=1, name="c", balance="1.00"))
    between = moved(jakarta)
    jakarta.commit(jakarta.update(id=1, name="d", balance="1.00"))
    jakarta.waiting = [*early, *between, *jakarta.waiting]
    london.commit(london.insert(id=2, name="a", balance="1.00"))
    report = lake.load()
    # then the other one goes on, and it stays as it was, and whoever asks learns why
    assert (report.changes, report.problems, report.waiting) == ({ACCOUNTS: 1}, {}, {J: 3})
    assert "several partitions at once" in report.held[J]
    with pytest.raises(NeedsOperator, match=f"1 source.* held, the others are loaded: source {J}: its records"):
        Report(silver=report).check()
    before = [(J, 1, "a"), (L, 1, "a"), (L, 2, "a")]
    assert lake.rows("id", "name") == before
    assert lake.load().held == report.held
    assert not preflight.whole(lake.file, "bank")
    (listed,) = published_tables.list_tables(spark, lake.file, ["bank"], rows=False)
    assert (listed.state, f"rows of {J} stay as they were" in listed.reason) == ("stopped", True)
    with pytest.raises(NeedsOperator, match=f"{J} goes no further"):
        LakeAt(spark, lake.file, "bank").advance(J, SimpleNamespace(place=1), seconds=0, on_progress=print)
    # and so it stays in later loads, whatever came of it since alone would be
    jakarta.commit(jakarta.insert(id=3, name="a", balance="1.00"))
    jakarta.waiting = moved(jakarta)
    london.commit(london.insert(id=4, name="a", balance="1.00"))
    report = lake.load()
    assert (report.changes, list(report.held), report.waiting) == ({ACCOUNTS: 1}, [J], {J: 4})
    assert lake.rows("id", "name") == [*before, (L, 4, "a")]
    # and a replay takes all of it, also one from where it is published
    replay.of_silver(spark, lake.file, "bank", published.latest(spark, lake.file, "bank").positions)
    assert lake.rows("id", "name") == [(J, 1, "d"), (J, 3, "a"), (L, 1, "a"), (L, 2, "a"), (L, 4, "a")]
    jakarta.commit(jakarta.insert(id=5, name="a", balance="1.00"))
    jakarta.waiting = moved(jakarta)
    report = lake.load()
    assert (report.changes, report.held, report.waiting) == ({ACCOUNTS: 1}, {}, {})
    assert preflight.whole(lake.file, "bank")
    # and what is out of order after that is seen again
    jakarta.commit(jakarta.insert(id=6, name="a", balance="1.00"))
    late = moved(jakarta, 0)
    jakarta.commit(jakarta.insert(id=7, name="a", balance="1.00"))
    jakarta.waiting = [*late, *moved(jakarta)]
    assert lake.load().held == {}
    jakarta.commit(jakarta.insert(id=8, name="a", balance="1.00"))
    late = moved(jakarta, 0)
    jakarta.commit(jakarta.insert(id=9, name="a", balance="1.00"))
    jakarta.waiting = moved(jakarta)
    assert lake.load().held == {}
    jakarta.waiting = late
    assert list(lake.load().held) == [J]
    assert (J, 9) in lake.rows("id")
    # which a replay from behind it would not have
    with pytest.raises(NeedsOperator, match=f"of {J} while it was held begins at position"):
        replay.of_silver(spark, lake.file, "bank", published.latest(spark, lake.file, "bank").positions)
    # whatever happens to bronze, and to the versions that are known of it
    shutil.rmtree(Path(bronze.table_path(lake.file, "bank")))
    jakarta.commit(jakarta.insert(id=10, name="a", balance="1.00"))
    jakarta.waiting = [*late, *moved(jakarta)]
    london.commit(london.insert(id=5, name="a", balance="1.00"))
    report = lake.load()
    assert list(report.held) == [J]
    assert [row for row in lake.rows("id") if row in {(J, 8), (J, 10)}] == []


@pytest.mark.long
def test_what_came_late_is_seen_where_all_of_bronze_is_read(logged_lake):
    # given a source of which something is on its way when what follows it is published
    lake, jakarta, london = shared(logged_lake)
    jakarta.commit(jakarta.insert(id=2, name="late", balance="1.00"))
    late = moved(jakarta, 0)
    jakarta.commit(jakarta.insert(id=3, name="a", balance="1.00"))
    jakarta.waiting = moved(jakarta)
    assert lake.load().held == {}
    # when bronze is made again, and has it
    shutil.rmtree(Path(bronze.table_path(lake.file, "bank")))
    jakarta.waiting = late
    jakarta.commit(jakarta.insert(id=4, name="a", balance="1.00"))
    london.commit(london.insert(id=2, name="a", balance="1.00"))
    # then it is not passed over
    assert list(lake.load().held) == [J]
    assert lake.rows("id") == [(J, 1), (J, 3), (L, 1), (L, 2)]


@pytest.mark.long
def test_a_copy_that_a_replay_takes_to_its_end_is_under_way_no_more(spark, logged_lake):
    # given a source that is copied
    lake, jakarta, london = shared(logged_lake)
    jakarta.commit(jakarta.copy_begins(), jakarta.truncate())
    lake.load()
    assert list(table(lake).copying) == [J]
    # when it is out of order, and its copy ends
    parts = []
    for number, partition in ((1, 0), (2, 7), (3, 0)):
        jakarta.commit(jakarta.read(id=number, name="new", balance="1.00"))
        parts += moved(jakarta, partition)
    jakarta.commit(jakarta.copy_ends())
    jakarta.waiting = [*parts, *jakarta.waiting]
    assert list(lake.load().held) == [J]
    assert lake.rows("id", "name") == [(J, 1, "a"), (L, 1, "a")]
    # then a replay has all of it, and loads go on
    replay.of_silver(spark, lake.file, "bank")
    assert table(lake).copying == {}
    london.commit(london.insert(id=2, name="a", balance="1.00"))
    report = lake.load()
    assert (report.changes, report.held, report.problems) == ({ACCOUNTS: 1}, {}, {})
    assert lake.rows("id", "name") == [*((J, number, "new") for number in (1, 2, 3)), (L, 1, "a"), (L, 2, "a")]


@pytest.mark.long
def test_a_table_that_a_load_brought_ahead_of_a_source_that_is_held_stops_alone(spark, logged_lake, monkeypatch):
    # given a load that died ahead of publishing
    lake, jakarta, london = shared(logged_lake)
    log = {"entry": ("text", None, None)}
    london.commit(london.schema(log, (), LOG), london.insert(LOG, entry="a"))
    lake.load()
    jakarta.commit(jakarta.insert(id=2, name="a", balance="1.00"))
    with monkeypatch.context() as patched:
        patched.setattr(silver.publication, "append", lambda *_, **__: (_ for _ in ()).throw(NotConnected("died")))
        with pytest.raises(NotConnected, match="died"):
            lake.load()
    # when its source turns out to be out of order
    jakarta.commit(jakarta.insert(id=3, name="a", balance="1.00"))
    late = moved(jakarta)
    jakarta.commit(jakarta.insert(id=4, name="a", balance="1.00"))
    jakarta.waiting = [*late, *jakarta.waiting]
    jakarta.commit(jakarta.insert(id=5, name="a", balance="1.00"))
    jakarta.waiting = [*jakarta.waiting[:2], *((t, 7, *rest) for t, _, *rest in jakarta.waiting[2:])]
    london.commit(london.insert(id=2, name="a", balance="1.00"), london.insert(LOG, entry="b"))
    report = lake.load()
    # then that table waits, the others go on, and a replay has all of them
    assert (list(report.held), list(report.problems)) == ([J], [ACCOUNTS])
    assert lake.rows("entry", table=LOG) == [(L, "a"), (L, "b")]
    replay.of_silver(spark, lake.file, "bank")
    assert lake.rows("id") == [*((J, number) for number in range(1, 6)), (L, 1), (L, 2)]
    assert (lake.load().held, lake.load().problems) == ({}, {})


def test_a_key_or_type_that_does_not_fit_a_shared_table_holds_its_source_back_alone(spark, logged_lake, monkeypatch):
    # given
    lake, jakarta, london = shared(logged_lake)
    early = table(lake).positions[J]
    # when one region changes a type, and a load dies once the other region's rows are in
    jakarta.commit(jakarta.schema(PLAIN), jakarta.insert(id=2, name="a", balance="none"))
    jakarta.commit(jakarta.schema({"entry": ("text", None, None)}, (), LOG), jakarta.insert(LOG, entry="a"))
    london.commit(london.insert(id=2, name="a", balance="2.00"))
    with monkeypatch.context() as patched:
        patched.setattr(silver.publication, "append", lambda *_, **__: (_ for _ in ()).throw(NotConnected("died")))
        with pytest.raises(NotConnected, match="died"):
            lake.load()
    report = lake.load()
    # then it alone stays as it was, in that table alone, and whoever asks learns why
    assert lake.rows("id") == [(J, 1), (L, 1), (L, 2)]
    assert lake.rows("entry", table=LOG) == [(J, "a")]
    assert list(report.problems) == [ACCOUNTS]
    assert f"rows of {J} stay as they were at position {early}" in report.problems[ACCOUNTS]
    assert "column balance" in report.problems[ACCOUNTS]
    (listed,) = [
        each for each in published_tables.list_tables(spark, lake.file, ["bank"], rows=False) if each.table == ACCOUNTS
    ]
    assert (listed.state, listed.reason, listed.positions[J]) == ("stopped", report.problems[ACCOUNTS], early)
    # when more comes, of both
    jakarta.commit(jakarta.insert(id=3, name="a", balance="none"))
    changed = london.commit(london.update(id=1, name="b", balance="1.00"))
    # then it comes of the other alone, where rows are read live and where they are loaded
    lake.to_bronze()
    live = engine.SqlEngine(spark.newSession(), lake.file)
    rows = live.ask("SELECT _source, id, name FROM silver_live.accounts").collect()
    assert sorted(map(tuple, rows)) == [(J, 1, "a"), (L, 1, "b"), (L, 2, "a")]
    live.close()
    assert lake.load().changes == {ACCOUNTS: 1}
    assert lake.rows("id", "name") == [(J, 1, "a"), (L, 1, "b"), (L, 2, "a")]
    assert (table(lake).positions[J], table(lake).positions[L]) == (early, changed)
    assert lake.load().changes == {}
    # and once a copy has a schema that fits, a rebuild has all that the table needs
    jakarta.commit(jakarta.schema(), jakarta.truncate(), jakarta.insert(id=9, name="z", balance="9.00"))
    lake.load()
    assert rebuild.rebuild(spark, lake.file, "bank", ACCOUNTS).copies.keys() == {J}
    assert lake.rows("id") == [(J, 9), (L, 1), (L, 2)]
    assert (table(lake).held_back, table(lake).problem) == ({}, None)
    assert lake.load().problems == {}


@pytest.mark.long
def test_a_key_that_all_regions_change_one_after_the_other_is_taken_once_all_have_it(logged_lake):
    # given
    lake, jakarta, london = shared(logged_lake)
    wider = ("id", "name")
    # when one changes it
    jakarta.commit(jakarta.schema(PLAIN | {"balance": ("numeric", 12, 2)}, wider))
    jakarta.commit(jakarta.insert(id=1, name="b", balance="2.00"))
    london.commit(london.insert(id=2, name="a", balance="1.00"))
    report = lake.load()
    # then
    assert list(report.problems) == [ACCOUNTS]
    assert lake.rows("id", "name") == [(J, 1, "a"), (L, 1, "a"), (L, 2, "a")]
    # when the other does
    london.commit(london.schema(PLAIN | {"balance": ("numeric", 12, 2)}, wider))
    london.commit(london.insert(id=2, name="b", balance="1.00"))
    # then
    assert lake.load().problems == {}
    assert lake.rows("id", "name") == [(J, 1, "a"), (J, 1, "b"), (L, 1, "a"), (L, 2, "a"), (L, 2, "b")]


@pytest.mark.long
@pytest.mark.parametrize("history", ["", "history = true\n"], ids=["rows", "with history"])
def test_a_value_that_is_not_of_its_type_holds_its_source_back_alone(spark, logged_lake, history):
    # given
    lake, jakarta, london = shared(logged_lake, history)
    # when rows of one source are not of their types, one of them for a while
    jakarta.commit(jakarta.insert(id=3, name="a", balance="3.00"), jakarta.insert(id=4, name="a", balance="secret"))
    london.commit(london.insert(id=2, name="a", balance="2.00"))
    report = lake.load()
    # then
    assert "column balance: no such value in its type" in report.problems[ACCOUNTS]
    assert "secret" not in report.problems[ACCOUNTS]
    assert lake.rows("id") == [(J, 1), (L, 1), (L, 2)]
    verified = LakeAt(spark, lake.file, "bank")
    assert verified.problem(J, ACCOUNTS) == report.problems[ACCOUNTS]
    assert verified.problem(L, ACCOUNTS) is None
    # when it is copied again, and its folder is lost
    london.commit(london.insert(id=5, name="a", balance="2.00"))
    assert lake.load().changes == {ACCOUNTS: 1}
    Path(lake.file.root, "silver", "bank", ACCOUNTS).rename(Path(lake.file.root, "lost"))
    lake.load()
    assert lake.rows("id") == [(J, 1), (L, 1), (L, 2), (L, 5)]
    jakarta.commit(jakarta.truncate(), jakarta.insert(id=4, name="a", balance="4.00"))
    report = lake.load()
    # then it goes on with all that it wrote
    if history:
        # Which has the rows that were as well.
        assert list(report.problems) == [ACCOUNTS]
        return
    assert report.problems == {}
    assert lake.rows("id", "balance") == [
        (J, 4, Decimal(4)),
        (L, 1, Decimal(1)),
        (L, 2, Decimal(2)),
        (L, 5, Decimal(2)),
    ]


def test_a_source_that_is_new_to_a_table_and_does_not_fit_has_nothing_in_it_and_the_last_one_stops_it(logged_lake):
    # given a table without a key, which one source has
    lake = logged_lake()
    jakarta, london = lake.feeds
    london.commit(london.schema({"entry": ("text", None, None)}, (), LOG), london.insert(LOG, entry="a"))
    lake.load()
    # when another one, which is new to it, has another type
    jakarta.commit(jakarta.schema({"entry": ("int8", None, None)}, (), LOG), jakarta.insert(LOG, entry=1))
    london.commit(london.insert(LOG, entry="b"))
    lake.load()
    assert list(table(lake, LOG).held_back) == [J]
    assert lake.rows("entry", table=LOG) == [(L, "a"), (L, "b")]
    # and once all of its sources offend, the table stops
    london.commit(london.update(LOG, entry="c"))
    assert list(lake.load().problems) == [LOG]
    assert (list(table(lake, LOG).held_back), lake.rows("entry", table=LOG)) == ([], [(L, "a"), (L, "b")])
