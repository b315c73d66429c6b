"""`headrace lake`: load streams, check before loading, see what is published, and ask in SQL.

Spark is started only by what needs it, so `--help`, a wrong file and a failed check answer at once.
"""

import json
import logging
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click

from headrace import warm_loads
from headrace.configuration.lake import LakeFile
from headrace.configuration.new import new_lake
from headrace.printable import echo
from headrace.terminal import Terminal, styled, uncut
from headrace.waiting import StopRequest
from headrace.warm_loads import Answer, OnProgress, Request
from spark_jobs import removal_command, table_command
from spark_jobs.table_command import AS_JSON, CONFIG, file_of

_log = logging.getLogger(__name__)


@click.group()
def lake() -> None:
    """Load streams into Delta tables, and ask them in SQL."""


lake.add_command(new_lake)
lake.add_command(table_command.tables)
lake.add_command(table_command.changed)
lake.add_command(table_command.register)
lake.add_command(table_command.sql)
lake.add_command(table_command.sources)
lake.add_command(table_command.serve)
lake.add_command(removal_command.drop)
lake.add_command(removal_command.rename)
lake.add_command(removal_command.erase)


@lake.command()
@click.argument("stream")
@CONFIG
@click.option("--only", type=click.Choice(["bronze", "silver"]), help="One step alone.")
@click.option("--continuous", is_flag=True, help="Load until interrupted: bronze as records come.")
@click.option(
    "--every",
    type=click.IntRange(min=1),
    default=15,
    show_default=True,
    metavar="SECONDS",
    help="With --continuous: seconds from one load of silver to the next.",
)
@click.option("--accept-gap", is_flag=True, help="Go on although retention took records that the lake never had.")
@AS_JSON
def load(stream: str, config: str, only: Any, every: int, *, continuous: bool, accept_gap: bool, as_json: bool) -> None:
    """Load what came to STREAM since the last load: Kafka into bronze, bronze into silver.

    Every load goes on from what the tables themselves were committed with, so it can be interrupted, killed and repeated at
    any moment. Exits with 3 when a table stopped; the other tables are loaded then. A running 'headrace lake serve' does it
    where [serve] loads is set, without a JVM of its own; --continuous too, until this command ends.
    """
    if continuous and (only or accept_gap):
        raise click.UsageError("--continuous goes with neither --only nor --accept-gap.")
    file, stopped = file_of(config, stream), StopRequest()
    request = Request(
        config=file.path,
        stream=stream,
        only=only,
        accept_gap=accept_gap,
        styled=sys.stdout.isatty(),
        every=every if continuous else None,
    )
    if load_at_server(file, request, stopped, as_json=as_json):
        return
    from spark_jobs import load, preflight
    from spark_jobs import load as job
    from spark_jobs.session import session

    def show(done: job.Report) -> None:
        if as_json:
            echo(json.dumps(done.plain()))
        else:
            load.show(Terminal(soft_wrap=True), done)

    outlook = preflight.Outlook() if continuous else preflight.look(file, stream, only)
    if outlook.report:
        show(outlook.report)
        return
    spark = session(file, few=outlook.few)
    if not continuous:
        with load.show_progress(Terminal(stderr=True)) as on_progress:
            done = job.run(spark, file, stream, only=only, accept_gap=accept_gap, on_progress=on_progress)
        show(done)
        done.check()
        return
    from spark_jobs import continuous as endless

    _stop_by_signals(stopped.set)
    endless.load(spark, file, stream, every=every, stopped=stopped, on_report=show)


def _stop_by_signals(stop: Callable[[], None]) -> None:
    for interruption in (signal.SIGTERM, signal.SIGINT):
        signal.signal(interruption, lambda *_: stop())


def load_at_server(lake: LakeFile, request: Request, stopped: StopRequest, *, as_json: bool) -> bool:
    """Let a running `headrace lake serve` load, and print its reports; return False where none does.

    One that goes on is stopped by signals, which set `stopped`. Raises the error with which the load ended. Spark is imported for
    the bars of a load that takes a while, and for nothing else.
    """
    connection = warm_loads.connect(lake.serve.loads) if lake.serve.loads else None
    if connection is None:
        return False
    shown: list[OnProgress] = []

    def stop() -> None:
        stopped.set()
        # Its answer is the end of the load.
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)

    def show(answer: Answer) -> None:
        # Its text has the styles of the server's own Terminal.
        sys.stdout.write(f"{json.dumps(answer.report)}\n" if as_json else answer.text)
        sys.stdout.flush()

    if request.every is not None:
        _stop_by_signals(stop)
    with connection, ExitStack() as ending:

        def on_progress(step: str, done: int, todo: int) -> None:
            if not shown:
                from spark_jobs import load as job

                shown.append(ending.enter_context(job.show_progress(Terminal(stderr=True))))
            shown[0](step, done, todo)

        answer = warm_loads.load(connection, request, on_progress, show)
    if answer is None:
        return stopped.is_set()
    if answer.report is not None:
        show(answer)
    answer.check()
    return True


@lake.command()
@click.argument("stream")
@CONFIG
@AS_JSON
def check(stream: str, config: str, *, as_json: bool) -> None:
    """See whether STREAM can be loaded: Kafka answers, the topic is the same, and still holds what is needed next."""
    file = file_of(config, stream)
    from spark_jobs import preflight as job

    result = job.check(file, stream)
    if as_json:
        echo(json.dumps(result))
        return
    console = Terminal(soft_wrap=True)
    console.print(
        styled(
            "[bold]{}[/]: topic {} can be loaded: {:,} offsets to go", stream, repr(result["topic"]), result["records"]
        )
    )
    for place in result["partitions"]:
        where = f"{place['topic']}, " if place["topic"] != result["topic"] else ""
        console.print(
            f"  {where}partition {place['partition']}: needs {place['needed']}, Kafka has {place['start']} to {place['end']}"
        )
    console.print(f"  {_retention(result['retention'], result['records'])}")


def _retention(retention: dict[str, Any], records: int) -> str:
    if "problem" in retention:
        return f"how long Kafka keeps records is not known: {retention['problem']}"
    if retention["seconds"] is None:
        return "Kafka removes no record because of its age"
    kept, left = (timedelta(seconds=int(retention[name])) for name in ("seconds", "headroom_seconds"))
    return f"Kafka keeps records for {kept}" + (f", and may remove one that is not loaded in {left}" if records else "")


@lake.command()
@click.argument("stream")
@CONFIG
@AS_JSON
def positions(stream: str, config: str, *, as_json: bool) -> None:
    """Show up to where each source of STREAM is published, and which offsets bronze holds."""
    file = file_of(config, stream)
    from spark_jobs import load
    from spark_jobs.bronze import envelope
    from spark_jobs.bronze import load as bronze
    from spark_jobs.query import published_tables
    from spark_jobs.session import session
    from spark_jobs.state import offsets

    spark = session(file, writes=False)
    state = published_tables.positions(spark, file, stream)
    held = offsets.of_table(spark, file, bronze.table_path(file, stream), stream, envelope.COLUMNS)
    if not as_json:
        load.show_positions(uncut(), state, held)
        return
    own = file.topic(stream)
    others = {name: topic.offsets for name, topic in sorted(held.topics.items()) if name != own}
    more = {"topics": others, "reached": held.positions} if held.positions is not None else {}
    tables = {
        name: {"version": t.version, "problem": t.problem, "warnings": t.warnings}
        for name, t in sorted(state.tables.items())
    }
    finished = state.finished_at.isoformat() if state.finished_at else None
    document = {"stream": stream, "load": state.load, "finished_at": finished, "bronze_version": state.bronze_version}
    echo(
        json.dumps(document | {"positions": state.positions, "offsets": held.of(own).offsets, "tables": tables} | more)
    )


@lake.command()
@click.argument("stream")
@CONFIG
@click.option("--layer", type=click.Choice(["silver", "bronze"]), default="silver", show_default=True)
@click.option(
    "--from",
    "since",
    metavar="POINT",
    help="From an offset (OFFSET or PARTITION:OFFSET), a position (SOURCE=POSITION) or a time at the source on.",
)
@AS_JSON
def replay(stream: str, config: str, layer: str, since: str | None, *, as_json: bool) -> None:
    """Do a layer of STREAM again: silver from bronze, or bronze from Kafka, all of it or from a point on.

    Readers see the old rows until all new ones are published. Run no load of the stream meanwhile: one of the two would fail.
    """
    file = file_of(config, stream)
    from spark_jobs import load
    from spark_jobs import load as job
    from spark_jobs.maintenance import replay as again
    from spark_jobs.query import metastore
    from spark_jobs.session import session

    spark = session(file)
    if layer == "bronze":
        done = job.Report(bronze=again.of_bronze(spark, file, stream, since))
    else:
        point = again.positions(spark, file, stream, since) if since else None
        with load.show_progress(Terminal(stderr=True)) as on_progress:
            done = job.Report(
                silver=again.of_silver(
                    spark, file, stream, point, on_progress=lambda done, todo: on_progress("silver", done, todo)
                )
            )
        metastore.after_load(spark, file, stream)
    if as_json:
        echo(json.dumps(done.plain()))
    else:
        load.show(Terminal(soft_wrap=True), done)
    done.check()


@lake.command()
@click.argument("stream")
@click.argument("table")
@CONFIG
@AS_JSON
def rebuild(stream: str, table: str, config: str, *, as_json: bool) -> None:
    """Build TABLE (SCHEMA.TABLE at the source) of STREAM again from the newest copy of each source in bronze.

    For a table that stopped because a column's type or the key changed: run 'headrace edge snapshot TABLE --replace' at each
    source first, and a load when the copy is complete. The former rows are kept in a folder that the report names.
    """
    file = file_of(config, stream)
    from spark_jobs.query import metastore
    from spark_jobs.session import session
    from spark_jobs.silver import rebuild as job

    spark = session(file)
    done = job.rebuild(spark, file, stream, table)
    metastore.after_load(spark, file, stream)
    if as_json:
        echo(json.dumps(asdict(done)))
        return
    console = Terminal(soft_wrap=True)
    words = (table, done.load, done.changes, done.seconds)
    console.print(styled("[bold]rebuilt[/] {}: load {}, {:,} changes, {:.1f} s", *words))
    for source, position in sorted(done.copies.items()):
        console.print(f"  {source}: from its copy at {position}")
    if done.former is not None:
        console.print(f"  the former rows are in {done.former}: query delta.`{done.former}`")


@lake.command()
@click.argument("stream")
@CONFIG
@AS_JSON
def maintain(stream: str, config: str, *, as_json: bool) -> None:
    """Put small files of STREAM together, and remove those that were replaced longer ago than [lake] keep_days.

    What is published can be read at any moment, and loads may run meanwhile. Tables that were maintained the longest ago come
    first, and what is done stays done when this is killed.
    """
    file = file_of(config, stream)
    from spark_jobs import load
    from spark_jobs.maintenance import maintain as job
    from spark_jobs.query import metastore
    from spark_jobs.session import session

    spark = session(file)
    with load.show_progress(Terminal(stderr=True)) as on_progress:
        done = job.maintain(spark, file, stream, on_progress=lambda done, todo: on_progress("maintenance", done, todo))
    metastore.after_load(spark, file, stream)
    if as_json:
        echo(json.dumps(asdict(done)))
        return
    console = Terminal(soft_wrap=True)
    words = (stream, len(done.compacted), done.seconds)
    console.print(styled("[bold]maintained[/] {}: {} tables compacted, {:.1f} s", *words))
    for path, (old, new) in sorted(done.compacted.items()):
        console.print(f"  {path}: {old} files became {new}")
    for path in done.skipped:
        console.print(f"  {path}: left as it is, a load is changing it or has not published it yet")
