"""`headrace verify`: prove that the lake's tables equal the databases'.

Exit code 0: all equal; 1: not; others by the class of the error. Sources are connected to before Spark is started, so what is
wrong with them is said at once.
"""

import sys
import time
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.configuration.postgresql import PostgresqlConnection
from headrace.errors import ConfigurationError

#: Columns where there is no terminal: nothing is cut in a log.
_WIDTH = 200


@click.command
@click.argument("stream", required=False)
@click.option("--config", "-c", required=True, type=click.Path(path_type=Path), help="The lake's file.")
@click.option("--source", "-s", help="Only this source, region/name.")
@click.option("--table", "-t", help="Only this table: NAME or SCHEMA.NAME.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every difference found.")
def verify(*, stream: str | None, config: Path, source: str | None, table: str | None, as_json: bool) -> None:
    """Compare every table of the sources with its silver table.

    Counts and checksums are made inside the databases and inside Spark. Writers must rest and loads have caught up. STREAM
    limits it to the sources of one stream. Exit code 0: all equal; 1: not equal, and where is printed.
    """
    lake = load(config, LakeFile)
    streams = _sources(lake, stream, source)
    # Spark and the driver take seconds to import, which a wrong file need not wait for.
    from spark_jobs.session import session
    from spark_jobs.verify import report
    from spark_jobs.verify.published import PublishedSilver
    from spark_jobs.verify.source import SourceDatabase
    from spark_jobs.verify.verify import verify as verify_source

    progress = Console(stderr=True)
    reports: list[report.TableReport] = []
    with ExitStack() as connected, progress.status("connecting to the sources") as status:
        databases = [
            (stream_name, name, connected.enter_context(SourceDatabase.connect(name, address)))
            for stream_name, name, address in streams
        ]
        status.update("starting Spark")
        started = time.monotonic()
        spark = session(lake, name="headrace verify")
        status.update(f"Spark started in {time.monotonic() - started:.0f} s; comparing")
        for stream_name, name, database in databases:
            silver = PublishedSilver(spark, lake, stream_name)
            for found in verify_source(name, database, silver, table):
                reports.append(found)
                status.update(f"{name} {found.table}: {'equal' if found.equal else 'not equal'}; comparing the next")
    if not reports:
        raise ConfigurationError(
            f"there is nothing to compare{f': no table {table!r}' if table else ''}",
            hint="Name a table as NAME or SCHEMA.NAME, as it is called at the source.",
        )
    if as_json:
        click.echo(report.as_json(reports))
    else:
        report.show(reports, Console() if sys.stdout.isatty() else Console(width=_WIDTH))
    sys.exit(0 if all(found.equal for found in reports) else 1)


def _sources(lake: LakeFile, stream: str | None, source: str | None) -> list[tuple[str, str, PostgresqlConnection]]:
    """Return stream, name and address of each source to verify; raise ConfigurationError when one cannot be reached."""
    names = [stream] if stream else sorted(lake.streams)
    chosen = [
        (name, member) for name in names for member in lake.stream(name).sources if source is None or member == source
    ]
    if not chosen:
        raise ConfigurationError(
            f"no source {source!r} in {f'stream {stream!r}' if stream else 'any stream'} of {lake.path}",
            hint=f"There are: {', '.join(sorted(member for name in names for member in lake.stream(name).sources))}.",
        )
    found = []
    for name, member in chosen:
        if member not in lake.sources:
            raise ConfigurationError(
                f"{lake.path} does not say how to reach source {member!r}",
                hint=f'Add [sources."{member}".postgresql] with host, port, database and user, or choose with --source.',
            )
        found.append((name, member, lake.sources[member].postgresql))
    return found
