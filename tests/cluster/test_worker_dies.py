"""A load on a Spark cluster whose executors see nothing of the driver's disk but the lake's root (L35)."""

import json
from pathlib import Path

import pytest

from spark_jobs.bronze.sink import table_path
from tests.rules.waiting import eventually

SECRET = "a-row-value-that-no-log-shows"
ROWS = 40


@pytest.mark.timeout(900)
def test_l35_a_worker_dies_in_a_load_and_every_row_is_there_once_and_in_no_log(cluster, cluster_lake, feed, headrace):
    # given
    source = feed()
    lake = cluster_lake(bank=source.topic)
    source.commit(source.schema(), *(source.insert(id=i, name=SECRET, balance="1.00") for i in range(ROWS)))
    # when a worker is killed with its executors once bronze is there, before silver is
    load = headrace("lake", "load", "bank", "--config", lake.path)
    first = Path(table_path(lake, "bank"), "_delta_log", f"{0:020d}.json")
    eventually(lambda: first.exists() or load.process.poll() is not None, 300, every=0.01)
    cluster.kill_worker(0)
    # then
    loaded = load.ended()
    assert loaded.returncode == 0, loaded.stderr
    # and when a query fails at a value
    script = "SELECT id FROM silver.accounts ORDER BY id; SELECT cast(name AS int) FROM silver.accounts;"
    asked = headrace("lake", "sql", "--format", "json", "--config", lake.path, script=script).ended()
    # then the rows are exact, and no executor's log has the value
    assert [json.loads(line)["id"] for line in asked.stdout.splitlines()] == list(range(ROWS)), asked.stderr
    assert asked.returncode != 0
    logs = cluster.executor_logs()
    assert logs, "no executor ran"
    assert [log for log, text in logs.items() if SECRET in text] == []
