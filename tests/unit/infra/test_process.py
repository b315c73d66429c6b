"""Processes that are found again, and end with their owner; `sleep` replaces a server."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from headrace.errors import NeedsOperator
from infra.local.process import Process, read_since, size
from tests.rules.waiting import eventually


def gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def make(tmp_path):
    made = []

    def process(*, detached=False):
        one = Process(tmp_path / "process.json", tmp_path / "it.log", end_signal=signal.SIGTERM, detached=detached)
        made.append(one)
        return one

    yield process
    for one in made:
        one.kill()


def launch(process, *command):
    process.launch(command, folder=process.record.parent, environment=os.environ)


@pytest.mark.parametrize("detached", [False, True])
def test_launched_process_is_found_by_its_record_and_ended(make, detached):
    process = make(detached=detached)

    launch(process, "sleep", "60")

    pid = process.pid
    assert psutil.Process(pid).name() == "sleep"
    assert make().pid == pid
    process.end(signal.SIGTERM, 10)
    assert process.pid is None
    assert gone(pid)


def test_recycled_process_id_is_neither_running_nor_signalled(make):
    # Given a record of a process whose number somebody else has now.
    process = make()
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        started = psutil.Process(stranger.pid).create_time() - 1000
        process.record.write_text(json.dumps({"pid": stranger.pid, "started": started}))

        # When it is killed.
        assert process.pid is None
        process.kill()

        # Then the stranger lives.
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1}'])
def test_damaged_record_means_that_nothing_runs(make, content):
    process = make()
    process.record.write_text(content)

    assert process.pid is None


def test_process_that_ignores_its_signal_is_killed(make):
    process = make()
    launch(process, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")
    eventually(lambda: "ready" in read_since(process.log, 0))
    pid = process.pid

    process.end(signal.SIGTERM, 0.1)

    assert gone(pid)


def test_kill_takes_the_children_along(make):
    process = make()
    launch(process, "sh", "-c", "sleep 61 & sleep 62 & wait")
    family = eventually(
        lambda: len(psutil.Process(process.pid).children()) == 2 and psutil.Process(process.pid).children()
    )

    process.kill()

    assert all(gone(child.pid) for child in family)


def test_server_ends_when_its_owner_is_killed(tmp_path):
    # Given an owner of its own, which started a server.
    program = f"""
import os, signal, time
from pathlib import Path
from infra.local.process import Process
it = Process(Path({str(tmp_path)!r}) / "p.json", Path({str(tmp_path)!r}) / "p.log", end_signal=signal.SIGTERM, detached=False)
it.launch(["sleep", "60"], folder=Path("/"), environment=os.environ)
print(it.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        pid = int(owner.stdout.readline())
        assert not gone(pid)

        # When the owner is killed.
        owner.kill()

    # Then the server goes too.
    eventually(lambda: gone(pid), 10, saying="the server is gone")


def test_server_ends_when_its_guardian_is_killed(make):
    process = make()
    launch(process, "sleep", "60")
    pid = process.pid

    psutil.Process(pid).parent().kill()

    eventually(lambda: gone(pid), 10, saying="the server is gone")


def test_program_that_does_not_exist_needs_an_operator(make):
    process = make()

    with pytest.raises(NeedsOperator, match="/nowhere/server cannot be started"):
        launch(process, "/nowhere/server")

    assert process.pid is None


def test_wait_tells_a_server_that_ended_from_one_that_never_answers(make):
    process = make()
    launch(process, "true")
    assert process.wait_until(lambda: False, 30) is False

    launch(process, "sleep", "60")
    pid = process.pid
    with pytest.raises(NeedsOperator, match="did not answer") as caught:
        process.wait_until(lambda: False, 0.1)
    assert str(process.log) in caught.value.hint
    assert gone(pid)


def test_log_is_read_from_where_it_was_even_when_it_was_rolled_over(tmp_path):
    log = tmp_path / "it.log"
    assert size(log) == 0
    assert read_since(log, 0) == ""

    log.write_text("before\n")
    before = size(log)
    log.write_text("before\nafter\n")
    assert read_since(log, before) == "after"

    log.write_text("new\n")
    assert read_since(log, before) == "new"
