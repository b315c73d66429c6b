"""The recipe of docs/deploy.md for systemd and the units that it enables, run as they are printed but for where the folders are.

Where tests run there is no systemd: a small reader of units does what it would, with folders, environment and signals.
"""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bridge.bridge_file import bridge_file
from tests.rules.waiting import eventually
from tests.unit.infra.test_systemd import FOLDER, recipe, service

NAME = "jakarta-bank"


class Machine:
    """The folders that the recipe makes, below another root."""

    def __init__(self, root):
        self.root, self.processes = root, []
        for line in FOLDER.joinpath("headrace.tmpfiles").read_text().splitlines()[1:]:
            _, folder, mode, *_ = line.split()
            self.at(folder).mkdir(mode=int(mode, 8), parents=True)

    def at(self, path):
        return self.root / path.lstrip("/")

    def moved(self, text):
        program = Path(sys.executable).with_name("headrace")
        text = text.replace("/opt/headrace/bin/headrace", str(program))
        for folder in ("/etc/headrace", "/var/lib/headrace"):
            text = text.replace(folder, str(self.at(folder)))
        return text

    def environment(self, *files, **more):
        """Return what systemd gives a process: nothing of who starts it, and what its files hold."""
        given = {"PATH": os.environ["PATH"], **more}
        for file in files:
            path = Path(self.moved(file.removeprefix("-")))
            if path.exists() or not file.startswith("-"):
                given |= dict(line.split("=", 1) for line in path.read_text().splitlines())
        return given

    def run(self, line):
        """Run a printed `systemd-run` to its end."""
        words = shlex.split(line)
        files = [word.partition("EnvironmentFile=")[2] for word in words if "EnvironmentFile=" in word]
        command = [self.moved(word) for word in words[words.index("/opt/headrace/bin/headrace") :]]
        return subprocess.run(
            command, env=self.environment(*files), capture_output=True, text=True, timeout=120, check=False
        )

    def start(self, unit, name):
        """Start a unit's instance."""
        given = service_of(unit, name)
        if "StateDirectory" in given:
            folder = self.at("/var/lib") / given["StateDirectory"]
            folder.mkdir(mode=int(given["StateDirectoryMode"], 8), exist_ok=True)
        name_of, _, value = given["Environment"].partition("=")
        environment = self.environment(given["EnvironmentFile"], **{name_of: value})
        log = (self.root / "journal").open("a")
        process = subprocess.Popen(shlex.split(self.moved(given["ExecStart"])), env=environment, stderr=log)
        self.processes.append(process)
        return process

    @property
    def journal(self):
        return (self.root / "journal").read_text()


def service_of(unit, name):
    return {setting: value.replace("%i", name) for setting, value in service(FOLDER / unit).items()}


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path / "root")
    yield made
    for process in made.processes:
        process.kill()
        process.wait(60)


@pytest.fixture
def init():
    (line,) = [line for line in recipe() if "edge init" in line]
    return line


def test_an_edge_is_initialised_started_and_ended_as_it_is_printed(machine, init, database, edges, interconnect):
    """Q8, V14: `edge init` as printed could neither make the state's folder nor read the password."""
    database.execute("create table t (id int primary key, note text)")
    text = edges(database, interconnect.url, more='password = "env:BANK_PASSWORD"').path.read_text()
    text = text.replace('folder = "state"', f'folder = "{machine.at("/var/lib/headrace")}/{NAME}"')
    machine.at(f"/etc/headrace/{NAME}.toml").write_text(text)
    # without the file of passwords the error names what is missing
    done = machine.run(init)
    assert (done.returncode, "BANK_PASSWORD is not set" in done.stderr) == (2, True), done.stderr
    # when it is there
    machine.at(f"/etc/headrace/{NAME}.env").write_text("BANK_PASSWORD=secret\n")
    done = machine.run(init)
    assert done.returncode == 0, done.stderr
    unit = "headrace-edge@.service"
    process = machine.start(unit, NAME)
    database.execute("insert into t values (1, 'a')")
    eventually(lambda: [change["after"]["id"] for change in interconnect.changes] == [1], 60, saying=machine.journal)
    process.send_signal(signal.SIGTERM)
    assert process.wait(int(service_of(unit, NAME)["TimeoutStopSec"])) == 0
    assert "secret" not in machine.journal + done.stderr + done.stdout


def test_a_bridge_is_started_reloaded_and_ended_as_its_unit_has_it(machine, kafka, topic, tmp_path):
    unit, name = "headrace-bridge@.service", "london-1"
    path = bridge_file(tmp_path, kafka.bootstrap, {"a/one": [0]}, topic=topic(), more="")
    target = machine.at(f"/etc/headrace/{name}.toml")
    target.write_text(path.read_text())
    process = machine.start(unit, name)
    eventually(lambda: "1 sources are assigned" in machine.journal, 60, saying="it serves")
    target.write_text(path.read_text().replace('{ "a/one" = [0] }', '{ "a/one" = [0], "a/two" = [1] }'))
    words = shlex.split(service_of(unit, name)["ExecReload"].replace("$MAINPID", str(process.pid)))
    subprocess.run(words, check=True, timeout=10)
    eventually(lambda: "reload:" in machine.journal, 60, saying="it reads its file again")
    process.send_signal(signal.SIGTERM)
    assert process.wait(int(service_of(unit, name)["TimeoutStopSec"])) == 0
