"""A table that was renamed at its sources goes on by its new name, with its rows, its history and its records in bronze."""

import shutil
from pathlib import Path

import pytest

from headrace.errors import NeedsOperator
from headrace.schema import CALLED, RENAMED_TO_IT
from spark_jobs.bronze import load as bronze
from spark_jobs.maintenance import drop, erase, rename, replay
from spark_jobs.query import published_tables
from spark_jobs.silver import rebuild
from spark_jobs.state import published
from tests.lake.death import count_commits, killed_when
from tests.lake.erasing import keep_in_quarantine
from tests.lake.logged import LoggedLake

pytestmark = pytest.mark.timeout(1800)

FORMER, TABLE = "public.accounts", "public.clients"
J, L = "jakarta/bank", "london/bank"
OF_MYSQL = {"id": ("BIGINT", None, None), "name": ("VARCHAR", 20, None), "balance": ("DECIMAL", 10, 2)}
ROWS = [(J, 1, "first"), (J, 2, "moved"), (J, 4, "later"), (L, 1, "other"), (L, 5, "later")]
#: Beginning and end of what each row was, by its name.
HISTORY = {"first": 1, "second": 1, "moved": 1, "gone": 1, "other": 1, "later": 2}


@pytest.fixture(scope="module")
def renamed_lake(spark, tmp_path_factory):
    """Return a lake of two sources at which a table was renamed, and changed since."""
    lake = LoggedLake(spark, tmp_path_factory.mktemp("rename"), "history = true\n")
    one, other = lake.feeds
    one.commit(one.schema(), one.insert(id=1, name="first", balance="1"), one.insert(id=2, name="second", balance="1"))
    other.commit(other.schema(), other.insert(id=1, name="other", balance="1"))
    one.commit(one.insert(id=3, name="gone", balance="1"))
    lake.load()
    change(lake)
    lake.load()
    return lake


@pytest.fixture
def lake(renamed_lake, tmp_path):
    return renamed_lake.copy_to(tmp_path / "lake")


def change(lake):
    """Change the table by its new name."""
    one, other = lake.feeds
    announced = one.schema(table=TABLE) | {"rewritten": [CALLED.format(FORMER)]}
    one.commit(announced, one.update(TABLE, id=2, name="moved", balance="1"), one.delete(TABLE, id=3))
    one.commit(one.insert(TABLE, id=4, name="later", balance="1"))
    announced = other.schema(table=TABLE) | {"rewritten": [CALLED.format(FORMER)]}
    other.commit(announced, other.insert(TABLE, id=5, name="later", balance="1"))


def versions(lake):
    """Return how many versions of rows the history of the table has, by name, as it is published."""
    version = published.latest(lake.spark, lake.file, "bank").tables[TABLE].history
    frame = lake.spark.read.format("delta").option("versionAsOf", version)
    rows = frame.load(f"{lake.file.root}/history/bank/{TABLE}").groupBy("name").count().collect()
    return {row["name"]: row["count"] for row in rows}


def look_anew(lake):
    """Forget what this process knows of the lake."""
    lake.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    published._read.clear()
    return published.latest(lake.spark, lake.file, "bank")


def test_a_renamed_table_goes_on_with_its_rows_and_its_history(lake):
    # given a table that is two, of which the new one has what came since, and asks for a copy
    state = published.latest(lake.spark, lake.file, "bank")
    assert lake.rows("id", "name", table=TABLE) == [(J, 2, "moved"), (J, 4, "later"), (L, 5, "later")]
    assert "needs copy" in str(state.tables[TABLE].warnings)
    before = rename.rename(lake.spark, lake.file, "bank", FORMER, TABLE, dry_run=True).before
    assert set(before) == {J, L}
    assert look_anew(lake) == state
    done = rename.rename(lake.spark, lake.file, "bank", FORMER, TABLE)
    assert (done.done, done.name, done.before) == ("renamed", "silver.clients", before)
    # then it has all, and needs no copy
    state = look_anew(lake)
    assert lake.rows("id", "name", table=TABLE) == ROWS
    assert versions(lake) == HISTORY
    assert set(state.tables) == {TABLE}
    assert state.tables[TABLE].warnings == {}
    assert rename.rename(lake.spark, lake.file, "bank", FORMER, TABLE).done == "nothing"
    with pytest.raises(NeedsOperator, match=r"was renamed to public\.clients"):
        drop.undo(lake.spark, lake.file, "bank", FORMER)
    # and goes on, also where it is built again
    lake.feeds[0].commit(lake.feeds[0].insert(TABLE, id=6, name="new", balance="1"))
    assert lake.load().problems == {}
    rows, history = sorted([*ROWS, (J, 6, "new")], key=str), HISTORY | {"new": 1}
    assert lake.rows("id", "name", table=TABLE) == rows
    for again in (replay.of_silver, lambda *of: rebuild.rebuild(*of, TABLE)):
        again(lake.spark, lake.file, "bank")
        assert lake.rows("id", "name", table=TABLE) == rows
        assert versions(lake) == history
        assert look_anew(lake).tables[TABLE].warnings == {}
    # and an erasure finds what its rows were by the former name
    keep_in_quarantine(lake, '{"id":1}', '{"source":{"schema":"public","table":"accounts"}}')
    done = erase.erase(lake.spark, lake.file, "bank", TABLE, ["1"], sources=[J], reason="request 1")
    assert done.counts["quarantine"] == 1
    replay.of_silver(lake.spark, lake.file, "bank")
    assert "first" not in versions(lake)


@pytest.mark.long
def test_a_table_that_is_renamed_back_has_its_name_again(lake):
    rename.rename(lake.spark, lake.file, "bank", FORMER, TABLE)
    for feed in lake.feeds:
        feed.commit(feed.schema(), feed.insert(id=7, name="back", balance="1"))
    # given records that are passed over until the lake has the rename
    assert lake.load().changes == {}
    rename.rename(lake.spark, lake.file, "bank", TABLE, FORMER)
    assert lake.load().problems == {}
    assert set(look_anew(lake).tables) == {FORMER}
    assert lake.rows("id", "name") == sorted([*ROWS, (J, 7, "back"), (L, 7, "back")], key=str)


def test_mysql_empties_the_former_name_and_its_rows_stay(spark, tmp_path):
    lake = LoggedLake(spark, tmp_path / "lake", "history = true\n", sources=[J])
    (feed,) = lake.feeds
    feed.commit(feed.schema(OF_MYSQL), feed.insert(id=1, name="before the truncate", balance="1"))
    feed.commit(feed.truncate())
    feed.commit(feed.insert(id=2, name="first", balance="1"))
    lake.load()
    feed.commit(feed.truncate())
    announced = feed.schema(OF_MYSQL, table=TABLE) | {"rewritten": [RENAMED_TO_IT.format(FORMER)]}
    feed.commit(announced, feed.insert(TABLE, id=3, name="later", balance="1"))
    lake.load()
    assert lake.rows("id") == []
    rename.rename(spark, lake.file, "bank", FORMER, TABLE)
    for _ in range(2):
        assert lake.rows("id", table=TABLE) == [(J, 2), (J, 3)]
        assert versions(lake) == {"before the truncate": 1, "first": 1, "later": 1}
        assert look_anew(lake).tables[TABLE].warnings == {}
        replay.of_silver(spark, lake.file, "bank")


def test_what_may_be_two_tables_is_refused_and_nothing_changes(spark, tmp_path):
    lake = LoggedLake(spark, tmp_path / "lake")
    one, other = lake.feeds
    for feed in lake.feeds:
        feed.commit(feed.schema(), feed.insert(id=1, name="n", balance="1"))
    one.commit(one.schema(table=TABLE), one.insert(TABLE, id=2, name="n", balance="1"))
    lake.load()
    state = look_anew(lake)

    def refused(former, table, match):
        with pytest.raises(NeedsOperator, match=match):
            rename.rename(spark, lake.file, "bank", former, table)
        assert look_anew(lake) == state

    refused(FORMER, TABLE, r"london/bank sent public\.accounts, and nothing of public\.clients")
    refused(FORMER, "public.none", r"no table public\.none that public\.accounts")
    refused("public.none", TABLE, r"no table public\.none")
    other.commit(other.schema(table=TABLE), other.insert(TABLE, id=2, name="n", balance="1"))
    one.commit(one.insert(id=3, name="n", balance="1"))
    lake.load()
    state = look_anew(lake)
    refused(FORMER, TABLE, r"jakarta/bank sent public\.accounts after public\.clients")


@pytest.mark.long
def test_bronze_that_is_read_again_from_kafka_has_the_new_name(spark, lake_file, feed, loaded):
    source = feed()
    file = lake_file(bank=source.topic)
    source.commit(source.schema(), source.insert(id=1, name="n", balance="1"))
    loaded(file)
    source.commit(source.schema(table=TABLE), source.insert(TABLE, id=2, name="n", balance="1"))
    loaded(file)
    rename.rename(spark, file, "bank", FORMER, TABLE)
    replay.of_bronze(spark, file, "bank", None)
    replay.of_silver(spark, file, "bank")
    rows = published_tables.frame(spark, file, "bank", TABLE).select("id").collect()
    assert sorted(row["id"] for row in rows) == [1, 2]


@pytest.mark.long
def test_a_bronze_of_before_the_rename_that_is_put_back_has_the_new_name_again(lake, tmp_path):
    raw = Path(bronze.table_path(lake.file, "bank"))
    shutil.copytree(raw, tmp_path / "kept")
    rename.rename(lake.spark, lake.file, "bank", FORMER, TABLE)
    lake.feeds[0].commit(lake.feeds[0].insert(TABLE, id=6, name="new", balance="1"))
    lake.load()
    shutil.rmtree(raw)
    shutil.copytree(tmp_path / "kept", raw)
    look_anew(lake)
    lake.feeds[0].waiting = []
    lake.feeds[0].commit(lake.feeds[0].insert(TABLE, id=8, name="newer", balance="1"))
    lake.load()
    rebuild.rebuild(lake.spark, lake.file, "bank", TABLE)
    assert set(ROWS) <= set(lake.rows("id", "name", table=TABLE))


@pytest.mark.long
def test_a_rename_that_is_killed_behind_each_of_its_commits_is_ended_by_the_next_one(lake):
    kills, number = 0, 10
    while True:
        before, wanted = count_commits(lake.file), kills + 1
        command = f"rename bank {FORMER} {TABLE}"
        if not killed_when(lake.file, command, lambda: count_commits(lake.file) - before >= wanted):  # noqa: B023 - it is used at once.
            break
        kills += 1
        # then loads go on, and readers have whole publications
        look_anew(lake)
        number += 1
        lake.feeds[0].commit(lake.feeds[0].insert(TABLE, id=number, name="while", balance="1"))
        assert lake.load().problems == {}
        assert (J, number, "while") in lake.rows("id", "name", table=TABLE)
    assert kills > 1
    look_anew(lake)
    assert lake.load().problems == {}
    while_killed = [(J, number, "while") for number in range(11, 11 + kills)]
    assert lake.rows("id", "name", table=TABLE) == sorted([*ROWS, *while_killed], key=str)
    assert versions(lake) == HISTORY | {"while": kills}
    assert set(look_anew(lake).tables) == {TABLE}
