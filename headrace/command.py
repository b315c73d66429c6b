"""The `headrace` command: finds the parts' own subcommands by entry point, and turns errors into words and exit codes.

A part is imported only when its subcommand is called, so `headrace --help` is quick and an edge needs no Spark.
"""

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn

import click

from headrace import __version__, logs
from headrace.errors import UNEXPECTED, ConfigurationError, NeedsOperator, ReplicationError

_ABOUT = {
    "ask": "Ask the edge of a source how it is, from headquarters.",
    "bridge": "Receive batches and commit them to Kafka, exactly once.",
    "certs": "Make a private authority and certificates, for tests and trials.",
    "config": "Check a configuration file, show what it means, and print what a file may hold.",
    "console": "Show every source on its path as web pages, read-only, at headquarters.",
    "demo": "Run the main job on this machine, from two databases to answers in Spark SQL.",
    "down": "Stop the local servers that 'up' started.",
    "edge": "Capture one database and send its changes.",
    "jars": "Fetch the jars that the lake's Spark needs, once.",
    "lake": "Load streams into Delta tables, and query them in SQL.",
    "receive": "Print what is delivered to an address, or give it to a command.",
    "source": "Show what a new source needs at every place, and what of it is done.",
    "status": "Show how sources are doing, by the file of an edge or a bridge; else the local servers.",
    "up": "Start PostgreSQL and Kafka on this machine, from packages.",
    "verify": "Prove that the lake's tables equal the databases'.",
}


#: Of the core itself; the others are the parts' own.
_OWN = (
    EntryPoint("console", "headrace.console.command:console", "headrace.commands"),
    EntryPoint("source", "headrace.source_command:source", "headrace.commands"),
)


#: The extra of pyproject.toml that a command needs, else the one that has a module.
_EXTRA_OF_COMMAND = {
    "ask": "bridge", "bridge": "bridge", "console": "console", "demo": "edge,bridge,spark,airflow,console,local",
    "down": "local", "edge": "edge", "lake": "spark", "up": "local", "verify": "spark",
}  # fmt: skip
_EXTRA_OF_MODULE = {
    "confluent_kafka": "bridge", "cryptography": "edge", "delta": "spark", "deltalake": "console", "jinja2": "console",
    "markupsafe": "console", "pg_embed": "local", "prompt_toolkit": "spark", "proton": "edge", "psutil": "local",
    "psycopg": "edge", "py4j": "spark", "pymysql": "edge", "pyspark": "spark", "starlette": "console", "uvicorn": "console",
}  # fmt: skip


def _missing(command: str, error: ModuleNotFoundError) -> Exception:
    """Return the error of a command whose packages are not installed; the error itself where no extra has the module."""
    module = (error.name or "").partition(".")[0]
    if module not in _EXTRA_OF_MODULE:
        return error
    extra = _EXTRA_OF_COMMAND.get(command, _EXTRA_OF_MODULE[module])
    return ConfigurationError(
        f"'headrace {command}' needs the package {module!r}, which is not installed",
        hint=f'Install Headrace with the extra that has it: pip install "$(ls headrace-{__version__}-*.whl)[{extra}]"',
    )


@contextlib.contextmanager
def _reader() -> Iterator[None]:
    """Need somebody who reads the output: Click's exit code for a closed pipe is 1, which means here that the answer is no."""
    try:
        yield
    except BrokenPipeError as error:
        raise NeedsOperator("standard output takes nothing more: whatever read it has ended") from error


class _Parts(click.Group):
    """A group whose subcommands come from entry points, loaded on use."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return sorted(self._found())

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        part = self._found().get(name)
        if part is None:
            return None
        try:
            command = part.load()
        except ModuleNotFoundError as error:
            raise _missing(name, error) from error
        if not isinstance(command, click.Command):
            raise TypeError(f"{part.value} is no command")
        return command

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """Read the command line; `--help` prints."""
        with _reader():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand, which imports what it needs when it needs it."""
        try:
            with _reader():
                return super().invoke(ctx)
        except ModuleNotFoundError as error:
            raise _missing(ctx.invoked_subcommand or "", error) from error

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _ABOUT.get(name, "")) for name in sorted(self._found())])

    @staticmethod
    def _found() -> dict[str, EntryPoint]:
        return {part.name: part for part in (*_OWN, *entry_points(group="headrace.commands"))}


@click.group(cls=_Parts, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="headrace")
@click.option("--verbose", "-v", is_flag=True, help="Log more, and show where an error comes from.")
@click.option(
    "--log-format",
    type=click.Choice(logs.FORMATS),
    default="auto",
    envvar="HEADRACE_LOG_FORMAT",
    help="auto: what runs for long logs JSON unless a terminal reads it.  [env: HEADRACE_LOG_FORMAT]",
)
@click.option(
    "--log-level",
    type=click.Choice(logs.LEVELS),
    default="info",
    envvar="HEADRACE_LOG_LEVEL",
    help="The least that is logged.  [env: HEADRACE_LOG_LEVEL]",
)
@click.pass_context
def root(context: click.Context, *, verbose: bool, log_format: str, log_level: str) -> None:
    """Carry the redo logs of databases, exactly once, into Kafka and Delta.

    Exit codes: 0 done; 1 the answer is no; 2 wrong command line or configuration; 3 an operator must decide;
    4 corrupt input; 5 a server cannot be reached; 70 an unexpected error.
    """
    context.obj = {"verbose": verbose}
    logs.configure(log_format, "debug" if verbose else log_level)


def main() -> NoReturn:
    """Run the command; exit with the code of its error, or 0."""
    try:
        _run()
    finally:
        _give_up_output()


def _give_up_output() -> None:
    """Give up what a reader that is gone did not take: Python would end with a status of its own, 120, for what is left."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run() -> NoReturn:
    arguments = sys.argv[1:]
    try:
        # A command that ends by Context.exit comes back with its code.
        code = root.main(args=arguments, prog_name="headrace", standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except ReplicationError as error:
        if {"-v", "--verbose"} & set(arguments):
            traceback.print_exc()
            sys.exit(error.exit_code)
        if logs.structured():
            logs.log_error(error)
            sys.exit(error.exit_code)
        from rich.console import Console
        from rich.markup import escape

        console = Console(stderr=True, highlight=False, soft_wrap=True)
        console.print(f"[bold red]headrace:[/] {escape(logs.printable_lines(error.message))}")
        if error.hint:
            console.print(f"[bold]What to do:[/] {escape(logs.printable_lines(error.hint))}")
        sys.exit(error.exit_code)
    except Exception:
        # Python's own exit code of an error is 1, which means here that the answer is no.
        if logs.structured():
            logging.getLogger("headrace").exception("unexpected error")
        else:
            traceback.print_exc()
        sys.exit(UNEXPECTED)
    sys.exit(code if isinstance(code, int) else 0)
