"""Tables of a load side by side: how many sessions of Spark that takes (L32)."""

from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from spark_jobs.silver import load as silver

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
