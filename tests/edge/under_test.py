"""An edge under test, whatever its engine: its file, its state, and its process, or the agent in a thread where a process would
only be slower.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from edge.agent import Agent
from edge.commands.lifecycle import Adoption, initialise
from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from headrace.errors import NeedsOperator, ReplicationError

_USUAL = {"heartbeat_seconds": 0.3, "window_megabytes": 32, "kilobytes": 64, "more": "", "rest": ""}
_FILE = """
heartbeat_seconds = {heartbeat_seconds}

[source]
name = "{source}"

{database}
{more}

[interconnect]
url = "{url}"

[state]
folder = "state"

[batches]
kilobytes = {kilobytes}
window_megabytes = {window_megabytes}

{rest}
"""


class EdgeUnderTest:
    """The edge of one database, of which a part of its file tells."""

    def __init__(self, folder: Path, database: str, url: str, **changes: Any) -> None:
        self.folder = folder
        self.source = changes.pop("source", "jakarta/bank")
        self.path = folder / "edge.toml"
        self.process: subprocess.Popen[str] | None = None
        self.path.write_text(_FILE.format(source=self.source, database=database, url=url, **_USUAL | changes))

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
            timeout=180,
            check=False,
            **options,
        )

    def start(self, *options: str, command: str = "run") -> None:
        """Run the edge, or another command of it, in a process of its own."""
        with (self.folder / "edge.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace", "edge", command, *options, "--config", str(self.path)],
                stderr=log,
                text=True,
            )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def terminate(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    @contextlib.contextmanager
    def running(self, **options: Any) -> Iterator["RunningAgent"]:
        """Run the agent in a thread; stop it at the end, and fail when it had ended by itself and nobody asked for that."""
        agent = RunningAgent(self.config, options)
        try:
            yield agent
        finally:
            # Shown where the test fails.
            print(f"--- edge of {self.source}: {agent.figures}; {agent.figures.reason}")
            agent.stop()
            assert agent.expected or agent.error is None, f"the agent of {self.source} ended: {agent.error!r}"


class RunningAgent:
    """An agent in a thread, and how it ended."""

    def __init__(self, config: EdgeFile, options: dict[str, Any]) -> None:
        self.agent = Agent(config, **options)
        self.error: BaseException | None = None
        #: Whether the test has asked for its end.
        self.expected = False
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

    def ended(self, seconds: float = 60) -> ReplicationError:
        """Return the error that ends the agent within `seconds`."""
        self.expected = True
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the agent still runs"
        assert isinstance(self.error, ReplicationError), self.error
        return self.error

    def stop(self) -> None:
        self.agent.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()


def refused(edge: EdgeUnderTest, **options: Any) -> NeedsOperator:
    """Run the agent until it ends, and return the error, which calls an operator and says what to do."""
    with edge.running(**options) as agent:
        error = agent.ended()
    assert isinstance(error, NeedsOperator)
    assert error.hint
    return error


E = TypeVar("E", bound=EdgeUnderTest)


@contextlib.contextmanager
def made_in(folder: Path, kind: Callable[..., E]) -> Iterator[Callable[..., E]]:
    """Yield what makes edges of a kind, each in a folder of its own; their processes end with the block."""
    made: list[E] = []

    def make(*arguments: Any, **changes: Any) -> E:
        own = folder / f"edge{len(made)}"
        own.mkdir()
        made.append(kind(own, *arguments, **changes))
        return made[-1]

    yield make
    for edge in made:
        if edge.process is None:
            continue
        # Shown where the test fails.
        print(
            f"--- process of {edge.source}: exit code {edge.process.poll()}; {(edge.folder / 'edge.log').read_text()[-8000:]}"
        )
        if edge.process.poll() is None:
            edge.kill()
