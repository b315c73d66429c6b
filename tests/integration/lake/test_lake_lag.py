"""Silver far behind bronze, and a source whose transaction stays open while others go on (L6)."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

from spark_jobs.bronze import increment
from spark_jobs.bronze import load as bronze
from spark_jobs.maintenance import maintain
from spark_jobs.query import engine, overlay_databases
from spark_jobs.silver import batch_profile
from spark_jobs.state import published
from tests.lake.age import age

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(900)

J, L = "jakarta/bank", "london/bank"
LOG = {"entry": ("text", None, None)}
WIDE = LOG | {"note": ("text", None, None)}


def entry(feed, text, *ahead, **how):
    return feed.commit(*ahead, feed.insert("public.log", entry=text), **how)


def live(spark, lake):
    sql_engine = engine.SqlEngine(spark.newSession(), lake.file)
    try:
        return sorted(
            (row["_source"], row["entry"]) for row in sql_engine.ask("SELECT * FROM silver_live.log").collect()
        )
    finally:
        sql_engine.close()


@pytest.mark.long
def test_l6_silver_resumes_when_bronze_has_no_files_of_the_time_when_it_stopped(spark, logged_lake):
    # given bronze that went on for weeks after silver's last load: of what came first, one transaction is not whole
    lake = logged_lake()
    jakarta, london = lake.feeds
    for feed in lake.feeds:
        entry(feed, "first", feed.schema(LOG, (), "public.log"))
    lake.load()
    entry(jakarta, "half", ends=False)
    assert lake.load().waiting == {J: 1}
    for text in ("second", "third"):
        entry(london, text)
        lake.to_bronze()
    folder = Path(bronze.table_path(lake.file, "bank"))
    before = set(folder.glob("*.parquet"))
    assert "bronze/bank" in maintain.maintain(spark, lake.file, "bank").compacted
    age(spark, lake.file, 8)
    maintain.maintain(spark, lake.file, "bank")
    # and maintenance has removed the files that came then
    assert not before & set(folder.glob("*.parquet"))
    entry(jakarta, "whole")
    lake.to_bronze()
    # when and then
    expected = sorted([(J, "first"), (J, "half"), (J, "whole"), (L, "first"), (L, "second"), (L, "third")])
    assert live(spark, lake) == expected
    assert lake.load().changes == {"public.log": 4}
    assert lake.rows("entry", table="public.log") == expected


@pytest.mark.long
def test_l6_an_unfinished_transaction_holds_up_its_source_alone(spark, logged_lake):
    # given
    lake = logged_lake()
    jakarta, london = lake.feeds
    for feed in lake.feeds:
        entry(feed, "first", feed.schema(LOG, (), "public.log"))
    lake.load()
    # when a source leaves a transaction open, and others go on
    entry(jakarta, "a", ends=False)
    read = []

    def rows(*given, really=increment.rows):
        read.append(really(*given))
        return read[-1]

    expected = [(J, "first"), (L, "first")]
    for number in range(2):
        entry(london, f"{number}")
        expected.append((L, f"{number}"))
        with patch.object(increment, "rows", rows):
            assert lake.load().waiting == {J: 1}
        # then these are shown, and nothing of the open one is, not in live rows either
        assert lake.rows("entry", table="public.log") == sorted(expected)
        assert live(spark, lake) == sorted(expected)
    # and a load reads what came since the last one, not what came since the transaction began: once to see whether that ended
    assert [frame.count() for frame in read] == [2, 1, 1]
    # when more of it comes, with a schema record ahead of its change, which comes later
    jakarta.commit(jakarta.insert("public.log", entry="b"), ends=False)
    jakarta.commit(jakarta.schema(WIDE, (), "public.log"), ends=False)
    assert lake.load().waiting == {J: 2}
    # then once it has ended, all of it is shown, once
    london.commit(london.schema(WIDE, (), "public.log"), london.insert("public.log", entry="3", note="l"))
    jakarta.commit(jakarta.insert("public.log", entry="c", note="j"), ends=True)
    lake.to_bronze()
    expected = sorted([*expected, (J, "a"), (J, "b"), (J, "c"), (L, "3")])
    assert live(spark, lake) == expected
    report = lake.load()
    assert (report.changes, report.waiting) == ({"public.log": 4}, {})
    assert lake.rows("entry", table="public.log") == expected
    assert [row for row in lake.rows("entry", "note", table="public.log") if row[2]] == [(J, "c", "j"), (L, "3", "l")]
    assert published.latest(spark, lake.file, "bank").unfinished == {}
    # and a schema record at the end of what a load sees is there for its change, which the next load sees
    jakarta.commit(jakarta.schema(LOG | {"late": LOG["entry"]}, (), "public.log"), ends=False)
    lake.load()
    jakarta.commit(jakarta.insert("public.log", entry="d", late="x"))
    lake.load()
    assert [row for row in lake.rows("entry", "late", table="public.log") if row[2]] == [(J, "d", "x")]


@pytest.mark.long
def test_l50_a_moment_in_the_past_is_looked_for_behind_what_was_published_by_then(spark, logged_lake, monkeypatch):
    """L50: each '--as-of' read all of bronze to find the first transaction after the moment."""
    # given what was published, and what came to its sources an hour later
    lake = logged_lake()
    now = datetime.now(UTC)
    for feed in lake.feeds:
        entry(feed, "early", feed.schema(LOG, (), "public.log"), at=_ms(now - timedelta(hours=1)))
    lake.load()
    moment = datetime.now(UTC)
    for feed in lake.feeds:
        entry(feed, "late", at=_ms(moment + timedelta(hours=1)))
    lake.load()
    lows = []

    def within(low, high=None, really=batch_profile.within):
        lows.append(dict(low))
        return really(low, high)

    monkeypatch.setattr(batch_profile, "within", within)
    # then nothing before that is read
    cut = overlay_databases.high_watermarks(spark, lake.file, "bank", moment)
    assert lows == [cut]
    assert sorted(cut) == [J, L]
    # and where a source's clock was ahead of it, all is read
    earlier = overlay_databases.high_watermarks(spark, lake.file, "bank", now - timedelta(hours=2))
    assert (lows[1:], earlier) == ([], {})
    later = overlay_databases.high_watermarks(spark, lake.file, "bank", moment + timedelta(hours=2))
    assert all(later[source] > cut[source] for source in (J, L))


def _ms(when):
    return int(when.timestamp() * 1000)
