"""`headrace lake`: load streams, check before loading, see what is published, and ask in SQL.

Spark is started only by what needs it, so `--help`, a wrong file and a failed check answer at once.
"""

import json
import logging
import signal
import sys
import threading
from typing import Any

import click
from rich.console import Console

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from headrace.errors import NotConnected, Retryable

_log = logging.getLogger(__name__)

_config = click.option(
    "--config", "-c", required=True, type=click.Path(dir_okay=False), help="The lake's file (TOML, docs/lake.md)."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead.")


@click.group()
def lake() -> None:
    """Load streams into Delta tables, and ask them in SQL."""


@lake.command()
@click.argument("stream")
@_config
@click.option("--only", type=click.Choice(["bronze", "silver"]), help="One step alone.")
@click.option("--every", type=click.IntRange(min=1), metavar="SECONDS", help="Load again and again, until interrupted.")
@click.option("--accept-gap", is_flag=True, help="Go on although retention took records that the lake never had.")
@_json
def load(stream: str, config: str, only: Any, every: int | None, *, accept_gap: bool, as_json: bool) -> None:
    """Load what came to STREAM since the last load: Kafka into bronze, bronze into silver.

    Every load goes on from what the tables themselves were committed with, so it can be interrupted, killed and repeated at
    any moment. Exits with 3 when a table stopped; the other tables are loaded then.
    """
    file = _file(config, stream)
    from spark_jobs import load as job
    from spark_jobs import report
    from spark_jobs.session import session

    spark = session(file)

    def once() -> None:
        with report.progress(Console(stderr=True)) as tell:
            done = job.run(spark, file, stream, only=only, accept_gap=accept_gap, tell=tell)
        if as_json:
            click.echo(json.dumps(done.plain()))
        else:
            report.show(Console(highlight=False, soft_wrap=True), done)
        done.check()

    if every is None:
        once()
        return
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    while not stopped.is_set():
        try:
            once()
        except (NotConnected, Retryable) as error:
            _log.warning("%s; again in %d s", error.message, every)
        stopped.wait(every)


@lake.command()
@click.argument("stream")
@_config
@_json
def check(stream: str, config: str, *, as_json: bool) -> None:
    """See whether STREAM can be loaded: Kafka answers, the topic is the same, and still holds what is needed next."""
    file = _file(config, stream)
    from spark_jobs import check as job

    found = job.check(file, stream)
    if as_json:
        click.echo(json.dumps(found))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{stream}[/]: topic {found['topic']!r} can be loaded: {found['records']:,} offsets to go")
    for place in found["partitions"]:
        console.print(
            f"  partition {place['partition']}: needs {place['needed']}, Kafka has {place['start']} to {place['end']}"
        )


@lake.command()
@click.argument("stream")
@_config
@_json
def positions(stream: str, config: str, *, as_json: bool) -> None:
    """Show up to where each source of STREAM is published, and which offsets bronze holds."""
    file = _file(config, stream)
    from spark_jobs import bronze, envelope, offsets, report
    from spark_jobs.session import session
    from spark_jobs.silver import read

    spark = session(file)
    state = read.positions(spark, file, stream)
    held = offsets.of_table(spark, bronze.table_path(file, stream), stream, envelope.COLUMNS).offsets
    if not as_json:
        report.show_positions(Console(highlight=False), state, held)
        return
    tables = {name: {"version": t.version, "problem": t.problem} for name, t in sorted(state.tables.items())}
    finished = state.finished_at.isoformat() if state.finished_at else None
    document = {"stream": stream, "load": state.load, "finished_at": finished, "bronze_version": state.bronze_version}
    click.echo(json.dumps(document | {"positions": state.positions, "offsets": held, "tables": tables}))


@lake.command()
@click.argument("query", required=False)
@_config
@click.option("--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
def sql(query: str | None, config: str, form: Any) -> None:
    r"""Ask the lake in Spark SQL: QUERY, or a prompt without one (\q leaves, \d lists tables).

    Tables: silver.<table> (as published), bronze.<stream>, lake.published.
    """
    file = load_file(config, LakeFile)
    from spark_jobs import sql as asking
    from spark_jobs.session import session

    desk = asking.Desk(session(file), file)
    if query is not None:
        asking.write(desk.ask(query), form, sys.stdout)
        return
    from spark_jobs import prompt

    prompt.run(desk, form)


def _file(config: str, stream: str) -> LakeFile:
    file = load_file(config, LakeFile)
    file.stream(stream)
    return file
