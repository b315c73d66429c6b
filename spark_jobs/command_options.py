"""What the commands of `headrace lake` have in common: options, the lake's file, the console that they print to."""

import sys

import click
from rich.console import Console

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load

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


def console(*, markup: bool = False) -> Console:
    """Return a console that cuts nothing where there is no terminal, and takes no name for markup."""
    return Console(highlight=False, markup=markup, width=None if sys.stdout.isatty() else _WIDTH)


def file_of(config: str, stream: str) -> LakeFile:
    """Return the lake's file; raise ConfigurationError where it has no such stream."""
    file = load(config, LakeFile)
    file.stream(stream)
    return file
