"""DAGs run for real by Airflow's own task runner: what fails says why, and the process ends with its owner."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from psycopg2.extensions import parse_dsn

from headrace.errors import NeedsOperator
from infra.local.airflow import Airflow
from tests.waiting import eventually

JARS = Path(os.environ.get("HEADRACE_JARS") or Path(__file__).parents[2] / ".setup" / "jars")

#: Starts an Airflow and waits to be killed.
OWNER = """
import sys
from pathlib import Path
from infra.local.airflow import Airflow
Airflow(Path(sys.argv[1]), Path(sys.argv[2]), jars=Path(sys.argv[3])).start()
print("started", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def unreachable(tmp_path_factory):
    """Return a lake's file whose Kafka cannot be reached and whose source's password is not there."""
    path = tmp_path_factory.mktemp("lake") / "lake.toml"
    path.write_text(
        textwrap.dedent("""
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
        """)
    )
    return path


@pytest.fixture(scope="module")
def airflow(tmp_path_factory, unreachable):
    """Yield an Airflow for the file, shared: it takes seconds to start."""
    with Airflow(tmp_path_factory.mktemp("airflow"), unreachable, jars=JARS) as running:
        yield running


def test_a_task_that_fails_fails_its_run_and_says_what_the_command_said(airflow):
    found = airflow.run("headrace_verify")

    assert found.state == "failed"
    assert [(task.name, task.state) for task in found.tasks] == [("verify", "failed")]
    assert "environment variable NOT_SET_ANYWHERE is not set" in found.failure
    with pytest.raises(NeedsOperator, match=r"verify failed\)[\s\S]*NOT_SET_ANYWHERE"):
        found.check()


def test_nothing_is_loaded_when_the_check_fails(airflow):
    found = airflow.run("headrace_load_bank")

    assert [(task.name, task.state) for task in found.tasks] == [
        ("check", "failed"),
        ("bronze", "upstream_failed"),
        ("silver", "upstream_failed"),
    ]
    assert found.assets == []
    assert "exit code 5" in found.failure


def test_a_dag_that_is_not_there_is_said_with_those_that_are(airflow):
    with pytest.raises(
        NeedsOperator, match="no DAG 'nothing', only headrace_load_bank, headrace_replay, headrace_verify"
    ):
        airflow.run("nothing")


def test_a_wrong_lake_file_is_said_by_the_first_run(tmp_path):
    with (
        Airflow(tmp_path / "airflow", tmp_path / "absent.toml", jars=JARS) as running,
        pytest.raises(NeedsOperator, match=r"absent\.toml \(HEADRACE_LAKE_CONFIG\) cannot be read"),
    ):
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

    eventually(lambda: not child.is_running(), 30, saying="Airflow's process has ended")


def test_a_load_of_real_records_updates_the_asset_and_verifies(tmp_path, database, kafka, feed):
    # Given a table, and its changes in Kafka as the bridge commits them.
    database.execute("CREATE TABLE accounts (id bigint PRIMARY KEY, name text, balance numeric(10,2))")
    database.execute("INSERT INTO accounts VALUES (1, 'Ana', 12.50), (2, NULL, NULL)")
    source = feed("jakarta/bank")
    ana = source.insert(id=1, name="Ana", balance="12.50")
    source.commit(source.schema(), ana, source.insert(id=2, name=None, balance=None))
    path = tmp_path / "lake.toml"
    given = parse_dsn(database.dsn)
    path.write_text(f"""
[lake]
root = "lake"
[kafka]
bootstrap = "{kafka.bootstrap}"
[streams.bank]
topic = "{source.topic}"
sources = ["jakarta/bank"]
[streams.bank.schedule]
retries = 0
[sources."jakarta/bank".postgresql]
host = "{given["host"]}"
port = {given["port"]}
database = "{given["dbname"]}"
user = "{given["user"]}"
""")

    # When Airflow loads, verifies, and does silver again from behind the last record on.
    with Airflow(tmp_path / "airflow", path, jars=JARS) as running:
        loaded = running.run("headrace_load_bank").check()
        verified = running.run("headrace_verify").check()
        again = running.run("headrace_replay", **{"stream": "bank", "layer": "silver", "from": "0:9"}).check()

    # Then every task did its part.
    assert [(task.name, task.state) for task in loaded.tasks] == [
        ("check", "success"),
        ("bronze", "success"),
        ("silver", "success"),
    ]
    assert loaded.assets == ["headrace/bank"]
    assert "equal: 1 table of 1 source" in verified.log
    assert [(task.name, task.state) for task in again.tasks] == [("replay", "success")]
    # Only its parameters say that there is nothing to do again.
    assert "silver bank: 0 changes into 0 tables, load 2" in again.log
