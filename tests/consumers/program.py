"""A Java program of others that runs until it is killed: started, waited for, killed, started again, and ended with its owner."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from infra.local.process import Process, tail
from tests.rules.waiting import eventually


class Program:
    """A main class with its arguments; it logs into its folder."""

    def __init__(
        self,
        folder: Path,
        class_path: Sequence[Path],
        words: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._log = folder / "program.log"
        self._process = Process(folder / "process.json", self._log, end_signal=signal.SIGKILL, detached=False)
        java = ["java", "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=INFO"]
        self._command = [*java, "-cp", os.pathsep.join(map(str, class_path)), *words]
        self._environment = os.environ | dict(environment or {})

    def start(self) -> None:
        """Start it; it works once it is up, some seconds later."""
        self._process.launch(self._command, folder=self._folder, environment=self._environment)

    def kill(self) -> None:
        """Kill it at once; do nothing if it does not run."""
        self._process.kill()

    def wait(self, condition: Callable[[], object], saying: str, seconds: float = 90) -> None:
        """Wait for a condition while it runs; raise AssertionError with the end of its log when that is in vain."""
        try:
            eventually(lambda: self._process.pid is None or condition(), seconds, every=0.5, saying=saying)
            assert self._process.pid is not None, "it has ended"
        except AssertionError as error:
            raise AssertionError(f"{error}\n{tail(self._log, 30)}") from error
