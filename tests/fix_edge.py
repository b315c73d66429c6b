"""An edge under test: its file, its state, and its process, or the agent in a thread where a process would only be slower."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edge.agent import Agent
from edge.initialise import Adoption, initialise
from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from headrace.errors import ReplicationError
from tests.fix_interconnect import Interconnect
from tests.fix_stack import Database
from tests.waiting import eventually


class EdgeUnderTest:
    """The edge of one database; slot and publication are named as the database is."""

    def __init__(self, folder: Path, database: Database, url: str, **changes: Any) -> None:
        self.folder = folder
        self.database = database
        self.source = changes.pop("source", "jakarta/bank")
        self.path = folder / "edge.toml"
        self.process: subprocess.Popen[str] | None = None
        settings = {
            "port": database.postgres.port,
            "database": database.name,
            "user": "postgres",
            "slot": database.name,
            "publication": database.name,
            "heartbeat_seconds": 0.3,
            "window_megabytes": 32,
            "kilobytes": 64,
            "url": url,
            "more": "",
            "metrics": "",
        } | changes
        self.path.write_text(_FILE.format(source=self.source, **settings))

    @property
    def config(self) -> EdgeFile:
        return load(self.path, EdgeFile)

    @property
    def checkpoint_file(self) -> Path:
        return self.folder / "state" / "checkpoint.json"

    @property
    def checkpoint(self) -> dict[str, Any]:
        return json.loads(self.checkpoint_file.read_text())

    def init(self, adoption: Adoption | None = None) -> list[str]:
        """Make the source, in this process; return what was said."""
        said: list[str] = []
        initialise(self.config, adoption, said.append)
        return said

    def command(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run `headrace edge ...` to its end, with its words as a person sees them."""
        options.setdefault("env", os.environ | {"HEADRACE_LOG_FORMAT": "text"})
        return subprocess.run(
            [sys.executable, "-m", "headrace", "edge", *arguments, "--config", str(self.path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **options,
        )

    def start(self) -> None:
        """Run the edge in a process of its own."""
        with (self.folder / "edge.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace", "edge", "run", "--config", str(self.path)], stderr=log, text=True
            )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(20)

    def terminate(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    @contextlib.contextmanager
    def running(self, **options: Any) -> Iterator["RunningAgent"]:
        """Run the agent in a thread; stop it at the end."""
        agent = RunningAgent(self.config, options)
        try:
            yield agent
        finally:
            agent.stop()

    def slot(self) -> dict[str, Any]:
        """Return the slot's row."""
        (row,) = self.database.execute(
            "select to_jsonb(s) from pg_replication_slots s where slot_name = %s", [self.database.name]
        )
        return row[0]

    def confirmed(self) -> int:
        """Return what the slot was told, as a number."""
        high, low = self.slot()["confirmed_flush_lsn"].split("/")
        return int(high, 16) << 32 | int(low, 16)

    def reading(self) -> bool:
        """Whether an edge has the slot."""
        return bool(self.slot()["active"])


class RunningAgent:
    """An agent in a thread, and how it ended."""

    def __init__(self, config: EdgeFile, options: dict[str, Any]) -> None:
        self.agent = Agent(config, **options)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="edge under test", daemon=True)
        self._thread.start()

    @property
    def figures(self) -> Any:
        return self.agent.figures

    def _run(self) -> None:
        try:
            self.agent.run()
        except BaseException as error:  # noqa: BLE001 - the test looks at it.
            self.error = error

    def ended(self, seconds: float = 20) -> ReplicationError:
        """Return the error that ends the agent within `seconds`."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the agent still runs"
        assert isinstance(self.error, ReplicationError), self.error
        return self.error

    def stop(self) -> None:
        self.agent.stop()
        self._thread.join(30)
        assert not self._thread.is_alive()


_FILE = """
heartbeat_seconds = {heartbeat_seconds}

[source]
name = "{source}"

[source.postgresql]
host = "127.0.0.1"
port = {port}
database = "{database}"
user = "{user}"
slot = "{slot}"
publication = "{publication}"
{more}

[interconnect]
url = "{url}"

[state]
folder = "state"

[batches]
kilobytes = {kilobytes}
window_megabytes = {window_megabytes}

{metrics}
"""


@pytest.fixture
def edges(tmp_path: Path) -> Iterator[Callable[..., EdgeUnderTest]]:
    """Return what makes edges; their processes end with the test."""
    made: list[EdgeUnderTest] = []

    def make(database: Database, url: str, **changes: Any) -> EdgeUnderTest:
        folder = tmp_path / f"edge{len(made)}"
        folder.mkdir()
        made.append(EdgeUnderTest(folder, database, url, **changes))
        return made[-1]

    yield make
    for edge in made:
        if edge.process is not None and edge.process.poll() is None:
            edge.kill()


@pytest.fixture
def edge(edges: Callable[..., EdgeUnderTest], database: Database, interconnect: Interconnect) -> EdgeUnderTest:
    """Return an initialised edge of a fresh database that has a table `t`, towards a far side that accepts."""
    database.execute("create table t (id int primary key, note text)")
    made = edges(database, interconnect.url)
    made.init()
    return made


def arrive(interconnect: Interconnect, count: int, seconds: float = 30) -> None:
    """Wait until so many changes have arrived."""
    eventually(lambda: len(interconnect.changes) >= count, seconds, saying=f"{count} changes arrive")
