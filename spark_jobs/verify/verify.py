"""The verification of one source against silver: every table of it, one after the other.

Reads the source in one snapshot and silver as it is given; changes neither. A table that cannot be compared is reported, and
the others go on. Called by command.py.
"""

import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from pyspark.sql import DataFrame

from headrace.errors import CorruptInput, NeedsOperator, Retryable
from headrace.verify import ranges
from headrace.verify.engine import Database, SourceSide, SourceTable
from headrace.verify.ranges import Grid
from spark_jobs.errors import explained
from spark_jobs.verify import silver, tables
from spark_jobs.verify.compare import compare
from spark_jobs.verify.report import TableReport, Verdict
from spark_jobs.verify.silver import SilverSide
from spark_jobs.verify.tables import Plan

_LOG = logging.getLogger(__name__)

#: Rows of a range, about; and ranges of a table, at most, and at least when some of them are sampled.
_ROWS, _MOST_RANGES, _LEAST_SAMPLED = 100_000, ranges.MOST_CELLS, 100
_INTEGERS = {"short", "integer", "long"}

#: Receives the source, the table, how many rows of it the source has summed up, and about how many there are.
OnProgress = Callable[[str, str, int, int], None]


class SilverTables(Protocol):
    """The silver tables of a stream."""

    def names(self, source: str) -> set[str]:
        """Return the tables, `schema.table`, that the source has sent changes of."""

    def frame(self, source: str, name: str) -> DataFrame | None:
        """Return a source's rows of a table, with the table's own columns only; None when there is no silver table."""

    def treated(self, source: str, name: str) -> Mapping[str, str]:
        """Return what the edge's policy does to columns of a source's table, by column."""

    def problem(self, name: str) -> str | None:
        """Return why the load stopped at a table; None when it did not."""


def verify(
    source: str,
    database: Database,
    lake: SilverTables,
    wanted: Collection[str] = (),
    *,
    sample: float | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[TableReport]:
    """Give a report for each table of a source, or for those that `wanted` names, as soon as it is known.

    `sample` is the share of each table's ranges to compare, in percent, chosen at random.
    """
    at_source = database.tables()
    known = {str(table): table for table in at_source}
    in_lake = [name for name in lake.names(source) if name not in database.sequences]
    for name in tables.to_compare(at_source, in_lake, wanted):
        started = time.monotonic()
        try:
            with explained(f"verifying {name} of {source}"):
                treated = lake.treated(source, name)
                frame = lake.frame(source, name)
                report = _verify(source, name, database, known.get(name), frame, treated, sample, on_progress)
        except (NeedsOperator, CorruptInput, Retryable) as error:
            reason = f"{error.message}. {error.hint}".strip()
            report = TableReport(source=source, table=name, verdict="not compared", reasons=[reason])
        problem = lake.problem(name)
        if problem is not None and report.verdict == "not equal":
            report = replace(report, reasons=[*report.reasons, f"the load stopped at this table: {problem}"])
        report = replace(
            report, place=database.place.text if database.place else None, seconds=time.monotonic() - started
        )
        _LOG.debug("verified %s %s in %.1f s: %s", source, name, report.seconds, report.verdict)
        yield report


def _verify(
    source: str,
    name: str,
    database: Database,
    table: SourceTable | None,
    frame: DataFrame | None,
    treated: Mapping[str, str],
    sample: float | None,
    on_progress: OnProgress | None,
) -> TableReport:
    if table is None or frame is None:
        return _one_sided(source, name, database, table, frame)
    if database.place is not None and table.unsteady:
        raise NeedsOperator(
            f"{name} of {source} {table.unsteady}",
            hint="Let writers rest, load, and compare it with --at-rest --table.",
        )
    in_silver = silver.columns(frame)
    plan = tables.plan(table, in_silver, treated, database.forms)
    summed = 0

    def on_rows(rows: int) -> None:
        nonlocal summed
        summed += rows
        if on_progress:
            on_progress(source, name, summed, max(about, summed))

    side = database.side(table, plan.columns, plan.key, on_progress=on_rows)
    about = side.about()
    by_number = bool(plan.key) and in_silver[plan.key[0].stored].name in _INTEGERS
    grid = _grid(side, about, by_number=by_number, sampled=sample is not None)
    cells = None if sample is None else _chosen(grid, sample)
    in_lake = SilverSide(frame, plan.columns, plan.key, database.forms)
    found = compare(side, in_lake, plan.columns, plan.key, grid, cells)
    return TableReport(
        source=source,
        table=name,
        verdict=_verdict(found.equal, plan),
        rows_source=found.source.rows,
        rows_lake=found.lake.rows,
        ranges=grid.cells,
        ranges_compared=found.compared,
        reasons=plan.reasons,
        differing=list(found.ranges) if grid.cells > 1 else [],
        differences=list(found.differences),
        complete=found.complete,
        treated=plan.treated,
    )


def _one_sided(
    source: str, name: str, database: Database, table: SourceTable | None, frame: DataFrame | None
) -> TableReport:
    rows_source = database.side(table, [], []).count() if table else None
    rows_lake = frame.count() if frame is not None else None
    equal = not rows_source and not rows_lake
    reason = (
        "the table is missing in the lake"
        if table
        else "the table is not at the source: it was dropped or renamed there, which is not in its log, so the lake keeps it"
    )
    return TableReport(
        source=source,
        table=name,
        verdict="equal" if equal else "not equal",
        rows_source=rows_source,
        rows_lake=rows_lake,
        reasons=[] if equal else [reason],
    )


def _grid(side: SourceSide, about: int, *, by_number: bool, sampled: bool) -> Grid:
    """Return the ranges of a table, by its leading key column where that is an integer on both sides."""
    bounds = side.bounds() if by_number else None
    span = ranges.keys(*bounds) if bounds else None
    wanted = min(_MOST_RANGES, -(-about // _ROWS))
    return ranges.grid(span or ranges.hashes(), max(wanted, _LEAST_SAMPLED) if sampled else wanted)


def _chosen(grid: Grid, sample: float) -> list[int]:
    """Return as many cells as the share is, others at each run; one at least."""
    return sorted(random.sample(range(grid.cells), max(1, round(grid.cells * sample / 100))))


def _verdict(equal: bool, plan: Plan) -> Verdict:
    return "equal" if equal and not plan.reasons else "not equal"
