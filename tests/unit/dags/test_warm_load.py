"""A step of a load in Airflow: a server loads it where one listens, else spark-submit does; a task that ends, ends its load.

In a process of its own: Airflow takes seconds to import.
"""

import json
import os
import subprocess
import sys

SCRIPT = """
import json, os, signal, sys, threading
from pathlib import Path
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from dags.warm_load import WarmLoadOperator
from headrace.errors import NeedsOperator, Retryable
from headrace.warm_loads import Answer
from spark_jobs.serve import load_door

class Loads:
    def __init__(self):
        self.asked, self.begun, self.cancelled = [], threading.Event(), threading.Event()

    def run(self, tag, request, on_progress):
        self.asked.append([request.stream, request.config, request.only, request.group, request.check])
        on_progress("silver", 1, 2)
        self.begun.set()
        if request.stream == "stopped":
            raise NeedsOperator("a table stopped")
        if request.stream == "later":
            raise Retryable("again")
        if request.stream == "long":
            self.cancelled.wait(60)
            raise Retryable("cancelled")
        return Answer(report={}, text="all is loaded")

    def cancel(self, tag):
        self.cancelled.set()

folder, submitted, loads = Path(sys.argv[1]), [], Loads()
SparkSubmitOperator.execute = lambda self, context: submitted.append(self.application_args)

def step(stream, *more):
    arguments = [stream, "--config", "/l.toml", "--step", "silver", *more]
    with DAG(stream):
        return WarmLoadOperator(task_id="silver", loads=str(folder), application="submit.py", application_args=arguments)

def ends(operator):
    try:
        operator.execute({})
    except Exception as error:
        return f"{type(error).__name__}: {error}"

ended = {"nobody": ends(step("nobody"))}
with load_door.LoadDoor(folder, loads):
    for stream, more in (("bank", ["--report-stopped"]), ("group", ["--group", "1/2"]), ("stopped", []), ("later", [])):
        ended[stream] = ends(step(stream, *more))
    # Airflow ends a task once more when its time is over, and its connection closed.
    late = step("bank")
    ends(late)
    late.on_kill()
    long = step("long")
    loads.begun.clear()
    signal.signal(signal.SIGTERM, lambda *_: long.on_kill())
    threading.Thread(target=lambda: loads.begun.wait(60) and os.kill(os.getpid(), signal.SIGTERM)).start()
    ended["long"] = ends(long)
    cancelled = loads.cancelled.wait(60)
print(json.dumps({"ended": ended, "asked": loads.asked, "submitted": submitted, "cancelled": cancelled}))
"""


def test_a_step_is_loaded_by_a_server_or_else_by_spark_submit_and_ends_with_its_task(tmp_path):
    settings = {"AIRFLOW_HOME": str(tmp_path / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(tmp_path / "loads")]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["submitted"] == [["nobody", "--config", "/l.toml", "--step", "silver"]]
    assert found["ended"] == {
        "nobody": None,
        "bank": None,
        "group": None,
        # an operator's matter is not tried again
        "stopped": "AirflowFailException: a table stopped ",
        "later": "RuntimeError: again ",
        "long": "RuntimeError: the task was ended, and its load with it",
    }
    assert found["asked"][:2] == [
        ["bank", "/l.toml", "silver", None, False],
        ["group", "/l.toml", "silver", "1/2", True],
    ]
    assert found["cancelled"]
    assert "all is loaded" in done.stdout
