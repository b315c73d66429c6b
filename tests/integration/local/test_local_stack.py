"""Stacks: side by side, found again, and gone with their owner."""

import json
import socket
import subprocess
import sys
from contextlib import closing

import psutil
import pytest

from headrace.errors import NeedsOperator
from infra.local.stack import Stack
from tests.rules.waiting import eventually


def processes(stack):
    results = []
    for server in stack.servers.values():
        process = psutil.Process(server.pid)
        results += [process, *process.children(recursive=True)]
    return results


def gone(process):
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def folder(tmp_path):
    yield tmp_path / "stack"
    Stack(tmp_path / "stack", postgres=["jakarta", "london"]).delete()


def start_elsewhere(folder, **options):
    program = f"""
import time
from pathlib import Path
from infra.local.stack import Stack
Stack(Path({str(folder)!r}), **{options!r}).start()
print("started", flush=True)
time.sleep(600)
"""
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    with owner.stdout as answer:
        assert answer.readline() == "started\n"
    return owner


def test_two_stacks_run_side_by_side(tmp_path):
    with (
        Stack(tmp_path / "one", postgres=["jakarta"], kafka=False) as one,
        Stack(tmp_path / "two", postgres=["jakarta"], kafka=False) as two,
    ):
        one.postgres["jakarta"].psql("CREATE TABLE only_here ()")
        assert two.postgres["jakarta"].psql("SELECT to_regclass('only_here')") == ""
        everything = [*processes(one), *processes(two)]

    assert all(gone(process) for process in everything)
    for stack in (one, two):
        stack.delete()
        assert not stack.folder.exists()


def test_servers_of_a_killed_owner_are_gone_and_the_next_start_finds_their_data(folder):
    # Given a stack of another process, with a committed row.
    owner = start_elsewhere(folder, postgres=["jakarta"])
    try:
        stack = Stack.load(folder)
        assert stack.running
        stack.postgres["jakarta"].psql("CREATE TABLE t AS SELECT 42 AS a")
        everything = processes(stack)
        addresses = [server.address for server in stack.servers.values()]
    finally:
        # When that process is killed.
        owner.kill()
        owner.wait()

    # Then its servers go within seconds.
    eventually(lambda: all(gone(process) for process in everything), saying="all servers are gone")

    # And a new stack in the same folder has the data, at the same addresses.
    with Stack(folder, postgres=["jakarta"]) as again:
        assert again.postgres["jakarta"].psql("SELECT a FROM t") == "42"
        assert [server.address for server in again.servers.values()] == addresses
        assert again.kafka.running


def test_stack_of_a_living_owner_is_left_alone(folder):
    owner = start_elsewhere(folder, postgres=["jakarta"], kafka=False)
    try:
        pid = Stack.load(folder).postgres["jakarta"].pid

        for detached in (False, True):
            with pytest.raises(NeedsOperator, match=f"already running, started by process {owner.pid}"):
                Stack(folder, postgres=["jakarta"], kafka=False, detached=detached).start()

        assert Stack.load(folder).postgres["jakarta"].pid == pid
    finally:
        owner.kill()
        owner.wait()


def test_stack_is_stopped_from_another_process(folder):
    stack = Stack(folder, postgres=["jakarta"], kafka=False)
    stack.start()
    everything = processes(stack)

    subprocess.run(
        [
            sys.executable,
            "-c",
            f"from pathlib import Path; from infra.local.stack import Stack; Stack.load(Path({str(folder)!r})).stop()",
        ],
        check=True,
    )

    assert all(gone(process) for process in everything)
    assert not stack.running


def test_server_that_cannot_start_takes_the_others_along(folder):
    # Given a stack of which one cluster's port is taken.
    with Stack(folder, postgres=["jakarta", "london"], kafka=False) as stack:
        port = stack.postgres["london"].port
    with closing(socket.create_server(("127.0.0.1", port))):
        # When it starts.
        with pytest.raises(NeedsOperator, match=str(port)):
            stack.start()

        # Then nothing of it runs.
        assert not any(server.running for server in stack.servers.values())


def test_stack_file_tells_servers_versions_and_owner(folder):
    with Stack(folder, postgres=["jakarta"], kafka=False, postgres_settings={"work_mem": "5MB"}) as stack:
        known = json.loads((folder / "stack.json").read_text())
        loaded = Stack.load(folder)

        assert known["owner"]["pid"] == psutil.Process().pid
        assert known["versions"] == {"jakarta": stack.postgres["jakarta"].version}
        assert loaded.postgres["jakarta"].settings["work_mem"] == "5MB"
        assert loaded.postgres["jakarta"].pid == stack.postgres["jakarta"].pid
        with pytest.raises(NeedsOperator, match="no Kafka"):
            _ = loaded.kafka


def test_folder_without_a_stack_says_how_to_start_one(tmp_path):
    with pytest.raises(NeedsOperator, match="There is no stack") as caught:
        Stack.load(tmp_path)

    assert "headrace up" in caught.value.hint
