"""Fixtures: a bridge in this process, or as a process of its own, over a broker and a topic."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.bridge import Bridge
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from tests.bridge.bridge_file import bridge_file
from tests.rules.waiting import eventually


class Inside:
    """A bridge in threads of this process."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.bridge = Bridge(load(path, BridgeFile), **options)
        self.error: BaseException | None = None
        #: Whether the test expects it to end by itself.
        self.expected = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on, once it does."""
        return eventually(lambda: self.bridge.receiver.port or self._failed(), saying="the bridge listens")

    def figures(self, source: str) -> dict[str, Any]:
        return self.bridge.figures()[source]

    def serves(self, source: str) -> None:
        """Return once it serves a source."""
        eventually(lambda: self.figures(source)["state"] == "serving", saying=f"{source} is served")

    def join(self, seconds: float) -> bool:
        """Return whether it has ended in time."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        # Shown where the test fails.
        print(f"--- bridge: {self.bridge.figures()}")
        self.bridge.stop()
        assert self.join(60), "the bridge did not stop"

    def _failed(self) -> int:
        if self.error is not None:
            raise self.error
        return 0

    def _run(self) -> None:
        try:
            self.bridge.run()
        except BaseException as error:  # noqa: BLE001 - the test looks at it.
            self.error = error


class Outside:
    """A bridge as a process of its own, which can be killed."""

    def __init__(self, path: Path, log: Path, options: tuple[str, ...] = ()) -> None:
        self.path, self.log = path, log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace", "bridge", "run", *options, "--config", str(path)],
                stdout=out,
                stderr=out,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def port(self) -> int:
        """The port that it listens on, once it does."""
        return eventually(self._port, saying="the bridge listens")

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def terminate(self, seconds: float = 60) -> int:
        """Ask it to stop, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def _port(self) -> int:
        texts = re.findall(r"listening for edges on [^:]*:(\d+)", self.said())
        return int(texts[-1]) if texts else 0


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Callable[..., Inside]]:
    """Yield a function that starts a bridge in this process."""
    made: list[Inside] = []

    def start(
        bootstrap: str, sources: dict[str, list[int]], *, topic: str, options: Any = None, **settings: Any
    ) -> Inside:
        made.append(Inside(bridge_file(tmp_path, bootstrap, sources, topic=topic, **settings), **(options or {})))
        return made[-1]

    yield start
    for each in made:
        each.stop()
    ended = [each.error for each in made if each.error is not None and not each.expected]
    assert not ended, f"a bridge ended by itself: {ended!r}"


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Callable[..., Outside]]:
    """Yield a function that starts a bridge as a process; with `path`, over that file."""
    made: list[Outside] = []

    def start(
        bootstrap: str = "",
        sources: dict[str, list[int]] | None = None,
        *,
        topic: str = "",
        path: Path | None = None,
        options: tuple[str, ...] = (),
        **settings: Any,
    ) -> Outside:
        path = path or bridge_file(tmp_path, bootstrap, sources or {}, topic=topic, **settings)
        made.append(Outside(path, tmp_path / f"bridge-{len(made)}.log", options))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            each.kill()
        print(f"--- {each.log.name}\n{each.said()}")
