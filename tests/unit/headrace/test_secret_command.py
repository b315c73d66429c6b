"""Secrets that a command prints: run seldom, with a time limit, and never shown."""

import logging
import sys
import threading
import time
from pathlib import Path

import pytest

from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from headrace.configuration.secret import Secret, SecretCommand
from headrace.errors import ConfigurationError, NotConnected
from tests.rules.waiting import eventually

EDGE = """
[source]
name = "jakarta/bank"
[source.postgresql]
host = "db"
database = "bank"
user = "headrace"
password = "command:sh token.sh --key TOP"
[interconnect]
url = "amqp://127.0.0.1:5672"
[state]
folder = "state"
"""


@pytest.fixture
def command(tmp_path):
    """Return what makes a command of a script in Python; each run adds a line to `runs`."""

    def make(script, clock=time.monotonic):
        path = tmp_path / "script.py"
        path.write_text(f"open('runs', 'a').write('run\\n')\n{script}\n")
        return SecretCommand(f"{sys.executable} {path} --key TOP", tmp_path, clock)

    return make


def runs(folder):
    return (folder / "runs").read_text().count("run")


def test_what_a_command_prints_is_used_until_it_is_due_again(command, tmp_path):
    now = [100.0]
    one = command("import os; print(open('runs').read().count('run'))", clock=lambda: now[0])
    one.refresh_seconds = 60
    assert [one.value(), one.value()] == ["1", "1"]
    now[0] += 59.9
    assert one.value() == "1"
    now[0] += 0.1
    assert one.value() == "2"
    one.expire()
    assert one.value() == "3"
    one.refresh_seconds = 0
    one.expire()
    assert [one.value(), one.value()] == ["4", "5"]


def test_threads_that_need_it_at_the_same_time_run_it_once(command, tmp_path):
    one = command("import time; time.sleep(0.2); print('x')")
    threads = [threading.Thread(target=one.value) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert runs(tmp_path) == 1


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "import sys; print('TOPSECRET'); sys.exit('no credentials for TOPSECRET')",
            r"exit code 1: no credentials for \*\*\*$",
        ),
        ("import sys; sys.exit(7)", "ended with exit code 7$"),
        ("import sys; sys.stderr.write('half\\x1b[31m\\nwrong\\x07 key\\n')", "printed nothing: wrong key$"),
        ("print('TOPSECRET'); print('TOPSECRET')", "printed more than one line$"),
        ("print('TOPSECRET' * 10_000)", "printed more than 64 KiB$"),
    ],
)
def test_a_command_that_fails_is_tried_again_and_shows_no_secret(command, tmp_path, script, said):
    one = command(script)
    for _ in range(2):
        with pytest.raises(NotConnected, match=said) as failed:
            one.value()
        assert "TOP" not in failed.value.message + failed.value.hint
        assert "Run it by hand" in failed.value.hint
    assert runs(tmp_path) == 2


def test_a_command_that_hangs_is_killed_with_its_children(command, tmp_path):
    one = command(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open('child', 'w').write(str(child.pid))\n"
        "time.sleep(600)"
    )
    one.timeout_seconds = 0.1
    eventually(lambda: _times_out(one) and (tmp_path / "child").exists() and (tmp_path / "child").read_text())
    pid = (tmp_path / "child").read_text()

    def is_gone():
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    eventually(is_gone, saying="the child is killed too")


def _times_out(one):
    one.timeout_seconds = min(5.0, one.timeout_seconds * 2)
    with pytest.raises(NotConnected, match=r"did not end within .* and was killed") as failed:
        one.value()
    assert "[commands] timeout_seconds" in failed.value.hint
    return True


def test_a_program_that_is_not_there_is_an_operators_matter(tmp_path, monkeypatch):
    # Q12: of a folder in PATH that may not be read the system reports "Permission denied".
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ConfigurationError, match="the command 'no-such-program' of a secret cannot be run: No such file"
    ):
        SecretCommand("no-such-program --key TOP", tmp_path).value()
    for wrong in ("command:", "command:  ", "command:sh 'open", "aws rds"):
        with pytest.raises(ValueError):
            Secret(wrong)


def test_a_file_gives_commands_their_limits_and_shows_the_program_alone(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "edge.toml"
    (tmp_path / "token.sh").write_text('echo "$2-$(pwd)"')
    path.write_text(EDGE + '[commands]\ntimeout = "3s"\nrefresh = "2min"\n')
    file = load(path, EdgeFile)
    secret = file.source.postgresql.password
    assert file.source.postgresql.parameters()["password"] == f"TOP-{tmp_path}"
    assert (secret.command.timeout_seconds, secret.command.refresh_seconds) == (3, 120)
    assert (secret.reference, repr(secret)) == ("command:sh", "Secret(command:sh)")
    assert secret == load(path, EdgeFile).source.postgresql.password != Secret("command:sh other.sh")
    assert "TOP" not in caplog.text + repr(file)
    path.write_text(EDGE + "[commands]\ntimeout_seconds = 0\n")
    with pytest.raises(ConfigurationError, match=r"commands.timeout_seconds: expected"):
        load(path, EdgeFile)
