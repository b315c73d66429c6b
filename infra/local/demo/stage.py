"""What the demo shows while it works: one line for each stage, with a spinner and, at its end, the seconds it took."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

_WIDTH = 66


class Stages:
    """The stages of one run, shown on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    @contextmanager
    def stage(self, saying: str) -> Iterator[Callable[[str], None]]:
        """Show a stage while its body runs; the body may say how far it is."""
        began = time.monotonic()
        with self._console.status(escape(saying)) as status:

            def say(how_far: str) -> None:
                status.update(f"{escape(saying)} [dim]{escape(how_far)}[/]")

            yield say
        self._console.print(f"[green]✓[/] {escape(saying):<{_WIDTH}} [dim]{time.monotonic() - began:6.1f} s[/]")

    @property
    def seconds(self) -> float:
        """How long the run has taken so far."""
        return time.monotonic() - self._began


def wait_until(done: Callable[[], bool], *, seconds: float, otherwise: Callable[[], Exception]) -> None:
    """Return when it is done; raise what `otherwise` makes when the seconds are over."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise otherwise()
        time.sleep(0.1)
