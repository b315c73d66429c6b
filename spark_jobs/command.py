"""`headrace lake`: load streams, check before loading, see what is published, and ask in SQL.

Spark is started only by what needs it, so `--help`, a wrong file and a failed check answer at once.
"""

import json
import logging
import signal
import sys
import threading
from contextlib import closing
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from headrace.configuration.new import new_lake
from headrace.errors import NeedsOperator, NotConnected, Retryable

_log = logging.getLogger(__name__)

_config = click.option(
    "--config", "-c", required=True, type=click.Path(dir_okay=False), help="The lake's file (TOML, docs/lake.md)."
)
#: Columns where there is no terminal: nothing is cut in a file.
_WIDTH = 1_000_000
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead.")


@click.group()
def lake() -> None:
    """Load streams into Delta tables, and ask them in SQL."""


lake.add_command(new_lake)


@lake.command()
@click.argument("stream")
@_config
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
@_json
def load(stream: str, config: str, only: Any, every: int, *, continuous: bool, accept_gap: bool, as_json: bool) -> None:
    """Load what came to STREAM since the last load: Kafka into bronze, bronze into silver.

    Every load goes on from what the tables themselves were committed with, so it can be interrupted, killed and repeated at
    any moment. Exits with 3 when a table stopped; the other tables are loaded then.
    """
    if continuous and (only or accept_gap):
        raise click.UsageError("--continuous goes with neither --only nor --accept-gap.")
    file = _file(config, stream)
    from spark_jobs import load as job
    from spark_jobs import load_report, noop_check
    from spark_jobs.session import session

    def show(done: job.Report) -> None:
        if as_json:
            click.echo(json.dumps(done.plain()))
        else:
            load_report.show(Console(highlight=False, soft_wrap=True), done)

    if not continuous and (nothing := noop_check.report(file, stream, only)):
        show(nothing)
        return
    spark = session(file)
    if not continuous:
        with load_report.progress(Console(stderr=True)) as on_progress:
            done = job.run(spark, file, stream, only=only, accept_gap=accept_gap, on_progress=on_progress)
        show(done)
        done.check()
        return
    stopped = threading.Event()
    for interruption in (signal.SIGTERM, signal.SIGINT):
        signal.signal(interruption, lambda *_: stopped.set())
    while not stopped.is_set():
        try:
            job.follow(spark, file, stream, every=every, stopped=stopped, on_progress=show)
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
    from spark_jobs.bronze import check as job

    found = job.check(file, stream)
    if as_json:
        click.echo(json.dumps(found))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{stream}[/]: topic {found['topic']!r} can be loaded: {found['records']:,} offsets to go")
    for place in found["partitions"]:
        where = f"{place['topic']}, " if place["topic"] != found["topic"] else ""
        console.print(
            f"  {where}partition {place['partition']}: needs {place['needed']}, Kafka has {place['start']} to {place['end']}"
        )


@lake.command()
@click.argument("stream")
@_config
@_json
def positions(stream: str, config: str, *, as_json: bool) -> None:
    """Show up to where each source of STREAM is published, and which offsets bronze holds."""
    file = _file(config, stream)
    from spark_jobs import load_report
    from spark_jobs.bronze import envelope
    from spark_jobs.bronze import load as bronze
    from spark_jobs.query import published_tables
    from spark_jobs.session import session
    from spark_jobs.state import offsets

    spark = session(file)
    state = published_tables.positions(spark, file, stream)
    held = offsets.of_table(spark, bronze.table_path(file, stream), stream, envelope.COLUMNS)
    if not as_json:
        load_report.show_positions(_console(markup=True), state, held)
        return
    own = file.topic(stream)
    others = {name: one.offsets for name, one in sorted(held.topics.items()) if name != own}
    more = {"topics": others, "reached": held.positions} if held.positions is not None else {}
    tables = {
        name: {"version": t.version, "problem": t.problem, "warnings": t.warnings}
        for name, t in sorted(state.tables.items())
    }
    finished = state.finished_at.isoformat() if state.finished_at else None
    document = {"stream": stream, "load": state.load, "finished_at": finished, "bronze_version": state.bronze_version}
    click.echo(
        json.dumps(document | {"positions": state.positions, "offsets": held.of(own).offsets, "tables": tables} | more)
    )


@lake.command()
@click.argument("stream")
@_config
@click.option("--layer", type=click.Choice(["silver", "bronze"]), default="silver", show_default=True)
@click.option(
    "--from",
    "since",
    metavar="POINT",
    help="From an offset (OFFSET or PARTITION:OFFSET), a position (SOURCE=POSITION) or a time at the source on.",
)
@_json
def replay(stream: str, config: str, layer: str, since: str | None, *, as_json: bool) -> None:
    """Do a layer of STREAM again: silver from bronze, or bronze from Kafka, all of it or from a point on.

    Readers see the old rows until all new ones are published. Run no load of the stream meanwhile: one of the two would fail.
    """
    file = _file(config, stream)
    from spark_jobs import load as job
    from spark_jobs import load_report
    from spark_jobs.maintenance import replay_bronze as again
    from spark_jobs.maintenance import replay_silver as silver
    from spark_jobs.session import session

    spark = session(file)
    if layer == "bronze":
        done = job.Report(bronze=again.of_bronze(spark, file, stream, since))
    else:
        point = again.positions(spark, file, stream, since) if since else None
        with load_report.progress(Console(stderr=True)) as on_progress:
            done = job.Report(
                silver=silver.replay(
                    spark, file, stream, point, on_progress=lambda done, todo: on_progress("silver", done, todo)
                )
            )
    if as_json:
        click.echo(json.dumps(done.plain()))
    else:
        load_report.show(Console(highlight=False, soft_wrap=True), done)
    done.check()


@lake.command()
@click.argument("stream")
@click.argument("table")
@_config
@_json
def rebuild(stream: str, table: str, config: str, *, as_json: bool) -> None:
    """Build TABLE (SCHEMA.TABLE at the source) of STREAM again from the newest copy of each source in bronze.

    For a table that stopped because a column's type or the key changed: run 'headrace edge snapshot TABLE --replace' at each
    source first, and a load when the copy is complete. The former rows are kept in a folder that the report names.
    """
    file = _file(config, stream)
    from spark_jobs.session import session
    from spark_jobs.silver import rebuild as job

    done = job.rebuild(session(file), file, stream, table)
    if as_json:
        click.echo(json.dumps(asdict(done)))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]rebuilt[/] {table}: load {done.load}, {done.changes:,} changes, {done.seconds:.1f} s")
    for source, position in sorted(done.copies.items()):
        console.print(f"  {source}: from its copy at {position}")
    if done.former is not None:
        console.print(f"  the former rows are in {done.former}: query delta.`{done.former}`")


@lake.command()
@click.argument("stream")
@_config
@_json
def maintain(stream: str, config: str, *, as_json: bool) -> None:
    """Put small files of STREAM together, and remove those that were replaced longer ago than [lake] keep_days.

    What is published can be read at any moment, and loads may run meanwhile.
    """
    file = _file(config, stream)
    from spark_jobs.maintenance import maintain as job
    from spark_jobs.session import session

    done = job.maintain(session(file), file, stream)
    if as_json:
        click.echo(json.dumps(asdict(done)))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]maintained[/] {stream}: {len(done.compacted)} tables compacted, {done.seconds:.1f} s")
    for path, (old, new) in sorted(done.compacted.items()):
        console.print(f"  {path}: {old} files became {new}")
    for path in done.skipped:
        console.print(f"  {path}: left as it is, a load is changing it or has not published it yet")


@lake.command()
@click.argument("streams", nargs=-1)
@_config
@click.option("--rows", is_flag=True, help="Count the rows of each table, which opens all of them.")
@click.option("--stopped", is_flag=True, help="List tables that stopped alone, and exit with 3 if there are any.")
@_json
def tables(streams: tuple[str, ...], config: str, *, rows: bool, stopped: bool, as_json: bool) -> None:
    """List the tables of STREAMS, or of all: name at the source and in SQL, state, and how old what is published is."""
    file = load_file(config, LakeFile)
    chosen = [stream for stream in streams or sorted(file.streams) if file.stream(stream)]
    from spark_jobs import noop_check
    from spark_jobs.query import listing
    from spark_jobs.session import session

    if stopped:
        chosen = [stream for stream in chosen if not noop_check.whole(file, stream)]
    found = listing.tables(session(file), file, chosen, rows=rows) if chosen else []
    if stopped:
        found = [one for one in found if one.state == "stopped"]
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], ensure_ascii=False))
    else:
        listing.show(_console(), found)
    if stopped and found:
        sys.exit(NeedsOperator.exit_code)


@lake.command()
@click.argument("query", required=False)
@_config
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv", "parquet"]), default="table", show_default=True
)
@click.option("--to", type=click.Path(), help="With --format parquet: the folder to make.")
@click.option("--as-of", metavar="TIME", help="Show silver as it was at a moment at its sources (ISO 8601, UTC).")
def sql(query: str | None, config: str, form: Any, to: str | None, as_of: str | None) -> None:
    r"""Query the lake in Spark SQL: QUERY, a script on standard input, or a prompt (\q leaves, \d lists tables).

    A script's statements end with semicolons; the first error ends it. What writes is refused.

    Tables: silver.<table> (as published), silver_live.<table> (with what no load has merged yet), bronze.<stream>,
    lake.published, history.<table> where history is kept. 'headrace lake tables' lists the names.
    """
    if (form == "parquet") != (to is not None and query is not None):
        raise click.UsageError("--format parquet goes with QUERY and --to FOLDER, and --to with it.")
    file = load_file(config, LakeFile)
    script = None if query is not None or sys.stdin.isatty() else sys.stdin.read()
    from spark_jobs.maintenance import replay_bronze as points
    from spark_jobs.query import engine as queries
    from spark_jobs.query import results

    when = points.moment(as_of) if as_of is not None else None
    from spark_jobs.session import session

    with closing(queries.SqlEngine(session(file), file, as_of=when)) as desk:
        if to is not None and query is not None:
            results.write_parquet(desk.ask(query), to, file)
            return
        if query is not None:
            results.write(desk.ask(query), form, sys.stdout)
            return
        if script is not None:
            queries.run_script(desk, script, form, sys.stdout)
            return
        from spark_jobs.query import repl

        repl.run(desk, form)


def _console(*, markup: bool = False) -> Console:
    """Return a console that cuts nothing where there is no terminal, and takes no name for markup."""
    return Console(highlight=False, markup=markup, width=None if sys.stdout.isatty() else _WIDTH)


def _file(config: str, stream: str) -> LakeFile:
    file = load_file(config, LakeFile)
    file.stream(stream)
    return file
