"""A lake right after an accident: what is loaded next equals what bronze has."""

import json
import shutil
from pathlib import Path
from unittest.mock import patch

import pytest
from delta.tables import DeltaMergeBuilder

from headrace.errors import Retryable
from spark_jobs import preflight
from spark_jobs.bronze import increment
from spark_jobs.bronze import load as bronze
from spark_jobs.errors import SparkFailed
from spark_jobs.load import Report
from spark_jobs.maintenance import replay
from spark_jobs.silver import batch_profile, scd2, table_task
from spark_jobs.state import published

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(1500)

J = "jakarta/bank"


def test_l37_bronze_that_was_made_again_is_read_from_its_beginning(spark, logged_lake):
    # given a lake of several loads, whose bronze was moved away
    lake = logged_lake()
    source, _ = lake.feeds
    records = []
    for number in range(3):
        source.commit(*([] if number else [source.schema()]), source.insert(id=number, name="a", balance="1.00"))
        records += source.waiting
        lake.load()
    shutil.rmtree(Path(bronze.table_path(lake.file, "bank")))
    # when it is loaded again, with what came since
    source.commit(source.insert(id=3, name="a", balance="1.00"))
    records += source.waiting
    source.waiting = list(records)
    lake.to_bronze()
    # then there is something to do, although its version is lower than that which silver has read
    assert preflight.report(lake.file, "bank", "silver") is None
    assert lake.load().changes == {"public.accounts": 1}
    assert lake.rows("id") == [(J, number) for number in range(4)]
    # and a replay in between changes nothing of that
    shutil.rmtree(Path(bronze.table_path(lake.file, "bank")))
    source.commit(source.insert(id=4, name="a", balance="1.00"))
    source.waiting = records + source.waiting
    lake.to_bronze()
    assert replay.of_silver(spark, lake.file, "bank").problems == {}
    assert lake.load().changes == {"public.accounts": 1}
    assert lake.rows("id") == [(J, number) for number in range(5)]


def versions(lake):
    """Return the published versions of a table's rows: key, values, and whether they ended."""
    table = published.latest(lake.spark, lake.file, "bank").tables["public.accounts"]
    path = table_task.history_path(lake.file, "bank", "public.accounts")
    frame = lake.spark.read.format("delta").option("versionAsOf", table.history).load(path)
    rows = frame.selectExpr("id", "name", "CAST(balance AS STRING)", f"{scd2.UPTO} IS NOT NULL").collect()
    return sorted(map(tuple, rows))


@pytest.mark.long
def test_l38_a_load_of_history_with_a_truncate_that_dies_after_a_commit_is_done_again(logged_lake):
    # given a table with its history
    lake = logged_lake("history = true\n")
    source, _ = lake.feeds
    source.commit(source.schema(), *(source.insert(id=n, name="a", balance=f"{n}.00") for n in (1, 2)))
    lake.load()
    # when a load has an update that lacks a column ahead of a truncate, and a row behind it
    source.commit(source.update(id=1, name="b", unchanged=["balance"]))
    source.commit(source.truncate())
    source.commit(source.insert(id=3, name="a", balance="3.00"))
    execute = DeltaMergeBuilder.execute

    def die(plan):
        execute(plan)
        raise Retryable("killed")

    with patch.object(DeltaMergeBuilder, "execute", die), pytest.raises(Retryable, match="killed"):
        lake.load()
    # and more comes before it is done again
    source.commit(source.update(id=3, name="b", unchanged=["balance"]))
    assert lake.load().problems == {}
    # then every version has its values, and its end
    assert versions(lake) == [
        (1, "a", "1.00", True),
        (1, "b", "1.00", True),
        (2, "a", "2.00", True),
        (3, "a", "3.00", True),
        (3, "b", "3.00", False),
    ]
    assert lake.rows("id", "name") == [(J, 3, "b")]


def test_l40_l45_a_table_that_fails_holds_up_no_other_one_and_a_backlog_is_loaded_in_parts(logged_lake, monkeypatch):
    # given two tables, one of which fails for a reason that may pass
    lake = logged_lake('[streams.bank.tables."public.log"]\nhistory = true\n')
    source, _ = lake.feeds
    log = {"entry": ("text", None, None)}
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    source.commit(source.schema(log, ("entry",), "public.log"), source.insert("public.log", entry="a"))
    lake.load()
    source.commit(source.insert(id=2, name="a", balance="1.00"), source.insert("public.log", entry="b"))

    def fail(*_):
        raise SparkFailed("silver public.log: Spark could not finish (OutOfMemoryError)")

    # when its rows are committed, and its history is not
    with patch.object(scd2, "_write", fail):
        report = lake.load()
    # then the other one is published, and it is as it was
    assert (report.changes, list(report.failed), report.problems) == ({"public.accounts": 1}, ["public.log"], {})
    with pytest.raises(Retryable, match="OutOfMemoryError"):
        Report(silver=report).check()
    assert lake.rows("entry", table="public.log") == [(J, "a")]
    source.has_no_schema("public.orders_del")
    # and when it can go on, with a truncate of a table that never sent a row (N5), in parts of one commit each
    for number in range(3, 6):
        source.commit(
            source.insert(id=number, name="a", balance="1.00"), source.insert("public.log", entry=str(number))
        )
        source.commit(source.truncate("public.orders_del"))
        lake.to_bronze()
    monkeypatch.setattr(increment, "_MOST_ROWS", 1)
    profiled = []

    def profile(*given, really=batch_profile.profile, **named):
        profiled.append(given[1])
        return really(*given, **named)

    with patch.object(batch_profile, "profile", profile):
        report = lake.load()
    # then all of it is there, and the history has read no more than the table (L45)
    assert (report.failed, report.problems) == ({}, {})
    assert report.changes == {"public.accounts": 3, "public.log": 4}
    assert len({low[J] for low in profiled}) == 4
    assert lake.rows("id") == [(J, number) for number in range(1, 6)]
    assert lake.rows("entry", table="public.log") == [(J, entry) for entry in ("3", "4", "5", "a", "b")]
    assert set(published.latest(lake.spark, lake.file, "bank").tables) == {"public.accounts", "public.log"}
    assert lake.load().load is None


def test_l39_l51_a_source_that_was_moved_goes_on_and_a_message_is_whole(logged_lake):
    # given a source that ends in a message outside a transaction
    lake = logged_lake()
    source, other = lake.feeds
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    other.commit(other.schema(), other.insert(id=1, name="a", balance="1.00"))
    source.has_no_schema("")
    message = {"_table": "", "op": "m", "message": {"prefix": "outbox", "content": "eA=="}}
    source.commit(message)
    topic, partition, offset, at, key, value = source.waiting.pop()
    text = json.loads(value)
    del text["transaction"]
    source.waiting.append((topic, partition, offset, at, key, json.dumps(text).encode()))
    # when
    lake.load()
    # then nothing of it is left
    state = published.latest(lake.spark, lake.file, "bank")
    assert (state.unfinished, state.positions[J]) == ({}, text["source"]["position"])
    # and when one load has what it wrote ahead of its move to another partition, and behind it
    source.commit(source.update(id=1, name="b", balance="1.00"))
    early = source.waiting
    source.waiting = []
    source.commit(source.update(id=1, name="c", balance="1.00"))
    moved = [(topic, 7, offset, *rest) for topic, _, offset, *rest in source.waiting]
    source.waiting = early + moved
    assert lake.load().changes == {"public.accounts": 2}
    assert lake.rows("name") == [(J, "c"), ("london/bank", "a")]
    assert set(published.latest(lake.spark, lake.file, "bank").partitions[J]) == {"0", "7"}
    # then what comes late in the former one holds it, and is not skipped (test_lake_held.py)
    source.waiting = [(topic, 0, 99, *rest) for topic, _, _, *rest in moved]
    assert list(lake.load().held) == [J]
