"""A lake on a Spark cluster (L35, O2): loaded by Airflow and by commands, over TLS, with a worker killed; asked and verified."""

import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from psycopg2.extensions import parse_dsn

from infra.local import jars
from infra.local.airflow import Airflow
from spark_jobs import submit
from spark_jobs.bronze.sink import table_path
from tests.bridge.security_lists import lake as allowed
from tests.lake.feed import Feed
from tests.rules.waiting import eventually

SOURCE = "jakarta/bank"
ROWS = 300


@pytest.fixture
def source(secure_kafka):
    """Return a source whose topic is on a broker that asks for TLS and a password."""
    return Feed(secure_kafka.server.bootstrap, secure_kafka.topic(), SOURCE)


@pytest.fixture
def secure_lake(cluster, cluster_lake, secure_kafka, source, database):
    """Return a lake on the cluster that reads the broker over TLS, and knows the source's database."""
    lake = cluster_lake(bank=source.topic)
    connection = secure_kafka.user(allowed(source.topic, "bank"))
    given = parse_dsn(database.dsn)
    path = Path(lake.path)
    text = path.read_text().replace(
        re.search(r"\[kafka\]\nbootstrap = .*\n", path.read_text())[0],
        f'[kafka]\nbootstrap = "{connection.bootstrap}"\nsecurity_protocol = "SASL_SSL"\nuser = "{connection.user}"\n'
        f'password = "file:{secure_kafka.authority.folder}/{connection.user}.password"\n'
        f'authority = "{connection.authority}"\n',
    )
    text = text.replace('"jakarta/bank", "london/bank"', f'"{SOURCE}"')
    text += f'[sources."{SOURCE}".postgresql]\nhost = "{given["host"]}"\nport = {given["port"]}\n'
    text += f'database = "{given["dbname"]}"\nuser = "{given["user"]}"\n'
    path.write_text(text)
    return lake


@pytest.mark.timeout(1800)
def test_a_lake_lives_on_a_cluster(cluster, secure_lake, source, database, headrace, tmp_path):
    lake, file = secure_lake, ("--config", secure_lake.path)
    # given rows at a source
    database.execute("CREATE TABLE accounts (id bigint PRIMARY KEY, name text, balance numeric(10,2))")
    database.execute(f"INSERT INTO accounts SELECT n, 'name ' || n, 1.25 FROM generate_series(1, {ROWS}) n")
    source.commit(source.schema(), *(source.insert(id=n, name=f"name {n}", balance="1.25") for n in range(1, ROWS + 1)))
    # when Airflow loads them, and a worker dies with its executors once bronze is there
    first = Path(table_path(lake, "bank"), "_delta_log", f"{0:020d}.json")
    parent = jars.spark()[0].parents[1]
    with ThreadPoolExecutor(1) as aside, Airflow(tmp_path / "airflow", Path(lake.path), jars=parent) as airflow:
        run = aside.submit(airflow.run, "headrace_load_bank", seconds=1200)
        eventually(lambda: first.exists() or run.done(), 600, every=0.01)
        cluster.kill_worker(1)
        loaded = run.result().check()
    # then the load ran there, not in Airflow's own process, and is done
    assert [(task.name, task.state) for task in loaded.tasks] == [
        ("check", "success"),
        ("bronze", "success"),
        ("silver", "success"),
        ("stopped_tables", "success"),
        ("table_assets", "success"),
    ]
    assert cluster.url in loaded.log
    assert cluster.executor_logs()
    # and when the worker is back, what is there is listed, equal to the source, and written where the command runs
    cluster.start_worker(1)
    (listed,) = json.loads(headrace("lake", "tables", "--rows", "--json", *file).ended().stdout)
    assert (listed["table"], listed["state"], listed["rows"]) == ("public.accounts", "published", ROWS)
    verified = headrace("verify", "--at-rest", *file).ended()
    assert verified.stdout.splitlines()[-1:] == ["equal: 1 table of 1 source"], verified.stderr
    question = "SELECT id FROM silver.accounts WHERE name <> 'name 7'"
    asked = headrace("lake", "sql", question, "--format", "parquet", "--to", "answer", *file).ended()
    assert asked.returncode == 0, asked.stderr
    assert sum(part.stat().st_size for part in (tmp_path / "answer").glob("*.parquet")) > ROWS
    again = headrace("lake", "sql", question, "--format", "parquet", "--to", "answer", *file).ended()
    assert (again.returncode, "answer exists" in again.stderr) == (2, True), again.stderr
    # and a command loads what comes, live before and current after
    source.commit(source.delete(id=1))
    live = headrace("lake", "sql", "SELECT count(*) AS n FROM silver_live.accounts", "--format", "json", *file).ended()
    assert json.loads(live.stdout) == {"n": ROWS - 1}, live.stderr
    assert headrace("lake", "load", "bank", *file).ended().returncode == 0
    counted = headrace("lake", "sql", "SELECT count(*) AS n FROM silver.accounts", "--format", "json", *file).ended()
    assert json.loads(counted.stdout) == {"n": ROWS - 1}, counted.stderr
    # and no log of an executor has a row or a password
    assert [log for log, text in cluster.executor_logs().items() if "name 7" in text or "a secret" in text] == []


def test_a_standalone_cluster_runs_no_driver_in_python(cluster):
    command = ["spark-submit", "--master", cluster.url, "--deploy-mode", "cluster", submit.__file__, "bank"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=dict(os.environ))

    assert ended.returncode != 0
    said = "Cluster deploy mode is currently not supported for python applications on standalone clusters."
    assert said in ended.stderr
