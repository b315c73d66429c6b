"""A lake right after an accident: what is loaded next equals what bronze has."""

import shutil
from pathlib import Path

import pytest

from spark_jobs import noop_check
from spark_jobs.bronze import load as bronze
from spark_jobs.maintenance import replay_silver
from spark_jobs.state import log_files

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
