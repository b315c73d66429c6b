"""A load run by a real Airflow scheduler, by itself: on its schedule, with a task killed, over a backlog in bounded batches.

What a run loads is what offsets say, whatever called it: more runs than changes, or fewer, make no difference (B18).
"""

import json
import os
from pathlib import Path

import psutil
import pytest

from tests.rules.waiting import eventually
from tests.servers.airflow_scheduler import Scheduler, TaskState

JARS = Path(os.environ.get("HEADRACE_JARS") or Path(__file__).parents[3] / ".setup" / "jars")
DAG = "headrace_load_bank"
#: Records that a batch of bronze may take.
BATCH = 50


def driver_of(airflow, step):
    """Return the JVM that runs a step, None while there is none."""
    for process in airflow.processes():
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if line and line[0].endswith("java") and line[-1] == step:
            return process
    return None


def batches(lake):
    """Return the rows of each commit of bronze, oldest first."""
    logs = sorted((lake / "bronze" / "bank" / "_delta_log").glob("*.json"))
    commits = [line for log in logs for line in log.read_text().splitlines() if line.startswith('{"commitInfo"')]
    rows = [int(json.loads(line)["commitInfo"]["operationMetrics"].get("numOutputRows", 0)) for line in commits]
    return [count for count in rows if count]


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_scheduled_runs_catch_up_in_bounded_batches_and_a_killed_task_is_tried_again(tmp_path, kafka, feed):
    # Given a backlog of several batches, and a stream that is loaded again whenever its last load is done.
    source = feed("jakarta/bank")
    source.commit(source.schema(), *(source.insert(id=number) for number in range(90)))
    source.commit(*(source.insert(id=100 + number) for number in range(90)))
    path = tmp_path / "lake.toml"
    path.write_text(f"""
[spark.settings]
"spark.sql.shuffle.partitions" = "2"
[lake]
root = "lake"
[kafka]
bootstrap = "{kafka.bootstrap}"
[streams.bank]
topic = "{source.topic}"
sources = ["jakarta/bank"]
records_per_batch = {BATCH}
[streams.bank.schedule]
cron = "@continuous"
retries = 2
retry_seconds = 1
table_groups = 2
""")
    with Scheduler(tmp_path / "airflow", path, jars=JARS) as airflow:
        try:
            # When the driver of the first run's bronze is killed.
            eventually(lambda: driver_of(airflow, "bronze"), 240, saying="bronze is loaded").kill()

            # Then the task is tried again and brings everything, in batches.
            eventually(
                lambda: airflow.runs(DAG)[0].tasks["bronze"].state == "success", 600, every=0.5, saying="bronze is done"
            )
            caught_up = batches(tmp_path / "lake")
            assert sum(caught_up) == 181
            assert len(caught_up) > 2
            assert max(caught_up) <= BATCH

            # And when more comes too late for its bronze, the run ends well.
            source.commit(source.insert(id=1000), source.delete(id=7))
            first = eventually(
                lambda: next((run for run in airflow.runs(DAG) if run.state in {"success", "failed"}), None),
                600,
                every=0.5,
                saying="the first run is over",
            )
            assert (first.kind, first.state) == ("scheduled", "success")
            once = TaskState(state="success", tries=1)
            assert first.tasks["check"] == first.tasks["silver"] == once
            assert {name for name in first.tasks if name.startswith("tables")} == {"tables[0]", "tables[1]"}
            assert first.tasks["tables[0]"] == first.tasks["tables[1]"] == once
            assert first.tasks["bronze"] == TaskState(state="success", tries=2)

            # And a run that is scheduled later brings only what came since.
            eventually(
                lambda: sum(batches(tmp_path / "lake")) == 183, 600, every=0.5, saying="a later run loads the rest"
            )
            eventually(lambda: len(airflow.assets(DAG)) >= 2, 300, every=0.5, saying="its silver is done")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{airflow.said()}") from error
    assert airflow.processes() == []
    assert set(airflow.assets(DAG)) == {"headrace/bank", "headrace/bank/public.accounts"}
    assert batches(tmp_path / "lake")[-1] == 2
