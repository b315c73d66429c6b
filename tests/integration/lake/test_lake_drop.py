"""A table that is dropped from the lake is gone from all that shows tables, and comes back when that is taken back."""

from datetime import timedelta
from pathlib import Path

import pytest

from headrace.console.lake import Lake
from headrace.errors import NeedsOperator
from spark_jobs.maintenance import drop, maintain, replay
from spark_jobs.query import overlay_databases, published_tables, snapshot
from spark_jobs.silver import load as silver
from spark_jobs.state import publication, published
from spark_jobs.verify.lake import LakeAt
from tests.lake.logged import LoggedLake

pytestmark = pytest.mark.timeout(900)

ACCOUNTS, OTHER = "public.accounts", "public.other"
J = "jakarta/bank"


@pytest.fixture(scope="module")
def loaded_lake(spark, tmp_path_factory):
    logged_lake = LoggedLake(
        spark, tmp_path_factory.mktemp("drop"), f'[streams.bank.tables."{OTHER}"]\nhistory = true\n'
    )
    feed = logged_lake.feeds[0]
    feed.commit(feed.schema(), feed.insert(id=1, name="n", balance="1"))
    feed.commit(feed.schema(table=OTHER), feed.insert(OTHER, id=1, name="n", balance="1"))
    logged_lake.load()
    return logged_lake


@pytest.fixture
def lake(loaded_lake, tmp_path):
    return loaded_lake.copy_to(tmp_path / "lake")


def change_both(lake, number):
    feed = lake.feeds[0]
    feed.commit(feed.insert(id=number, name="n", balance="1"), feed.insert(OTHER, id=number, name="n", balance="1"))
    return lake.load()


def shown(lake):
    """Return what each place that shows tables has."""
    spark, file = lake.spark, lake.file
    console = Lake(str(file.root))
    console.look()
    assert not console.view().problem
    relations = published_tables.relations(spark, file)
    view = next(each for each in relations if (each.database, each.name) == ("lake", "tables"))
    moment = snapshot.moment(spark, file, published.latest(spark, file, "bank"))
    return {
        "listing": {each.table for each in published_tables.list_tables(spark, file, ["bank"], rows=True)},
        "sql": {f"public.{each.name}" for each in relations if each.database in {"silver", "history"}},
        "view": {row["table"] for row in spark.sql(view.sql()).collect()},
        "console": {each.table for each in console.view().tables},
        "verify": LakeAt(spark, file, "bank").names(J),
        "live": set(moment.tables()),
    }


def test_a_dropped_table_is_shown_nowhere_and_comes_back_with_what_came_since(lake):
    assert all(found == {ACCOUNTS, OTHER} for found in shown(lake).values())
    before = published.latest(lake.spark, lake.file, "bank").load
    # a dry run changes nothing
    assert drop.drop(lake.spark, lake.file, "bank", OTHER, dry_run=True).load is None
    assert published.latest(lake.spark, lake.file, "bank").load == before
    done = drop.drop(lake.spark, lake.file, "bank", OTHER)
    assert (done.done, done.name) == ("dropped", "silver.other")
    assert done.folders == [f"silver/bank/{OTHER}", f"history/bank/{OTHER}"]
    # what another process reads, which remembers nothing
    published._read.clear()
    found = shown(lake)
    assert all(tables == {ACCOUNTS} for tables in found.values()), found
    # done twice it does nothing, and of a table that never was there is none
    assert drop.drop(lake.spark, lake.file, "bank", OTHER).done == "nothing"
    with pytest.raises(NeedsOperator, match=r"no table public\.none"):
        drop.drop(lake.spark, lake.file, "bank", "public.none")
    # loads and replays go on without it, maintenance leaves its files for keep_days
    assert change_both(lake, 2).changes == {ACCOUNTS: 1}
    assert replay.of_silver(lake.spark, lake.file, "bank").changes == {ACCOUNTS: 2}
    moment = overlay_databases.find_moment(
        lake.spark, lake.file, "bank", published.latest(lake.spark, lake.file, "bank").finished_at
    )
    assert moment.tables() == [ACCOUNTS]
    maintain.maintain(lake.spark, lake.file, "bank")
    assert (Path(lake.file.root) / "silver/bank" / OTHER).is_dir()
    # taken back, the next load has all of it
    assert drop.undo(lake.spark, lake.file, "bank", OTHER).done == "taken back"
    assert drop.undo(lake.spark, lake.file, "bank", OTHER).done == "nothing"
    assert change_both(lake, 3).problems == {}
    assert lake.rows("id", table=OTHER) == [(J, 1), (J, 2), (J, 3)]
    history = published.latest(lake.spark, lake.file, "bank").tables[OTHER].history
    frame = (
        lake.spark.read.format("delta").option("versionAsOf", history).load(f"{lake.file.root}/history/bank/{OTHER}")
    )
    assert frame.count() == 3


@pytest.mark.long
def test_files_of_a_dropped_table_go_after_keep_days_and_it_is_built_from_bronze_when_taken_back(lake, monkeypatch):
    drop.drop(lake.spark, lake.file, "bank", OTHER)
    # as if the days had passed
    monkeypatch.setattr(drop, "timedelta", lambda days: timedelta(0))
    maintain.maintain(lake.spark, lake.file, "bank")
    for folder in ("silver", "history"):
        assert not (Path(lake.file.root) / folder / "bank" / OTHER).exists()
    drop.undo(lake.spark, lake.file, "bank", OTHER)
    assert change_both(lake, 2).problems == {}
    assert lake.rows("id", table=OTHER) == [(J, 1), (J, 2)]


@pytest.mark.long
def test_a_load_that_a_drop_overtakes_publishes_nothing_and_a_drop_that_a_load_overtakes_is_done_again(
    lake, monkeypatch
):
    feed = lake.feeds[0]
    feed.commit(feed.insert(id=2, name="n", balance="1"), feed.insert(OTHER, id=2, name="n", balance="1"))
    lake.to_bronze()
    append, overtaken = publication.append, []

    def after_another(spark, file, done, **options):
        if not overtaken:
            overtaken.append(done.stream)
            drop.drop(spark, file, "bank", OTHER)
        return append(spark, file, done, **options)

    with monkeypatch.context() as patch:
        patch.setattr(publication, "append", after_another)
        with pytest.raises(Exception, match="something else published while this ran"):
            silver.load(lake.spark, lake.file, "bank")
    assert silver.load(lake.spark, lake.file, "bank").changes == {ACCOUNTS: 1}
    assert set(published.latest(lake.spark, lake.file, "bank").tables) == {ACCOUNTS}
    feed.commit(feed.insert(id=3, name="n", balance="1"))
    lake.to_bronze()
    loaded = []

    def after_a_load(spark, file, done, **options):
        if not loaded:
            loaded.append(done.stream)
            silver.load(spark, file, "bank")
        return append(spark, file, done, **options)

    with monkeypatch.context() as patch:
        patch.setattr(publication, "append", after_a_load)
        drop.undo(lake.spark, lake.file, "bank", OTHER)
    silver.load(lake.spark, lake.file, "bank")
    assert lake.rows("id") == [(J, 1), (J, 2), (J, 3)]
    assert lake.rows("id", table=OTHER) == [(J, 1), (J, 2)]
