"""What the commands of `headrace lake` have in common: options, the lake's file, the console that they print to.

Where there is no terminal, progress is a line in a log now and then, so that a load of hours does not seem to hang.
"""

import sys
from collections.abc import Callable
from time import monotonic

import click

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.terminal import Terminal

config = click.option(
    "--config", "-c", required=True, type=click.Path(dir_okay=False), help="The lake's file (TOML, docs/lake.md)."
)
config_or_server = click.option(
    "--config", "-c", type=click.Path(dir_okay=False), help="The lake's file (TOML, docs/lake.md)."
)
server = click.option(
    "--server",
    metavar="ADDRESS",
    help="HOST:PORT of a 'headrace lake serve' that answers; the token is in SPARK_CONNECT_AUTHENTICATE_TOKEN (environment).",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead.")
#: Columns where there is no terminal: nothing is cut in a file.
_WIDTH = 1_000_000


def console() -> Terminal:
    """Return what cuts nothing where there is no terminal."""
    return Terminal(width=None if sys.stdout.isatty() else _WIDTH)


def file_of(config: str, stream: str) -> LakeFile:
    """Return the lake's file; raise ConfigurationError where it has no such stream."""
    file = load(config, LakeFile)
    file.stream(stream)
    return file


#: Seconds between two lines.
_EVERY = 30.0


class Occasionally:
    """Passes a line on when the last one was long ago; the first line, too, comes only after that time."""

    def __init__(self, write: Callable[[str], None], *, now: Callable[[], float] = monotonic) -> None:
        self._write, self._now = write, now
        self._last = now()

    def write(self, line: str) -> None:
        """Write the line if it is time for one."""
        if self._now() - self._last >= _EVERY:
            self._last = self._now()
            self._write(line)
