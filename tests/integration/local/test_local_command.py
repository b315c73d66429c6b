"""`headrace up`, `status` and `down`, as a person runs them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from infra.local.stack import Stack

HEADRACE = Path(sys.executable).with_name("headrace")


@pytest.fixture
def headrace(tmp_path):
    def run(*arguments, code=0):
        done = subprocess.run(
            [HEADRACE, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    yield run
    if (tmp_path / ".headrace" / "stack.json").exists():
        Stack.load(tmp_path / ".headrace").delete()


@pytest.mark.long
def test_servers_stay_until_down_and_come_back_with_their_data(headrace, tmp_path):
    # Given a stack that the command has left running.
    said = headrace("up", "--postgres", "jakarta")
    assert "jakarta" in said
    assert "kafka" in said
    # Q11: who connects
    assert "postgres@127.0.0.1:" in said
    before = json.loads(headrace("status", "--json"))
    assert before["running"]
    server = Stack.load(tmp_path / ".headrace").postgres["jakarta"]
    server.psql("CREATE TABLE t AS SELECT 42 AS a")

    # When it is started again, then nothing changes but the cluster that is asked for.
    said = headrace("up", "--postgres", "london")
    assert "Already running: jakarta, kafka." in said
    now = json.loads(headrace("status", "--json"))["servers"]
    assert {name: now[name] for name in before["servers"]} == before["servers"]
    assert now["london"]["running"]

    # When it is stopped, then all is gone, and up brings it back.
    assert "Stopped: jakarta, kafka, london." in headrace("down")
    assert not any(psutil.pid_exists(it["pid"]) and is_alive(it["pid"]) for it in now.values())
    assert "stopped" in headrace("status", code=1)
    assert "Nothing was running." in headrace("down")
    headrace("up")
    assert server.psql("SELECT a FROM t") == "42"
    assert {name: it["address"] for name, it in json.loads(headrace("status", "--json"))["servers"].items()} == {
        name: it["address"] for name, it in now.items()
    }

    # When one server has died, then down stops what there is, and removes it all.
    os.kill(server.pid, signal.SIGKILL)
    assert "stopped" in headrace("status", code=1)
    assert "Stopped: kafka, london." in headrace("down", "--delete")
    assert not (tmp_path / ".headrace").exists()
    assert "There is no stack" in headrace("status", code=1)


def is_alive(pid):
    return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_help_says_what_the_command_does(headrace, command):
    assert "--folder" in headrace(command, "--help")
