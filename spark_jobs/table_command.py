"""Commands of `headrace lake` on tables that are there: `tables`, `sql` and `serve` show, query and serve them.

Spark is started only by what needs it, as for the other commands.
"""

import json
import signal
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict
from typing import Any

import click

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from headrace.errors import ConfigurationError, NeedsOperator
from headrace.printable import echo
from headrace.terminal import uncut
from headrace.waiting import StopRequest

#: Options of all commands.
CONFIG = click.option(
    "--config", "-c", required=True, type=click.Path(dir_okay=False), help="The lake's file (TOML, docs/lake.md)."
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead.")


def file_of(config: str, stream: str) -> LakeFile:
    """Return the lake's file; raise ConfigurationError where it has no such stream."""
    file = load_file(config, LakeFile)
    file.stream(stream)
    return file


@click.command()
@click.argument("streams", nargs=-1)
@CONFIG
@click.option("--rows", is_flag=True, help="Count the rows of each table, which opens all of them.")
@click.option("--stopped", is_flag=True, help="List tables that stopped alone, and exit with 3 if there are any.")
@AS_JSON
def tables(streams: tuple[str, ...], config: str, *, rows: bool, stopped: bool, as_json: bool) -> None:
    """List the tables of STREAMS, or of all: name at the source and in SQL, state, expectations, age of what is published."""
    file = load_file(config, LakeFile)
    chosen = [stream for stream in streams or sorted(file.streams) if file.stream(stream)]
    from spark_jobs import preflight
    from spark_jobs.query import published_tables
    from spark_jobs.session import session

    if stopped:
        chosen = [stream for stream in chosen if not preflight.whole(file, stream)]
    listed_tables = published_tables.list_tables(session(file, writes=False), file, chosen, rows=rows) if chosen else []
    if stopped:
        listed_tables = [table for table in listed_tables if table.state == "stopped"]
    if as_json:
        echo(json.dumps([asdict(table) for table in listed_tables], ensure_ascii=False))
    else:
        published_tables.show(uncut(), listed_tables)
    if stopped and listed_tables:
        sys.exit(NeedsOperator.exit_code)


@click.command()
@click.argument("streams", nargs=-1)
@CONFIG
@click.option("--dry-run", is_flag=True, help="Show what the metastore lacks since its last load, and change nothing.")
@AS_JSON
def register(streams: tuple[str, ...], config: str, *, dry_run: bool, as_json: bool) -> None:
    """Register all tables of STREAMS, or of all, in the Hive metastore of [metastore]; loads renew what they changed.

    Exits with 5 where the metastore does not answer.
    """
    file = load_file(config, LakeFile)
    chosen = [stream for stream in streams or sorted(file.streams) if file.stream(stream)]
    if file.metastore is None:
        raise ConfigurationError(f"{config} has no [metastore]", hint='Add it with uri = "thrift://HOST:9083".')
    from spark_jobs.query import metastore
    from spark_jobs.session import session

    spark = session(file, writes=False)
    all_done = [metastore.register(spark, file, stream, whole=not dry_run, dry_run=dry_run) for stream in chosen]
    for done in all_done:
        if as_json:
            echo(json.dumps(asdict(done), ensure_ascii=False))
        else:
            echo(f"{done.line()}{' (nothing was changed)' if dry_run else ''}")


@click.command()
@click.argument("stream")
@CONFIG
@click.option(
    "--since", type=click.IntRange(min=0), metavar="LOAD", help="After this load; the last one alone without."
)
def changed(stream: str, config: str, *, since: int | None) -> None:
    """Print the tables of STREAM that went on, as a line of JSON: load, versions and positions of each.

    Starts no Spark where the lake's log can be read without.
    """
    file = file_of(config, stream)
    from spark_jobs.state import delta_log, log_files, publication, published

    def moved(notes: Iterable[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
        return publication.read_moved((note for note in notes if note["stream"] == stream), since)

    try:
        files = log_files.of_lake(file)
        moves = moved(delta_log.local_notes(files.path("state"), publication.NOTE, files)) if files else None
    except log_files.Unreadable:
        moves = None
    if moves is None:
        from spark_jobs.session import session

        commits = delta_log.commits(session(file, writes=False), published.path(file))
        moves = moved(filter(None, (delta_log.read_note(info, publication.NOTE) for _, info in commits)))
    load, tables = moves
    echo(json.dumps({"stream": stream, "load": load, "tables": tables}, ensure_ascii=False))


@click.command()
@CONFIG
@click.option("--dbt", is_flag=True, help="In the form of dbt's sources.yml, which is the only one.")
def sources(config: str, *, dbt: bool) -> None:  # noqa: ARG001 - other forms may come.
    """Print the lake's tables as sources of a dbt project, for models/sources.yml; the plugin headrace.lake.dbt shows them."""
    from headrace.lake import open as open_lake
    from headrace.lake.dbt import sources as write

    echo(write(open_lake(config).at()), nl=False)


@click.command()
@click.argument("query", required=False)
@click.option("--config", "-c", type=click.Path(dir_okay=False), help="The lake's file (TOML, docs/lake.md).")
@click.option(
    "--server",
    metavar="ADDRESS",
    help="HOST:PORT of a 'headrace lake serve' that answers; the token is in SPARK_CONNECT_AUTHENTICATE_TOKEN (environment).",
)
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv", "parquet"]), default="table", show_default=True
)
@click.option("--to", type=click.Path(), help="With --format parquet: the folder to make.")
@click.option("--as-of", metavar="TIME", help="Show silver as it was at a moment at its sources (ISO 8601, UTC).")
def sql(
    query: str | None, config: str | None, server: str | None, form: Any, to: str | None, as_of: str | None
) -> None:
    r"""Query the lake in Spark SQL: QUERY, a script on standard input, or a prompt (\q leaves, \d lists tables).

    A script's statements end with semicolons; the first error ends it. What writes is refused.

    Tables: silver.<table> (as published), silver_live.<table> (with what no load has merged yet), bronze.<stream>,
    lake.published, history.<table> where history is kept (full_history.<table> of a renamed one).
    'headrace lake tables' lists the names.

    With --server a running 'headrace lake serve' answers QUERY or a script, at once and without the lake's file.
    """
    if (form == "parquet") != (to is not None and query is not None):
        raise click.UsageError("--format parquet goes with QUERY and --to FOLDER, and --to with it.")
    if server is not None:
        if to is not None or as_of is not None:
            raise click.UsageError(
                "--server goes without --format parquet and --as-of: SET headrace.as_of in a script."
            )
        _ask_server(server, query, form)
        return
    if config is None:
        raise click.UsageError("Give --config FILE, or --server ADDRESS.")
    file = load_file(config, LakeFile)
    script = None if query is not None or sys.stdin.isatty() else sys.stdin.read()
    from spark_jobs.maintenance import replay as points
    from spark_jobs.query import engine as queries
    from spark_jobs.query import results

    when = points.moment(as_of) if as_of is not None else None
    from spark_jobs.session import session

    with closing(queries.SqlEngine(session(file, writes=False), file, as_of=when)) as sql_engine:
        if to is not None and query is not None:
            results.write_parquet(sql_engine.ask(query), to, file)
            return
        if query is not None:
            results.write(sql_engine.ask(query), form, sys.stdout)
            return
        if script is not None:
            queries.run_script(sql_engine, script, form, sys.stdout)
            return
        from spark_jobs.query import repl

        repl.run(sql_engine, form)


def _ask_server(server: str, query: str | None, form: Any) -> None:
    if query is None and sys.stdin.isatty():
        raise click.UsageError("--server goes with QUERY, or with a script on standard input.")
    script = query if query is not None else sys.stdin.read()
    from spark_jobs.query import engine as queries

    with closing(queries.RemoteEngine(server)) as sql_engine, queries.refusals():
        queries.run_script(sql_engine, script, form, sys.stdout)


@click.command()
@CONFIG
def serve(config: str) -> None:
    """Answer queries by Spark Connect and JDBC, of what is published: each is shown one publication, and nothing can be written.

    Addresses, users, certificate, limits and audit: [serve] in the lake's file.
    """
    file = load_file(config, LakeFile)
    from spark_jobs.serve import server

    stopped = StopRequest()
    for interruption in (signal.SIGTERM, signal.SIGINT):
        signal.signal(interruption, lambda *_: stopped.set())

    def ready(connect: int, thrift: int) -> None:
        host = file.serve.connect.rpartition(":")[0]
        echo(f"Spark Connect: sc://{host}:{connect}")
        echo(f"JDBC: jdbc:hive2://{file.serve.thrift.rpartition(':')[0]}:{thrift}")

    server.run(file, stopped, ready)
