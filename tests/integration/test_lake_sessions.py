"""How many sessions of Spark loads make: counted, since each holds memory and a load may never end (L32)."""

from unittest.mock import patch

from pyspark.sql import SparkSession

from spark_jobs import sizes

LOG = {"entry": ("text", None, None)}


def test_l32_loads_use_sessions_again(spark, logged_lake):
    # given
    lake = logged_lake()
    source, _ = lake.feeds
    tables = ["public.a", "public.b", "public.c"]

    def load(number):
        for table in tables:
            source.commit(source.schema(LOG, ("entry",), table), source.insert(table, entry=f"{number}"))
        assert lake.load().changes == dict.fromkeys(tables, 1)

    made = []

    def new(session, really=SparkSession.newSession):
        made.append(session)
        return really(session)

    # when
    with patch.object(SparkSession, "newSession", new):
        for number in range(3):
            load(number)
    # then each table's rows are there, and sessions were made for tables side by side, not for each table of each load
    assert len(made) <= sizes.tables_at_a_time(spark) + 1
    for table in tables:
        assert [entry for _, entry in lake.rows("entry", table=table)] == ["0", "1", "2"]
