"""`headrace verify`: prove that the lake's tables equal the databases', while both are written to.

Exit code 0: all equal; 1: not; 3: some could not be compared; 5: neither, and some sources did not answer. Sources are connected
to before Spark is started. The verdicts of a source are printed and recorded once they are there, whatever becomes of the others.
"""

import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace import doors
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError, NotConnected, ReplicationError
from headrace.printable import echo
from headrace.terminal import Terminal

if TYPE_CHECKING:
    from headrace.verify.comparison import Database
    from spark_jobs.verify.lake import LakeAt, Reached
    from spark_jobs.verify.report import Shown, TableReport
    from spark_jobs.verify.tables import Sources
    from spark_jobs.verify.verify import Sample

#: Columns where there is no terminal: nothing is cut in a log.
_WIDTH = 200
_NOT_EQUAL, _NOT_COMPARED = 1, 3


@click.command
@click.argument("stream", required=False)
@click.option("--config", "-c", required=True, type=click.Path(path_type=Path), help="The lake's file.")
@click.option("--source", "-s", help="Only this source, region/name.")
@click.option(
    "--table", "-t", "tables", multiple=True, help="Only this table, NAME or SCHEMA.NAME; can be given again."
)
@click.option(
    "--sample",
    type=click.FloatRange(0, 100, min_open=True),
    metavar="PERCENT",
    help="Compare that share of each table's ranges, others at each run.",
)
@click.option(
    "--wait",
    type=click.IntRange(min=0),
    default=120,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for changes that are still on their way before a difference counts.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=5, max=3600),
    default=90.0,
    show_default=True,
    metavar="SECONDS",
    help="How long an edge may take to answer each request; one that still computes reports that in time.",
)
@click.option(
    "--busy-wait",
    type=click.IntRange(0, 86_400),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for an edge that is at another verification, as the one of Airflow's schedule: it does one at a time.",
)
@click.option("--at-rest", is_flag=True, help="Compare with what is published: writers rest, and loads have caught up.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every difference found.")
def verify(
    *,
    stream: str | None,
    config: Path,
    source: str | None,
    tables: tuple[str, ...],
    sample: float | None,
    wait: int,
    timeout: float,
    busy_wait: int,
    at_rest: bool,
    as_json: bool,
) -> None:
    """Compare every table of the sources with its silver table, at one place of each source's log.

    Writers need not stop, nor loads. Counts and checksums are made inside the databases, each in its own region by the edge there
    (unless the lake's file has a connection to it), and inside Spark. STREAM limits it to
    the sources of one stream. Exit code 0: all equal; 1: not equal, and where is printed; 3: some could not be compared; 5: the
    others are equal, and some sources do not answer.
    """
    lake = load(config, LakeFile)
    sources = _sources(lake, stream, source)
    by_hand = {name: engine for name, section in lake.sources.items() if (engine := section.by_hand) is not None}
    # Spark and the driver take seconds to import, which a wrong file need not wait for.
    from spark_jobs.session import session
    from spark_jobs.verify import report
    from spark_jobs.verify.lake import LakeAt
    from spark_jobs.verify.tables import Sources, is_named
    from spark_jobs.verify.verify import Sample, report_statements

    chosen = Sample(percent=sample) if sample is not None else None
    reports: list[TableReport] = []
    with (
        report.progress(Terminal(stderr=True)) as shown,
        closing(Sources(lake, timeout, busy_wait, shown.show)) as reached,
    ):
        shown.show("connecting to the sources")
        failed = _connect_all(reached, [name for _, name in sources if name not in by_hand])
        shown.show("starting Spark")
        spark = session(lake, name="headrace verify", writes=False)
        for stream_name, name in sources:
            if name in failed:
                continue
            shown.show(f"{name}: taking a snapshot")
            of_source: list[TableReport] = []
            try:
                with closing(LakeAt(spark, lake, stream_name)) as silver:
                    if name in by_hand:
                        of_source.extend(report_statements(name, by_hand[name], silver, tables))
                    else:
                        # What is published before the snapshot is taken cannot be ahead of it.
                        with reached.connect(name, placed=not at_rest) as database:
                            _verify(name, database, silver, tables, chosen, wait, shown, of_source)
            except Exception as error:  # noqa: BLE001 - the others are verified all the same.
                failed[name] = doors.explain(f"verifying {name}", error)
            if of_source and not as_json:
                report.show(of_source, Terminal() if sys.stdout.isatty() else Terminal(width=_WIDTH))
            report.record(spark, lake, stream_name, of_source)
            reports += of_source
    unknown = [] if failed else [table for table in tables if not any(is_named(each.table, table) for each in reports)]
    if not failed and (unknown or all(each.verdict == "not captured" for each in reports)):
        raise ConfigurationError(
            "there is nothing to compare" + (f": no table {', '.join(map(repr, unknown))}" if unknown else ""),
            hint="Name a table as NAME or SCHEMA.NAME, as it is called at the source.",
        )
    if as_json:
        echo(report.as_json(reports, failed))
    else:
        report.conclude(reports, failed, Terminal() if sys.stdout.isatty() else Terminal(width=_WIDTH))
    sys.exit(_exit_code(reports, failed))


def _connect_all(reached: "Sources", names: list[str]) -> dict[str, ReplicationError]:
    """Connect to each source once; return the errors of those that cannot be, by source. Raises one when none can."""
    failed: dict[str, ReplicationError] = {}
    for name in names:
        try:
            with reached.connect(name, placed=False):
                pass
        except ConfigurationError:
            raise
        except Exception as error:  # noqa: BLE001 - the others are verified all the same.
            failed[name] = doors.explain(f"verifying {name}", error)
    if failed and len(failed) == len(set(names)):
        raise next(iter(failed.values()))
    return failed


def _exit_code(reports: "list[TableReport]", failed: dict[str, ReplicationError]) -> int:
    """Return the code for "not equal", or for "not all compared": 5 where another try is all that is needed."""
    given = {each.verdict for each in reports}
    codes = {error.exit_code for error in failed.values()}
    if "not equal" in given:
        return _NOT_EQUAL
    if "not compared" in given or codes - {NotConnected.exit_code}:
        return _NOT_COMPARED
    return NotConnected.exit_code if codes else 0


def _verify(
    name: str,
    database: "Database",
    silver: "LakeAt",
    tables: tuple[str, ...],
    sample: "Sample | None",
    wait: int,
    shown: "Shown",
    reports: "list[TableReport]",
) -> None:
    """Add a report for each table of a source. A difference counts only once the lake has all that came before.

    What was added before an error stays: it holds.
    """
    from spark_jobs.verify.verify import verify as compared

    if database.place is None:
        reports.extend(compared(name, database, silver, tables, sample=sample, on_progress=shown.table))
        return
    reached = silver.advance(name, database, seconds=0, on_progress=shown.show)
    unsure: list[TableReport] = []
    try:
        for each in compared(name, database, silver, tables, sample=sample, on_progress=shown.table):
            (unsure if each.verdict == "not equal" and not reached.proven else reports).append(each)
        if unsure:
            reached = silver.advance(name, database, seconds=wait, on_progress=shown.show)
        while unsure:
            (again,) = compared(name, database, silver, [unsure[0].table], sample=sample, on_progress=shown.table)
            reports.append(again if reached.proven else _doubted(again, reached, wait))
            del unsure[0]
    except Exception as error:
        failure = doors.explain(f"verifying {name}", error)
        why = (
            f"it differs, but changes may have been on their way, and it could not be compared again: {failure.message}"
        )
        reports += [replace(each, verdict="not compared", reasons=[why, *each.reasons]) for each in unsure]
        raise failure from error
    finally:
        reports.sort(key=lambda each: each.table)


def _doubted(report: "TableReport", reached: "Reached", wait: int) -> "TableReport":
    """Return the report of a table that differs while changes may still be on their way."""
    if report.verdict != "not equal":
        return report
    state = f"is at {reached.newest}" if reached.newest else "has nothing of it"
    reason = (
        f"it differs, but within {wait} s nothing came that the source wrote after the snapshot: the lake {state}, and changes "
        "may be on their way. See that edge and bridge run ('headrace status'), or change any captured row, and verify again."
    )
    return replace(report, verdict="not compared", reasons=[reason, *report.reasons])


def _sources(lake: LakeFile, stream: str | None, source: str | None) -> list[tuple[str, str]]:
    """Return stream and name of each source to verify; raise ConfigurationError when there is none."""
    names = [stream] if stream else sorted(lake.streams)
    chosen = [
        (name, member) for name in names for member in lake.stream(name).sources if source is None or member == source
    ]
    if not chosen:
        raise ConfigurationError(
            f"no source {source!r} in {f'stream {stream!r}' if stream else 'any stream'} of {lake.path}",
            hint=f"There are: {', '.join(sorted(member for name in names for member in lake.stream(name).sources))}.",
        )
    return chosen
