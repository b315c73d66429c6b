"""A lake after weeks in which nobody wrote to it, or only now and then: what is published is readable at any age (L1, L2)."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from spark_jobs.maintenance import maintain, replay
from spark_jobs.query import engine, published_tables
from spark_jobs.silver import table_task
from spark_jobs.state import published
from spark_jobs.verify.lake import LakeAt
from tests.lake.age import age
from tests.lake.death import dying_before_it_publishes
from tests.lake.logged import LoggedLake

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(1500)

J = "jakarta/bank"
LOG = {"entry": ("text", None, None)}


def ms(hour):
    return int(datetime(2026, 1, 31, hour, tzinfo=UTC).timestamp() * 1000)


def names(frame):
    return sorted(row["name"] for row in frame.select("name").collect())


@pytest.fixture(scope="module")
def loaded_bank(spark, tmp_path_factory):
    """Return a lake with two published states; the second table is idle after the first one."""
    logged = LoggedLake(spark, tmp_path_factory.mktemp("bank"))
    source, _ = logged.feeds
    source.commit(source.schema(), source.insert(id=1, name="nine", balance="1.00"), at=ms(9))
    source.commit(source.schema(LOG, (), "public.log"), source.insert("public.log", entry="nine"), at=ms(9))
    logged.load()
    source.commit(source.update(id=1, name="ten", balance="1.00"), at=ms(10))
    logged.load()
    return logged


@pytest.fixture
def bank(loaded_bank, tmp_path):
    """Return the source of a copy of that lake, its file and how it is loaded."""
    copy = loaded_bank.copy_to(tmp_path / "bank")
    return copy.feeds[0], copy.file, copy.load


def readable(spark, lake, *, silver_names, log=1):
    """Check all ways in which published versions are read."""
    assert names(published_tables.frame(spark, lake, "bank", "public.accounts")) == silver_names
    assert published_tables.frame(spark, lake, "bank", "public.log").count() == log
    side = LakeAt(spark, lake, "bank")
    try:
        assert names(side.frame(J, "public.accounts")) == silver_names
    finally:
        side.close()
    sql_engines = [
        engine.SqlEngine(spark.newSession(), lake),
        engine.SqlEngine(spark.newSession(), lake, as_of=_at(9)),
    ]
    try:
        assert names(sql_engines[0].ask("SELECT name FROM silver.accounts")) == silver_names
        assert sql_engines[0].ask("SELECT entry FROM silver.log").count() == log
        assert names(sql_engines[1].ask("SELECT name FROM silver.accounts")) == ["nine"]
        assert sql_engines[1].ask("SELECT entry FROM silver.log").count() == 1
        return names(sql_engines[0].ask("SELECT name FROM silver_live.accounts"))
    finally:
        for sql_engine in sql_engines:
            sql_engine.close()


def _at(hour):
    return datetime(2026, 1, 31, hour, 30, tzinfo=UTC)


@pytest.mark.long
@pytest.mark.parametrize("days", [(8, 40), (40, 8)])
def test_l1_published_versions_are_read_at_any_age(spark, bank, days):
    # given a lake that nobody touched for so long
    source, lake, load = bank
    age(spark, lake, days[0])
    # when all its tables are written, by a load that dies before it publishes
    source.commit(source.update(id=1, name="eleven", balance="1.00"), source.insert("public.log", entry="x"), at=ms(11))
    with dying_before_it_publishes(lake):
        load()
    # then what is published is not the newest version any more, and is read all the same
    assert readable(spark, lake, silver_names=["ten"]) == ["eleven"]
    # when maintenance runs, on files that are older still
    age(spark, lake, days[1])
    report = maintain.maintain(spark, lake, "bank")
    # then it removes nothing that a published version needs
    assert set(report.skipped) == {"silver/bank/public.accounts", "silver/bank/public.log"}
    assert names(published_tables.frame(spark, lake, "bank", "public.accounts")) == ["ten"]
    assert published_tables.frame(spark, lake, "bank", "public.log").count() == 1
    # and loads, maintenance and replays go on, from a point and from the beginning
    load()
    age(spark, lake, days[0])
    assert maintain.maintain(spark, lake, "bank").skipped == []
    # and sessions that know nothing of the lake read what maintenance published, though a load has committed since
    source.commit(source.insert("public.log", entry="y"), at=ms(12))
    with dying_before_it_publishes(lake):
        load()
    stranger = spark.newSession()
    stranger.conf.set("spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration", "true")
    assert published_tables.frame(stranger, lake, "bank", "public.log").count() == 2
    load()
    with dying_before_it_publishes(lake):
        replay.of_silver(spark, lake, "bank", {J: published.latest(spark, lake, "bank").positions[J]})
    replay.of_silver(spark, lake, "bank")
    assert readable(spark, lake, silver_names=["eleven"], log=3) == ["eleven"]


@pytest.mark.long
@pytest.mark.parametrize("keep_days", [3, 30])
def test_l2_replaced_files_are_kept_for_keep_days(spark, bank, keep_days):
    # given files of which some were replaced, the rest is current
    _, lake, _ = bank
    lake = msgspec.structs.replace(lake, lake=msgspec.structs.replace(lake.lake, keep_days=keep_days))
    accounts = Path(table_task.path(lake, "bank", "public.accounts"))
    maintain.maintain(spark, lake, "bank")
    before = set(accounts.glob("*.parquet"))
    current = len(published_tables.frame(spark, lake, "bank", "public.accounts").inputFiles())
    assert len(before) > current
    # when they were replaced less than `keep_days` ago
    age(spark, lake, keep_days - 1)
    maintain.maintain(spark, lake, "bank")
    assert set(accounts.glob("*.parquet")) == before
    # then not before that time is over they go
    age(spark, lake, 2)
    maintain.maintain(spark, lake, "bank")
    assert len(set(accounts.glob("*.parquet"))) == current
    assert names(published_tables.frame(spark, lake, "bank", "public.accounts")) == ["ten"]


@pytest.mark.long
def test_keep_days_that_is_shortened_from_thirty_to_one_removes_what_is_older_and_nothing_that_is_published(
    spark, bank
):
    """An idle table's published version is of long before what its log keeps from then on."""
    source, lake, load = bank
    long = msgspec.structs.replace(lake, lake=msgspec.structs.replace(lake.lake, keep_days=30))
    short = msgspec.structs.replace(lake, lake=msgspec.structs.replace(lake.lake, keep_days=1))
    maintain.maintain(spark, long, "bank")
    # given commits for twenty days, of one table alone
    for number in range(4):
        source.commit(source.update(id=1, name=f"name {number}", balance="1.00"), at=ms(11) + number)
        assert load().problems == {}
        age(spark, lake, 5)
    accounts = Path(table_task.path(lake, "bank", "public.accounts"))
    before = {file.name for file in accounts.glob("*.parquet")}
    # when
    for _ in range(2):
        report = maintain.maintain(spark, short, "bank")
        assert report.skipped == []
        age(spark, lake, 1.5)
    assert maintain.maintain(spark, short, "bank").skipped == []
    # then what was replaced is gone, and all that is published is there
    left = {file.name for file in accounts.glob("*.parquet")}
    assert len(left) < len(before)
    assert names(published_tables.frame(spark, short, "bank", "public.accounts")) == ["name 3"]
    assert published_tables.frame(spark, short, "bank", "public.log").count() == 1
    source.commit(
        source.insert("public.log", entry="next"), source.update(id=1, name="next", balance="1.00"), at=ms(12)
    )
    assert load().problems == {}
    assert names(published_tables.frame(spark, short, "bank", "public.accounts")) == ["next"]
    assert published_tables.frame(spark, short, "bank", "public.log").count() == 2
    # and the past is built from bronze, or again from a publication that is kept
    past = engine.SqlEngine(spark.newSession(), short, as_of=_at(9))
    try:
        assert names(past.ask("SELECT name FROM silver.accounts")) == ["nine"]
    finally:
        past.close()
    assert replay.of_silver(spark, short, "bank").problems == {}
    assert names(published_tables.frame(spark, short, "bank", "public.accounts")) == ["next"]
