"""Layers done again: silver from bronze, bronze from Kafka, with the old rows readable until the new ones stand."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.errors import ConfigurationError, NeedsOperator
from spark_jobs.bronze import load as bronze
from spark_jobs.maintenance import replay
from spark_jobs.query import published_tables
from spark_jobs.silver import load as silver
from spark_jobs.silver import table_task
from spark_jobs.state import delta_log, published
from tests.lake.defect import as_a_load

LOG = {"entry": ("text", None, None)}


def accounts(spark, lake):
    frame = published_tables.frame(spark, lake, "bank", "public.accounts").select("id", "name", "balance")
    return sorted(tuple(row) for row in frame.collect())


def entries(spark, lake):
    return sorted(
        row["entry"] for row in published_tables.frame(spark, lake, "bank", "public.log").select("entry").collect()
    )


def load(spark, lake):
    bronze.load(spark, lake, "bank")
    return silver.load(spark, lake, "bank")


@pytest.mark.long
def test_silver_is_done_again_from_the_beginning_or_from_a_point(spark, feed, lake_file):
    # given two loads
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), *(source.insert(id=i, name="a", balance="1.00") for i in (1, 2)))
    first = source.commit(source.schema(LOG, (), "public.log"), source.insert("public.log", entry="one"))
    load(spark, lake)
    second = source.commit(source.update(id=1, name="b", balance="1.00"), source.insert("public.log", entry="two"))
    source.commit(source.delete(id=2), source.insert("public.log", entry="three"))
    load(spark, lake)
    rows = [(1, "b", Decimal("1.00"))]
    # when rows become wrong, which a load does not see
    for name, change in (("public.accounts", "SET name = 'spoilt'"), ("public.log", "SET entry = 'spoilt'")):
        with as_a_load(spark):
            spark.sql(f"UPDATE delta.`{table_task.path(lake, 'bank', name)}` {change}")
    source.commit(source.insert(id=3, name="c", balance="1.00"))
    load(spark, lake)
    assert accounts(spark, lake)[0][1] == "spoilt"
    readers = published.latest(spark, lake, "bank")
    # then all of it is done again, and what was published before can still be read
    report = replay.of_silver(spark, lake, "bank")
    assert report.problems == {}
    assert accounts(spark, lake) == [*rows, (3, "c", Decimal("1.00"))]
    assert entries(spark, lake) == ["one", "three", "two"]
    old = spark.read.format("delta").option("versionAsOf", readers.tables["public.accounts"].version)
    assert old.load(table_task.path(lake, "bank", "public.accounts")).filter("name = 'spoilt'").count() == 1
    # and from a position or an offset on: as much as came since the load before it
    with pytest.raises(ConfigurationError, match="no position"):
        replay.positions(spark, lake, "bank", second)
    point = replay.positions(spark, lake, "bank", "0:7")
    assert replay.positions(spark, lake, "bank", f"jakarta/bank={second[:-1]}0") == point == {"jakarta/bank": first}
    report = replay.of_silver(spark, lake, "bank", point)
    assert report.changes["public.log"] == 2
    assert entries(spark, lake) == ["one", "three", "two"]
    assert accounts(spark, lake) == [*rows, (3, "c", Decimal("1.00"))]
    # and loads go on
    source.commit(source.insert("public.log", entry="four"), source.update(id=3, name="d", balance="1.00"))
    load(spark, lake)
    assert entries(spark, lake) == ["four", "one", "three", "two"]
    assert accounts(spark, lake) == [*rows, (3, "d", Decimal("1.00"))]


@pytest.mark.long
def test_bronze_is_done_again_from_what_kafka_still_holds(spark, feed, lake_file, kafka):
    # given a table without a key, of which half a transaction waits
    source = feed()
    lake = lake_file(bank=source.topic)
    path = bronze.table_path(lake, "bank")

    def at(hour):
        return int(datetime(2026, 1, 31, hour, tzinfo=UTC).timestamp() * 1000)

    source.commit(source.schema(LOG, (), "public.log"), source.insert("public.log", entry="one"), at=at(1))
    source.commit(source.insert("public.log", entry="two"), at=at(2))
    source.commit(source.insert("public.log", entry="half"), ends=False, at=at(3))
    load(spark, lake)
    before = sorted(row["value"] for row in spark.read.format("delta").load(path).collect())
    # when somebody spoils rows of it, and it is done again from a time on
    spark.sql(f"UPDATE delta.`{path}` SET value = 'spoilt' WHERE offset >= 3")
    report = replay.of_bronze(spark, lake, "bank", "2026-01-31T01:30:00")
    # then
    assert report.records == 2
    assert sorted(row["value"] for row in spark.read.format("delta").load(path).collect()) == before
    # and loads go on, once
    source.commit(source.insert("public.log", entry="three"), at=at(4))
    load(spark, lake)
    assert entries(spark, lake) == ["half", "one", "three", "two"]
    held = spark.read.format("delta").load(path)
    assert held.count() == held.select("offset").distinct().count() == 5
    # and what Kafka no longer holds is refused, and kept when all the rest is done again
    place = TopicPartition(source.topic, 0, 3)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.delete_records([place])[place].result(60)
    with pytest.raises(NeedsOperator, match="partition 0: offsets 0 to 2"):
        replay.of_bronze(spark, lake, "bank", "0")
    assert replay.of_bronze(spark, lake, "bank", None).records == 3
    assert spark.read.format("delta").load(path).count() == 5
    assert delta_log.note(spark, path, "bronze")[1]["rewritten"] is not None
