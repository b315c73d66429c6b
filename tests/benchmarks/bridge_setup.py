"""What the measurements of a bridge alone share: a broker, bridges, and processes that feed them."""

import select
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from infra.local import files
from infra.local.kafka import Kafka
from infra.local.server import free_port
from tests.end_to_end.pipeline import command, headrace
from tests.end_to_end.supervised import Supervised

SHARING = '\n[sharing]\ngroup = "{group}"\nsession_seconds = {seconds}\n'


class Bench:
    """A broker, and what the measurements share."""

    def __init__(self, folder: Path, console: Console) -> None:
        self.folder, self.console = folder, console
        self.kafka = Kafka(folder / "kafka", heap_megabytes=1024, lasting=True)

    def bridge(self, name: str, sources: list[str], stream: str, *, more: str = "") -> tuple[Supervised, str]:
        """Return a bridge that is not started, and its URL."""
        port = free_port()
        path = files.bridge(
            self.folder / f"{name}.toml",
            bootstrap=self.kafka.bootstrap,
            listen=f"127.0.0.1:{port}",
            sources=sources,
            stream=stream,
        )
        path.write_text(path.read_text() + (more or SHARING.format(group=f"bench-{stream}", seconds=8)))
        headrace("bridge", "init", "--config", str(path))
        run = command("bridge", "run", "--config", str(path))
        return Supervised(name, run, log=self.folder / f"{name}.log"), f"amqp://127.0.0.1:{port}"


class Feeder:
    """A feeding process that waits to be started."""

    def __init__(self, module: Any, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module.__name__, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def ready(self) -> None:
        """Wait until it is prepared."""
        assert self._line(120) == "ready\n"

    def go(self) -> None:
        """Let it begin."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def figures(self, seconds: float) -> list[float]:
        """Return what it printed at its end; raise AssertionError when it has not ended within so many seconds."""
        return [float(figure) for figure in self._line(seconds).split()]

    def close(self) -> None:
        """End it, if it has not ended."""
        self._process.kill()
        self._process.communicate()

    def _line(self, seconds: float) -> str:
        stdout = self._process.stdout
        assert stdout
        # It prints no line before the last one was read, so nothing of it waits in a buffer here.
        assert select.select([stdout], [], [], seconds)[0], f"the feeder printed nothing within {seconds:.0f} s"
        return stdout.readline()
