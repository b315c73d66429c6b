"""Tables of a load side by side: how many sessions of Spark that takes (L32), and by what their jobs are known."""

from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from headrace.errors import Retryable
from spark_jobs.errors import SparkFailed
from spark_jobs.silver import load as silver
from spark_jobs.silver import table_load
from spark_jobs.state import published

LOG = {"entry": ("text", None, None), "note": ("text", None, None)}
TABLES = ["public.a", "public.b", "public.c"]


@pytest.mark.long
def test_l32_sessions_are_used_again(logged_lake):
    # given three tables, one with a history
    lake = logged_lake('[streams.bank.tables."public.a"]\nhistory = true\n')
    source, _ = lake.feeds
    sessions = []

    def new(session, really=SparkSession.newSession):
        sessions.append(session)
        return really(session)

    def load(number):
        """Load one table at a time."""
        for table in TABLES:
            row = {"entry": "0", "note": f"{number}"}
            change = source.update(table, **row) if number else source.insert(table, **row)
            source.commit(source.schema(LOG, ("entry",), table), change)
        lake.to_bronze()
        assert silver.load(lake.spark, lake.file, "bank", side_by_side=1).changes == dict.fromkeys(TABLES, 1)

    # when
    with patch.object(SparkSession, "newSession", new):
        for number in range(2):
            load(number)
        first = len(sessions)
        load(2)
    # then a load that follows makes no session
    assert len(sessions) == first <= len(TABLES) + 2
    for table in TABLES:
        assert lake.rows("entry", "note", table=table) == [("jakarta/bank", "0", "2")]


@pytest.mark.long
def test_all_jobs_of_a_load_are_in_its_pool_and_known_by_its_tag(logged_lake):
    # given tables that are written in threads of their own, one with a history, and one whose rows are counted
    lake = logged_lake(
        '[streams.bank.tables."public.a"]\nhistory = true\n'
        '[streams.bank.tables."public.b"]\nexpect = { noted = "note IS NOT NULL" }\n'
    )
    source, _ = lake.feeds
    for table in TABLES:
        source.commit(source.schema(LOG, ("entry",), table), source.insert(table, entry="0", note="0"))
    lake.to_bronze()
    context, tag = lake.spark.sparkContext, "headrace-load-test"
    jobs, others = context.statusTracker(), set(context.statusTracker().getJobIdsForGroup(None))
    context.addJobTag(tag)
    context.setLocalProperty("spark.scheduler.pool", "loads")
    try:
        assert silver.load(lake.spark, lake.file, "bank", side_by_side=3).changes == dict.fromkeys(TABLES, 1)
    finally:
        context.clearJobTags()
        context.setLocalProperty("spark.scheduler.pool", None)
    # then
    tagged = set(context._jsc.sc().statusTracker().getJobIdsForTag(tag))
    assert len(tagged) > len(TABLES)
    assert set(jobs.getJobIdsForGroup(None)) - others - tagged == set()
    pool = context._jsc.sc().getPoolForName("loads")
    assert pool.isDefined()


def test_a_load_that_is_ended_publishes_nothing_that_it_was_ended_at(logged_lake):
    # given a load whose jobs are cancelled while tables are written, so that tables fail
    lake = logged_lake()
    source, _ = lake.feeds
    for table in TABLES:
        source.commit(source.schema(LOG, ("entry",), table), source.insert(table, entry="0", note="0"))
    lake.to_bronze()
    ended = []

    def fail(*_):
        ended.append(True)
        raise SparkFailed("a job was cancelled")

    def on_progress(*_):
        if ended:
            raise Retryable("the load was ended")

    with patch.object(table_load, "apply", fail), pytest.raises(Retryable, match="ended"):
        silver.load(lake.spark, lake.file, "bank", on_progress=on_progress)
    # then no table has failed, and the next load does it all
    assert published.latest(lake.spark, lake.file, "bank").load == 0
    assert silver.load(lake.spark, lake.file, "bank").changes == dict.fromkeys(TABLES, 1)
    assert {t.failures for t in published.latest(lake.spark, lake.file, "bank").tables.values()} == {0}
