"""Maintenance: fewer files, none that is published lost, and loads that go on as if it had not been."""

import os
import secrets
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from headrace.errors import ReplicationError
from spark_jobs import run_log
from spark_jobs.bronze import load as bronze
from spark_jobs.maintenance import maintain
from spark_jobs.maintenance.vacuum import maintain_own_tables, read_times
from spark_jobs.query import engine, published_tables
from spark_jobs.silver import load as silver
from spark_jobs.silver import table_task
from spark_jobs.state import publication, published
from spark_jobs.state.published import Published
from spark_jobs.verify import report
from tests.lake.age import age
from tests.lake.death import dying_before_it_publishes
from tests.lake.logged import LoggedLake
from tests.lake.opens import Opens
from tests.servers.volume import small_volume

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(1500)

J = "jakarta/bank"
LOG = {"entry": ("text", None, None)}
#: Of a log by the maintenance of its table.
LISTINGS = 7


@pytest.fixture(scope="module")
def loaded_bank(spark, tmp_path_factory):
    """Return a lake of several loads."""
    lake = LoggedLake(spark, tmp_path_factory.mktemp("bank"))
    source, _ = lake.feeds
    source.commit(source.schema(), source.insert(id=0, name="a", balance="1.00"))
    source.commit(source.schema(LOG, (), "public.log"), source.insert("public.log", entry="0"))
    for i in (1, 2):
        lake.load()
        source.commit(source.insert(id=i, name="a", balance="1.00"), source.insert("public.log", entry=str(i)))
    lake.load()
    return lake


@pytest.fixture
def bank(loaded_bank, tmp_path):
    """Return a copy of that lake, its source and its file."""
    copy = loaded_bank.copy_to(tmp_path / "bank")
    return copy, copy.feeds[0], copy.file


def ids(spark, lake):
    return sorted(row["id"] for row in published_tables.frame(spark, lake, "bank", "public.accounts").collect())


def files(path):
    return len(list(Path(path).glob("*.parquet")))


# P11
@pytest.mark.long
def test_published_rows_are_there_all_the_while_and_loads_go_on(spark, bank):
    # given a reader who has asked, and a lake that keeps nothing longer than it must
    bank, source, lake = bank
    keeping = msgspec.structs.replace(lake, lake=msgspec.structs.replace(lake.lake, keep_days=0))
    sql_engine = engine.SqlEngine(spark.newSession(), lake)
    before = sql_engine.ask("SELECT id FROM silver.accounts ORDER BY id").collect()
    # when
    report = maintain.maintain(spark, lake, "bank")
    # then small files became one, and nothing went, since it may still be asked for
    assert set(report.compacted) == {"silver/bank/public.accounts", "silver/bank/public.log", "bronze/bank"}
    assert all(new == 1 < old for old, new in report.compacted.values())
    assert report.skipped == []
    old = files(bronze.table_path(lake, "bank"))
    assert old == 4
    assert published.latest(spark, lake, "bank").load == 4
    # when nothing needs to be kept
    again = maintain.maintain(spark, keeping, "bank")
    # then it goes, and everything that is published stands
    assert again.compacted == {}
    assert files(bronze.table_path(lake, "bank")) == 1
    assert files(table_task.path(lake, "bank", "public.accounts")) == 1
    assert sql_engine.ask("SELECT id FROM silver.accounts ORDER BY id").collect() == before
    assert silver.load(spark, lake, "bank").load is None
    source.commit(source.delete(id=0), source.insert("public.log", entry="4"))
    bank.load()
    assert ids(spark, lake) == [1, 2]
    assert published_tables.frame(spark, lake, "bank", "public.log").count() == 4


@pytest.mark.long
def test_table_that_a_load_has_written_and_not_published_is_left_alone(spark, bank):
    # given a load that died before it published
    bank, source, lake = bank
    source.commit(source.update(id=1, name="b", balance="1.00"))
    with dying_before_it_publishes(lake):
        bank.load()
    # when
    report = maintain.maintain(spark, lake, "bank")
    # then
    assert report.skipped == ["silver/bank/public.accounts"]
    names = published_tables.frame(spark, lake, "bank", "public.accounts").select("name").distinct().collect()
    assert [row["name"] for row in names] == ["a"]
    bank.load()
    assert published_tables.frame(spark, lake, "bank", "public.accounts").filter("name = 'b'").count() == 1


@pytest.mark.long
def test_l42_maintenance_that_is_killed_goes_on_with_what_was_maintained_the_longest_ago(spark, bank, monkeypatch):
    """L42: it published and vacuumed behind all tables, so where it was killed each day nothing was ever vacuumed."""
    # given maintenance of one table at a time, killed behind the first
    _, _, lake = bank
    keeping = msgspec.structs.replace(lake, lake=msgspec.structs.replace(lake.lake, keep_days=0))
    monkeypatch.setattr(maintain, "_SLICE", 1)
    vacuumed, progress = [], []

    def vacuum(session, file, path, version, really=maintain._vacuum):
        vacuumed.append(Path(path).name)
        return really(session, file, path, version)

    monkeypatch.setattr(maintain, "_vacuum", vacuum)

    def killed(done, todo):
        progress.append((done, todo))
        if progress[-1] == (1, 4):
            raise KeyboardInterrupt

    first = read_times(spark, lake, "bank")
    assert first == {}
    assert maintain.is_due(spark, lake, "bank", timedelta(days=1))
    with pytest.raises(KeyboardInterrupt):
        maintain.maintain(spark, keeping, "bank", on_progress=killed)
    # then what it did is published, vacuumed and recorded
    (done,) = read_times(spark, lake, "bank")
    places = {
        "bronze": bronze.table_path(lake, "bank"),
        "public.accounts": table_task.path(lake, "bank", "public.accounts"),
    }
    assert done in places
    assert files(places[done]) == 1
    assert (set(vacuumed) & {"bank", "public.accounts"}, "public.log" in vacuumed) == ({Path(places[done]).name}, False)
    # and the next one goes on behind it
    vacuumed.clear()
    monkeypatch.setattr(maintain, "_vacuum", vacuum)
    report = maintain.maintain(spark, keeping, "bank", older_than=timedelta(days=1), on_progress=killed)
    assert progress[-1] == (3, 3)
    assert Path(places[done]).name not in vacuumed
    assert "silver/bank/public.log" in report.compacted
    assert not maintain.is_due(spark, lake, "bank", timedelta(days=1))
    # and a process that is to end ends it behind a table
    stopped = maintain.maintain(spark, keeping, "bank", stopped=lambda: True)
    assert stopped.compacted == {}
    assert ids(spark, lake) == [0, 1, 2]


@pytest.mark.long
# P12
def test_load_and_maintenance_at_once_lose_nothing(spark, bank):
    # given
    bank, source, lake = bank
    source.commit(source.update(id=1, name="b", balance="1.00"), source.insert("public.log", entry="4"))
    bank.to_bronze()
    # when
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(job, spark, lake, "bank") for job in (silver.load, maintain.maintain)]
        # then neither fails (L15)
        loaded, _ = (one.result() for one in both)
    assert loaded.load is not None
    assert published_tables.frame(spark, lake, "bank", "public.accounts").filter("name = 'b'").count() == 1
    assert published_tables.frame(spark, lake, "bank", "public.log").count() == 4


def test_what_was_published_is_read_again_where_a_lake_was_made_anew(spark, lake_file):
    # given
    lake = lake_file(bank="unread")
    now = datetime.now(UTC)
    publication.append(spark, lake, Published(stream="bank", load=1, started_at=now, changes=1))
    assert published.latest(spark, lake, "bank").changes == 1
    # when
    shutil.rmtree(published.path(lake))
    assert published.latest(spark, lake, "bank").load == 0
    publication.append(spark, lake, Published(stream="bank", load=1, started_at=now, changes=2))
    # then
    assert published.latest(spark, lake, "bank").changes == 2
    assert [state.changes for state in published.latest_of_all(spark, lake)] == [2]


@pytest.mark.long
def test_l47_the_record_of_loads_is_pruned_compacted_and_vacuumed(spark, logged_lake, monkeypatch):
    """L47: a row for each load was kept for ever, and each hundred commits wrote all of them again."""
    # given loads of two sources, a year ago and now, one source of which had nothing to load since
    logged = logged_lake()
    source, _ = logged.feeds
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    logged.load()
    lake = logged.file
    now, path = datetime.now(UTC), run_log.path(lake)
    monkeypatch.setattr(run_log, "_COMPACT_EVERY", 5)

    def record(days, source, upto):
        at = now - timedelta(days=days, seconds=len(source))
        sources = [{"source": source, "after": None, "upto": upto, "commit_time": at, "lag_seconds": 1.0}]
        row = run_log._row("bank", "silver", 1, 1.0, rows=1, files=1, batches=1, offsets=[], sources=sources, tables=[])
        run_log._append(spark, lake, [row | {"started_at": at, "finished_at": at}])

    for number in range(4):
        record(365 - number, "london/bank", f"{number}")
        record(365 - number, J, f"{number}")
    for number in range(4, 8):
        record(1, J, f"{number}")
    # and verdicts of two tables, one of which nobody verifies any more
    verdicts = [
        report.TableReport(source=J, table=f"public.{name}", verdict="equal") for name in ("accounts", "former")
    ]
    for days, verified in ((400, verdicts), (370, verdicts), (365, verdicts[:1]), (2, verdicts[:1]), (1, verdicts[:1])):
        report.record(spark, lake, "bank", verified)
        set_back = f"UPDATE delta.`{report.path(lake)}` SET verified_at = verified_at - INTERVAL {days} DAYS"
        spark.sql(f"{set_back} WHERE verified_at > timestamp '{now - timedelta(hours=12):%Y-%m-%d %H:%M:%S}'")
    # then small files are put together as they come
    assert spark.sql(f"DESCRIBE DETAIL delta.`{path}`").first()["numFiles"] <= 5
    before = {file.name for file in Path(path).glob("*.parquet")}
    # when the lake's own tables are maintained, and again once what was replaced is old
    maintain_own_tables(maintain._session(spark), lake, "bank")
    age(spark, lake, 20)
    maintain_own_tables(maintain._session(spark), lake, "bank")
    # then what is left of each source is where it is, and all of the last month; in one file, and no other one is there
    rows = spark.read.format("delta").load(path).collect()
    assert sorted((row["sources"][0]["source"], row["sources"][0]["upto"]) for row in rows) == [
        *((J, number) for number in "4567"),
        ("london/bank", "3"),
    ]
    assert len(before) > 8
    assert len(list(Path(path).glob("*.parquet"))) <= 2
    # and of verdicts the last ones of each table, and those of a month
    left = spark.read.format("delta").load(report.path(lake)).collect()
    ages = sorted((row["table"], (now - row["verified_at"].astimezone(UTC)).days) for row in left)
    assert ages == [("public.accounts", 0), ("public.accounts", 1), ("public.former", 369)]


@pytest.mark.long
def test_a_disk_that_is_full_in_the_middle_of_an_optimize_costs_that_table_alone_its_turn(spark, tmp_path):
    with small_volume(tmp_path, 24) as volume:
        lake = LoggedLake(spark, volume.path / "lake")
        source, _ = lake.feeds
        # given files that are to be put together, of rows that do not compress
        source.commit(source.schema())
        for part in range(4):
            rows = (
                source.insert(id=part * 1000 + number, name=secrets.token_hex(400), balance="1.00")
                for number in range(1000)
            )
            source.commit(*rows)
            lake.load()
        table = Path(table_task.path(lake.file, "bank", "public.accounts"))
        assert files(table) >= 4
        # when less is left than what they are together
        volume.fill()
        left = volume.path / "other"
        os.truncate(left, left.stat().st_size - 1_000_000)
        with pytest.raises(ReplicationError):
            maintain.maintain(spark, lake.file, "bank")
        # then all that is published is there, also to a process that begins
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        assert ids(spark, lake.file) == list(range(4000))
        # when there is room again
        volume.free()
        report = maintain.maintain(spark, lake.file, "bank")
        assert {"bronze/bank", "silver/bank/public.accounts"} <= report.compacted.keys()
        source.commit(source.delete(id=0))
        assert lake.load().problems == {}
        assert ids(spark, lake.file) == list(range(1, 4000))


def test_the_log_of_a_table_is_listed_a_few_times_whatever_is_asked_of_it(spark, bank):
    """On a file system a listing has all commits of weeks: forty thousand names took half a second of CPU each time."""
    # given tables with files to put together
    _, _, lake = bank
    log = f"{table_task.path(lake, 'bank', 'public.accounts')}/_delta_log"
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    with Opens(Path(lake.root)) as opens:
        report = maintain.compact(spark, lake, "bank", ["public.accounts"])
    assert "silver/bank/public.accounts" in report.compacted
    # then there is one for all looks, and what OPTIMIZE does by itself
    assert opens._listed.count(log) <= LISTINGS, opens._listed.count(log)
