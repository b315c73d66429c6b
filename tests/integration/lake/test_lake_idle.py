"""A stream in which nothing happens for weeks: a load still knows where it goes on (L22)."""

import time
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.errors import NeedsOperator
from spark_jobs import preflight
from spark_jobs.bronze import load as bronze
from spark_jobs.maintenance import maintain, replay
from spark_jobs.query import published_tables
from spark_jobs.silver import load as silver
from spark_jobs.state import delta_log, offsets, published
from tests.lake.age import age

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(900)


def lose_notes(spark, lake, path):
    """Let a lake be as after weeks in which only others committed to bronze, so that its log has no note."""
    age(spark, lake, 40)
    clean_log(spark, path)
    assert delta_log.note(spark, path, offsets.NOTE) is None


def keeping(lake, days):
    """Return the lake with another 'bronze_keep_days'."""
    return msgspec.structs.replace(lake, lake=msgspec.structs.replace(lake.lake, bronze_keep_days=days))


def offsets_in(spark, path):
    return sorted(row["offset"] for row in spark.read.format("delta").load(path).select("offset").collect())


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


@pytest.mark.long
def test_l22_bronze_that_was_idle_for_weeks_goes_on_from_its_note(spark, feed, lake_file, kafka):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")
    path = bronze.table_path(lake, "bank")
    first = delta_log.note(spark, path, offsets.NOTE)
    assert preflight.report(lake, "bank") is not None
    # when maintenance runs, and later a load with nothing to do, each of which finds an old note
    age(spark, lake, 20)
    maintain.maintain(spark, lake, "bank")
    age(spark, lake, 20)
    assert preflight.report(lake, "bank", "bronze") is None
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


def _age(spark, lake, source, loaded, change):
    """Load a row that is then 30 days old, and a change that is not; return the path of bronze."""
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    loaded(lake)
    path = bronze.table_path(lake, "bank")
    spark.sql(f"UPDATE delta.`{path}` SET timestamp = timestamp - INTERVAL 30 DAYS")
    source.commit(change)
    loaded(lake)
    return path


@pytest.mark.long
def test_maintenance_writes_a_note_that_is_gone_ahead_of_what_rows_show_of_it(spark, feed, lake_file, loaded):
    # given bronze without a note, of which all rows but the last are old
    source = feed()
    lake = keeping(lake_file(bank=source.topic), 20)
    path = _age(spark, lake, source, loaded, source.insert(id=2, name="b", balance="1.00"))
    lose_notes(spark, lake, path)
    # when
    maintain.maintain(spark, lake, "bank")
    # then rows were removed, and loads go on
    assert published.latest(spark, lake, "bank").bronze_removed
    source.commit(source.insert(id=3, name="c", balance="1.00"))
    assert loaded(lake).changes == {"public.accounts": 1}
    assert len(offsets_in(spark, path)) == len(set(offsets_in(spark, path))) == 3


@pytest.mark.long
@pytest.mark.parametrize("kafka_has_all", [False, True])
def test_a_load_that_rows_do_not_show_where_to_go_on_is_led_out_by_its_hint(
    spark, feed, lake_file, loaded, kafka, kafka_has_all
):
    # given bronze without a note, of which rows were removed
    source = feed()
    lake = keeping(lake_file(bank=source.topic), 20)
    path = _age(spark, lake, source, loaded, source.update(id=1, name="b", balance="1.00"))
    assert maintain.remove_old_records(spark, lake, "bank")
    lose_notes(spark, lake, path)
    if not kafka_has_all:
        # as it is by then: Kafka has what came last, at most
        admin, place = (
            AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0}),
            TopicPartition(source.topic, 0),
        )
        place.offset = max(offsets_in(spark, path))
        admin.delete_records([place])[place].result(60)
    with pytest.raises(NeedsOperator, match="bronze_keep_days") as refused:
        bronze.load(spark, lake, "bank")
    # maintenance goes on meanwhile
    maintain.maintain(spark, lake, "bank")
    # when what the hint says is done
    assert "headrace lake replay bank --layer bronze" in refused.value.hint
    replay.of_bronze(spark, lake, "bank", None)
    source.commit(source.insert(id=2, name="c", balance="1.00"))
    # then loads go on, without a gap
    assert loaded(lake).changes == {"public.accounts": 1}
    assert len(offsets_in(spark, path)) == len(set(offsets_in(spark, path)))
    rows = published_tables.frame(spark, lake, "bank", "public.accounts").select("id", "name").collect()
    assert sorted(map(tuple, rows)) == [(1, "b"), (2, "c")]
