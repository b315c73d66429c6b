"""Loads in a running server: killed in the middle of one, cancelled, and started again, every row is there once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs import run_log
from spark_jobs.bronze import load as bronze
from spark_jobs.query import published_tables
from spark_jobs.silver import table_task
from spark_jobs.state import published
from tests.lake.served import Server
from tests.rules.waiting import eventually

TABLES = ("public.accounts", "public.log")
LOG = {"entry": ("text", None, None)}
NO_JARS = {"HEADRACE_JARS": "/nowhere"}


def start(server, *options, **environment):
    """Begin `headrace lake load`."""
    command = [sys.executable, "-m", "headrace", "lake", "load", "bank", "--config", str(server.file), *options]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, env=os.environ | environment, text=True, start_new_session=True, **streams)


def output(process):
    """Return what a load printed; fail when it failed."""
    text, _ = process.communicate(timeout=400)
    assert process.returncode == 0, text
    return text


def commit_of(lake, table, version):
    return Path(table_task.path(lake, "bank", table), "_delta_log", f"{version:020d}.json")


def rows(spark, lake, table, column):
    return sorted(row[column] for row in published_tables.frame(spark, lake, "bank", table).collect())


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_server_killed_or_a_client_gone_in_the_middle_of_a_load_costs_nothing(spark, feed, lake_file, tmp_path):
    # given a server that loads: the command itself has no jars, so it could not
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), *(source.insert(id=i, name="a", balance="1.00") for i in range(20)))
    source.commit(
        source.schema(LOG, (), "public.log"), *(source.insert("public.log", entry=f"{i:03}") for i in range(20))
    )
    server = Server(Path(lake.path), 'loads = "loads"\n')
    server.start()
    try:
        assert "load 1" in output(start(server, **NO_JARS))
        assert "nothing new" in output(start(server, **NO_JARS))
        assert rows(spark, lake, "public.accounts", "id") == list(range(20))

        def change(begin):
            """Change both tables, and return which commits a load makes first."""
            source.commit(
                source.delete(id=begin),
                *(
                    source.insert("public.log", entry=f"{i:03}")
                    for i in range(20 + begin * 200, 20 + begin * 200 + 200)
                ),
            )
            last = {name: published.latest(spark, lake, "bank").tables[name].version for name in TABLES}
            return lambda: any(commit_of(lake, name, version + 1).exists() for name, version in last.items())

        # when it is killed with a table written and nothing published, the command goes on by itself
        written = change(0)
        process = start(server)
        eventually(lambda: written() or process.poll() is not None, 300, every=0.002)
        server.stop(signal.SIGKILL)
        assert "the server ended before the load of bank did" in output(process)
        assert published.latest(spark, lake, "bank").load == 2
        # when a client is killed there, the load ends with it, and the next one goes on from there
        server.start()
        written = change(1)
        process = start(server, **NO_JARS)
        eventually(lambda: written() or process.poll() is not None, 300, every=0.002)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        output(start(server, **NO_JARS))
        assert published.latest(spark, lake, "bank").load == 3
    finally:
        server.stop()
    # then every row is there once
    assert rows(spark, lake, "public.accounts", "id") == list(range(2, 20))
    assert rows(spark, lake, "public.log", "entry") == [f"{i:03}" for i in range(420)]
    offsets = [row["offset"] for row in spark.read.format("delta").load(bronze.table_path(lake, "bank")).collect()]
    assert len(offsets) == len(set(offsets))
    # and what the cancelled load brought to bronze is counted
    recorded = spark.read.format("delta").load(run_log.path(lake)).filter("step = 'bronze'").collect()
    assert max(span["last"] for row in recorded for span in row["offsets"]) >= max(offsets)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_load_that_goes_on_is_the_servers_until_the_command_ends_and_the_commands_own_once_the_server_has(
    spark, feed, lake_file, tmp_path
):
    # given a server that loads, and a command that has no jars
    source = feed()
    lake = lake_file(bank=source.topic)
    server = Server(Path(lake.path), 'loads = "loads"\n')

    def come(number):
        """Commit a row, and wait until it is published."""
        rows = [source.insert(id=number, name="a", balance="1.00")]
        source.commit(*([source.schema()] if not number else []), *rows)
        eventually(lambda: number in ids(), 300, every=0.5)

    def ids():
        published._read.clear()
        frame = published_tables.frame(spark, lake, "bank", "public.accounts")
        return [] if frame is None else [row["id"] for row in frame.collect()]

    server.start()
    process = start(server, "--continuous", "--every", "1", **NO_JARS)
    try:
        # when changes come they are published, and loads that end are done next to it
        come(0)
        come(1)
        assert process.poll() is None, process.communicate()
        output(start(server, **NO_JARS))
        # then it ends with the command
        process.send_signal(signal.SIGTERM)
        text = output(process)
        assert "load 1" in text
        assert "load 2" in text
        # and nothing goes on: this load has what came
        source.commit(source.insert(id=2, name="a", balance="1.00"))
        assert "1 records" in output(start(server, **NO_JARS))
        # when the server is killed under it, the command goes on by itself
        process = start(server, "--continuous", "--every", "1", "--json")
        come(3)
        server.stop(signal.SIGKILL)
        come(4)
        process.send_signal(signal.SIGINT)
        assert "the server ended before the load of bank did" in output(process)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        server.stop()
    assert sorted(ids()) == [0, 1, 2, 3, 4]
    offsets = [row["offset"] for row in spark.read.format("delta").load(bronze.table_path(lake, "bank")).collect()]
    assert len(offsets) == len(set(offsets))
