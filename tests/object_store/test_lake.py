"""A lake on S3 (L5): loaded, killed, resumed, read live and as of a time, and maintained."""

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import requests

from spark_jobs.bronze import load as bronze
from spark_jobs.maintenance import maintain
from spark_jobs.query import engine, published_tables
from spark_jobs.silver import load as silver
from tests.waiting import eventually

#: 2026-01-31, in milliseconds.
EARLY = 1769850900250


def names(frame):
    return sorted(row["name"] for row in frame.select("name").collect())


@pytest.mark.timeout(3600)
def test_a_lake_lives_on_s3(spark, s3, s3_lake, feed):
    # given
    source = feed()
    lake = s3_lake(bank=source.topic)
    source.commit(source.schema(), *(source.insert(id=i, name="a", balance="1.00") for i in range(20)))
    # when a load is killed after its first commit
    first = f"{s3}/{lake.root.removeprefix('s3a://')}/bronze/bank/_delta_log/{0:020d}.json"
    command = [str(Path(sys.executable).with_name("headrace")), "lake", "load", "bank", "--config", str(lake.path)]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: requests.head(first, timeout=30).ok or process.poll() is not None, 300)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    # then the next one goes on from there
    source.commit(source.insert(id=20, name="b", balance="1.00"), at=EARLY + 60_000)
    assert bronze.load(spark, lake, "bank").records == 1
    silver.load(spark, lake, "bank")
    assert names(published_tables.frame(spark, lake, "bank", "public.accounts")) == ["a"] * 20 + ["b"]
    # and what is not loaded yet is live, and what was is found by time
    source.commit(*(source.delete(id=i) for i in range(20)), at=EARLY + 120_000)
    desk = engine.SqlEngine(spark.newSession(), lake)
    assert names(desk.ask("SELECT name FROM silver_live.accounts")) == ["b"]
    assert names(desk.ask("SELECT name FROM silver.accounts")) == ["a"] * 20 + ["b"]
    desk.close()
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")
    assert names(published_tables.frame(spark, lake, "bank", "public.accounts")) == ["b"]
    past = engine.SqlEngine(spark.newSession(), lake, as_of=datetime.fromtimestamp(EARLY / 1000 + 90, UTC))
    assert names(past.ask("SELECT name FROM silver.accounts")) == ["a"] * 20 + ["b"]
    past.close()
    # and maintenance leaves it as it is
    assert maintain.maintain(spark, lake, "bank").compacted
    assert names(published_tables.frame(spark, lake, "bank", "public.accounts")) == ["b"]
    assert bronze.load(spark, lake, "bank").records == 0
