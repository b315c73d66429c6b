"""DAGs run for real by Airflow's own task runner: what fails says why, and the process ends with its owner."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import NeedsOperator
from infra.local.airflow import Airflow
from tests.rules.waiting import eventually

JARS = Path(os.environ.get("HEADRACE_JARS") or Path(__file__).parents[3] / ".setup" / "jars")

#: Starts an Airflow and waits to be killed.
OWNER = """
import sys
from pathlib import Path
from infra.local.airflow import Airflow
Airflow(Path(sys.argv[1]), Path(sys.argv[2]), jars=Path(sys.argv[3])).start()
print("started", flush=True)
sys.stdin.read()
"""


UNREACHABLE = """
[lake]
root = "lake"
[kafka]
bootstrap = "127.0.0.1:1"
[streams.bank]
sources = ["jakarta/bank"]
[streams.bank.schedule]
retries = 0
[sources."jakarta/bank".postgresql]
host = "127.0.0.1"
port = 1
database = "bank"
user = "auditor"
password = "env:NOT_SET_ANYWHERE"
"""


@pytest.fixture(scope="module")
def lake_path(tmp_path_factory):
    """Return where the lake's file stands, which every run reads anew."""
    return tmp_path_factory.mktemp("lake") / "lake.toml"


@pytest.fixture(scope="module")
def running(tmp_path_factory, lake_path):
    """Yield an Airflow for the file, shared: it takes seconds to start."""
    with Airflow(tmp_path_factory.mktemp("airflow"), lake_path, jars=JARS) as started:
        yield started


@pytest.fixture
def unreachable(lake_path):
    """Return the lake's file; its Kafka cannot be reached and its source's password is not there."""
    lake_path.write_text(UNREACHABLE)
    return lake_path


@pytest.fixture
def airflow(running, unreachable):
    """Return an Airflow for that file."""
    return running


def test_a_task_that_fails_fails_its_run_and_says_what_the_command_said(airflow):
    process = airflow.run("headrace_verify")

    assert process.state == "failed"
    assert [(task.name, task.state) for task in process.tasks] == [("verify", "failed")]
    assert "environment variable NOT_SET_ANYWHERE is not set" in process.failure
    with pytest.raises(NeedsOperator, match=r"verify failed\)[\s\S]*NOT_SET_ANYWHERE"):
        process.check()


def test_nothing_is_loaded_when_the_check_fails(running, lake_path, kafka):
    # A Kafka that lacks the topic answers at once; one that is not there has half a minute.
    lacking = UNREACHABLE.replace("127.0.0.1:1", kafka.bootstrap)
    lake_path.write_text(lacking.replace("[streams.bank]\n", '[streams.bank]\ntopic = "nowhere"\n'))

    process = running.run("headrace_load_bank")

    assert [(task.name, task.state) for task in process.tasks] == [
        ("check", "failed"),
        ("bronze", "upstream_failed"),
        ("silver", "upstream_failed"),
        ("stopped_tables", "upstream_failed"),
        ("table_assets", "upstream_failed"),
    ]
    assert process.assets == []
    assert "exit code 3" in process.failure
    assert "no topic 'nowhere'" in process.failure


def test_a_dag_that_is_not_there_is_said_with_those_that_are(airflow):
    with pytest.raises(
        NeedsOperator,
        match="no DAG 'nothing', only headrace_load_bank, headrace_maintain, headrace_replay, headrace_verify",
    ):
        airflow.run("nothing")


def test_a_wrong_lake_file_is_said_by_the_next_run(running, lake_path):
    lake_path.unlink(missing_ok=True)
    with pytest.raises(NeedsOperator, match=r"lake\.toml \(HEADRACE_LAKE_CONFIG\) cannot be read"):
        running.run("headrace_verify")


def test_it_ends_when_its_owner_is_killed(tmp_path, unreachable):
    owner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            OWNER,
            *(tmp_path / "airflow", unreachable, JARS),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with owner:
        owner.stdout.readline()
        (child,) = psutil.Process(owner.pid).children()
        owner.send_signal(signal.SIGKILL)

    eventually(lambda: not child.is_running(), saying="Airflow's process has ended")


@pytest.mark.long
def test_a_replay_does_what_its_parameters_say(running, lake_path, kafka, feed, loaded):
    # Given a lake that was loaded.
    source = feed("jakarta/bank")
    ana = source.insert(id=1, name="Ana", balance="12.50")
    source.commit(source.schema(), ana, source.insert(id=2, name=None, balance=None))
    lake_path.write_text(f"""
[lake]
root = "lake"
[kafka]
bootstrap = "{kafka.bootstrap}"
[streams.bank]
topic = "{source.topic}"
sources = ["jakarta/bank"]
[streams.bank.schedule]
retries = 0
""")
    loaded(load(lake_path, LakeFile))

    # When Airflow does silver again from behind the last record on.
    again = running.run("headrace_replay", **{"stream": "bank", "layer": "silver", "from": "0:9"}).check()

    # Then there is nothing to do again, which only the parameters say.
    assert [(task.name, task.state) for task in again.tasks] == [("replay", "success")]
    assert "silver bank: 0 changes into 0 tables, load 2" in again.log
