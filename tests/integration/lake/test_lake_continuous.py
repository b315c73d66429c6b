"""The load as a continuous job: the same tables as by loads that end, changes readable without a merge, and a clean stop."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from headrace.errors import NeedsOperator
from spark_jobs import continuous, load
from spark_jobs.bronze import load as bronze
from spark_jobs.query import engine
from spark_jobs.silver import load as silver
from tests.rules.waiting import eventually


@pytest.fixture
def following(spark, monkeypatch):
    """Return a function that follows a stream until the test ends, or says otherwise, once its first load of silver is done."""
    stopped, loaded, load_silver = Event(), Event(), silver.load

    def note(*given, **options):
        try:
            return load_silver(*given, **options)
        finally:
            loaded.set()

    monkeypatch.setattr(silver, "load", note)
    with ThreadPoolExecutor(1) as pool:

        def start(lake, every):
            heard = []

            def follow():
                continuous.load(spark, lake, "bank", every=every, stopped=stopped, on_report=heard.append)

            loaded.clear()
            running = pool.submit(follow)
            eventually(lambda: loaded.is_set() or running.done(), 300)
            return running, heard, stopped

        yield start
        stopped.set()


def names(sql_engine, database):
    return sorted(row["name"] for row in sql_engine.ask(f"SELECT name FROM {database}.accounts").collect())


def test_what_comes_is_readable_before_it_is_merged_and_after(spark, feed, lake_file, following):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    load.run(spark, lake, "bank")
    sql_engine = engine.SqlEngine(spark.newSession(), lake)
    # when a load of silver is an hour away
    running, _, stopped = following(lake, every=3600)
    source.commit(source.insert(id=2, name="b", balance="1.00"))
    eventually(lambda: names(sql_engine, "silver_live") == ["a", "b"], 300, every=0.5)
    source.commit(source.insert(id=3, name="c", balance="1.00"))
    eventually(lambda: names(sql_engine, "silver_live") == ["a", "b", "c"], 300, every=0.5)
    assert names(sql_engine, "silver") == ["a"]
    # Live rows need not be in bronze.
    eventually(lambda: sql_engine.ask("SELECT value FROM bronze.bank").count() == 4, 300, every=0.5)
    stopped.set()
    assert running.result(300) is None
    # then loads that end go on from there
    source.commit(source.insert(id=4, name="d", balance="1.00"))
    assert load.run(spark, lake, "bank").bronze.records == 1
    assert names(sql_engine, "silver") == ["a", "b", "c", "d"]
    sql_engine.close()


@pytest.mark.long
def test_silver_is_loaded_again_and_again_and_what_stops_bronze_is_raised(spark, feed, lake_file, following):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    running, heard, _ = following(lake, every=0.2)
    eventually(lambda: len(heard) == 1, 300)
    # when
    source.commit(source.insert(id=2, name="b", balance="1.00"))
    # A load in between may find that nothing came.
    loaded = {"public.accounts": 1}
    eventually(lambda: [report.silver.changes for report in heard if report.silver.changes] == [loaded, loaded], 300)
    # and what nobody can read, as the lake has no registry
    source.raw(b"\0\0\0\0\1secret")
    # then
    with pytest.raises(NeedsOperator, match="no \\[registry\\]"):
        running.result(300)
    held = spark.read.format("delta").load(bronze.table_path(lake, "bank"))
    assert held.count() == 3
