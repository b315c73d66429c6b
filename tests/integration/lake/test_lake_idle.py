"""A stream in which nothing happens for weeks: a load still knows where it goes on (L22)."""

import time
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from spark_jobs import noop_check
from spark_jobs.bronze import load as bronze
from spark_jobs.maintenance import maintain
from spark_jobs.silver import load as silver
from spark_jobs.state import delta_log, offsets
from tests.lake.age import age

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(900)


def clean_log(spark, path):
    """Remove the commits from a table's log that are older than its retention, as Delta does behind a checkpoint."""
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('some.property' = 'x')")
    log = Path(path, "_delta_log")
    delta = spark._jvm.org.apache.spark.sql.delta.DeltaLog
    delta.forTable(spark._jsparkSession, path).checkpoint()
    assert (log / "_last_checkpoint").exists()
    for file in log.glob("*.json"):
        if time.time() - file.stat().st_mtime > 30 * 24 * 60 * 60:
            file.unlink()
    delta.clearCache()


def test_l22_bronze_that_was_idle_for_weeks_goes_on_from_its_note(spark, feed, lake_file, kafka):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")
    path = bronze.table_path(lake, "bank")
    first = delta_log.note(spark, path, offsets.NOTE)
    assert noop_check.report(lake, "bank") is not None
    # when maintenance runs, and later a load with nothing to do, each of which finds an old note
    age(spark, lake, 20)
    maintain.maintain(spark, lake, "bank")
    age(spark, lake, 20)
    assert noop_check.report(lake, "bank", "bronze") is None
    assert bronze.load(spark, lake, "bank").records == 0
    # then they have written it again, and no load does so that comes soon after
    second = delta_log.note(spark, path, offsets.NOTE)
    # once behind the properties that the first maintenance sets
    assert second[0] == first[0] + 3
    assert offsets.parse(second[1]) == offsets.parse(first[1])
    assert bronze.load(spark, lake, "bank").records == 0
    assert delta_log.note(spark, path, offsets.NOTE) == second
    # when Kafka and Delta's log have lost all that is older than a month, and loads look once a day
    age(spark, lake, 1)
    clean_log(spark, path)
    assert min(number for number, _ in delta_log.commits(spark, path)) > first[0]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    place = TopicPartition(source.topic, 0, -1)
    admin.delete_records([place])[place].result(60)
    # then a load goes on
    source.commit(source.insert(id=2, name="b", balance="1.00"))
    assert bronze.load(spark, lake, "bank").records == 1
    assert silver.load(spark, lake, "bank").changes == {"public.accounts": 1}
