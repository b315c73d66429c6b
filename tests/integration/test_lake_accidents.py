"""A lake right after an accident: what is loaded next equals what bronze has."""

import shutil
from pathlib import Path
from unittest.mock import patch

import pytest
from delta.tables import DeltaMergeBuilder

from headrace.errors import Retryable
from spark_jobs import noop_check
from spark_jobs.bronze import load as bronze
from spark_jobs.maintenance import replay_silver
from spark_jobs.silver import scd2
from spark_jobs.state import log_files, published

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
    assert not noop_check._silver_is_current(log_files.of_lake(lake.file), lake.file, "bank")
    assert lake.load().changes == {"public.accounts": 1}
    assert lake.rows("id") == [(J, number) for number in range(4)]
    # and a replay in between changes nothing of that
    shutil.rmtree(Path(bronze.table_path(lake.file, "bank")))
    source.commit(source.insert(id=4, name="a", balance="1.00"))
    source.waiting = records + source.waiting
    lake.to_bronze()
    assert replay_silver.replay(spark, lake.file, "bank").problems == {}
    assert lake.load().changes == {"public.accounts": 1}
    assert lake.rows("id") == [(J, number) for number in range(5)]


def versions(lake):
    """Return the published versions of a table's rows: key, values, and whether they ended."""
    table = published.latest(lake.spark, lake.file, "bank").tables["public.accounts"]
    path = scd2.path(lake.file, "bank", "public.accounts")
    frame = lake.spark.read.format("delta").option("versionAsOf", table.history).load(path)
    rows = frame.selectExpr("id", "name", "CAST(balance AS STRING)", f"{scd2.UPTO} IS NOT NULL").collect()
    return sorted(map(tuple, rows))


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
