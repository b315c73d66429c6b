"""The verification of one source against silver: every table of it, one after the other.

Reads the source in one snapshot and silver as it is given; changes neither. A table that cannot be compared is reported, and
the others go on. Called by command.py.
"""

import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from pyspark.sql import DataFrame

from headrace import doors
from headrace.errors import NeedsOperator, NotConnected
from headrace.schema import TableSchema
from headrace.verify import by_hand, comparison
from headrace.verify.comparison import Database, Grid, SourceSide, SourceTable
from headrace.verify.mysql import canonical as mysql_canonical
from spark_jobs.errors import explained
from spark_jobs.verify import tables
from spark_jobs.verify.compare import compare
from spark_jobs.verify.report import TableReport, Verdict
from spark_jobs.verify.tables import Plan, SilverSide

_LOG = logging.getLogger(__name__)

#: Rows of a range, about; and ranges of a table, at most, and at least when some of them are sampled.
_ROWS, _MOST_RANGES, _LEAST_SAMPLED = 100_000, comparison.MOST_CELLS, 100
_INTEGERS = {"short", "integer", "long"}

#: Receives the source, the table, how many rows of it the source has summed up, and about how many there are.
OnProgress = Callable[[str, str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A share of each table's ranges, chosen at random and the same whenever a table is compared again."""

    percent: float
    #: Ranges, and those of them that were chosen, by source and table.
    chosen: dict[tuple[str, str], tuple[Grid, list[int]]] = field(default_factory=dict)

    def choose(self, source: str, name: str, grid: Callable[[], Grid]) -> tuple[Grid, list[int]]:
        """Return the ranges of a table and as many cells of them as the share is, one at least."""
        if (source, name) not in self.chosen:
            cut = grid()
            number = max(1, round(cut.cells * self.percent / 100))
            self.chosen[source, name] = cut, sorted(random.sample(range(cut.cells), number))
        return self.chosen[source, name]


class SilverTables(Protocol):
    """The silver tables of a stream."""

    def names(self, source: str) -> set[str]:
        """Return the tables, `schema.table`, that the source has sent changes of."""

    def dropped(self) -> Collection[str]:
        """Return the tables that were dropped from the lake, whatever the source has of them."""

    def frame(self, source: str, name: str) -> DataFrame | None:
        """Return a source's rows of a table, with the table's own columns only; None when there is no silver table."""

    def treated(self, source: str, name: str) -> Mapping[str, str]:
        """Return what the edge's policy does to columns of a source's table, by column."""

    def schema(self, source: str, name: str) -> TableSchema | None:
        """Return a source's table by its last schema record; None for none."""

    def problem(self, source: str, name: str) -> str | None:
        """Return why the load stopped at a source's rows of a table; None when it did not."""

    def copying(self, source: str, name: str) -> str | None:
        """Return why a source's rows of a table wait for a copy that is under way; None when none is."""


def verify(
    source: str,
    database: Database,
    lake: SilverTables,
    chosen_names: Collection[str] = (),
    *,
    sample: Sample | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[TableReport]:
    """Give a report for each table of a source, or for those that `chosen_names` names, as soon as it is there.

    Without a `sample` all ranges of each table are compared. Raises NotConnected when the source's snapshot is lost; any other
    error is the verdict of its table.
    """
    at_source = database.tables()
    tables_by_name = {str(table): table for table in at_source}
    in_lake = [name for name in lake.names(source) if name not in database.sequences]
    dropped = lake.dropped()
    at_source = [table for table in at_source if str(table) not in dropped]
    for name in tables.to_compare(at_source, in_lake, chosen_names):
        compare = partial(_verify_table, source, name, database, tables_by_name.get(name), lake, sample, on_progress)
        report = _report(source, name, lake, compare)
        yield replace(report, place=database.place.text if database.place else None)


def report_statements(
    source: str, engine: str, lake: SilverTables, chosen_names: Collection[str] = ()
) -> Iterator[TableReport]:
    """Give a report for each table with the statement to run at its database by hand, and what that has to give."""
    for name in tables.to_compare([], lake.names(source) - set(lake.dropped()), chosen_names):
        yield _report(source, name, lake, partial(_report_statement, source, name, engine, lake))


def _report(source: str, name: str, lake: SilverTables, compare: Callable[[], TableReport]) -> TableReport:
    """Return what comparing a table returns; an error but the loss of the source's snapshot is its verdict."""
    started = time.monotonic()
    try:
        with explained(f"verifying {name} of {source}"):
            report = compare()
    except NotConnected:
        raise
    except Exception as error:  # noqa: BLE001 - the other tables are compared all the same.
        failure = doors.explain(f"verifying {name} of {source}", error)
        reason = f"{failure.message}. {failure.hint}".strip()
        report = TableReport(source=source, table=name, verdict="not compared", reasons=[reason])
    report = replace(_explained(report, lake), seconds=time.monotonic() - started)
    _LOG.debug("verified %s %s in %.1f s: %s", source, name, report.seconds, report.verdict)
    return report


def _verify_table(
    source: str,
    name: str,
    database: Database,
    table: SourceTable | None,
    lake: SilverTables,
    sample: Sample | None,
    on_progress: OnProgress | None,
) -> TableReport:
    treated, frame = lake.treated(source, name), lake.frame(source, name)
    return _verify(source, name, database, table, frame, treated, sample, on_progress)


def _report_statement(source: str, name: str, engine: str, lake: SilverTables) -> TableReport:
    schema, frame = lake.schema(source, name), lake.frame(source, name)
    if schema is None or frame is None:
        return TableReport(source=source, table=name, verdict="not compared", reasons=["silver has no rows of it yet"])
    compared, left_out = by_hand.columns(engine, schema, tables.columns(frame))
    whole = comparison.grid(comparison.hashes(), 1)
    sums = SilverSide(frame, compared, [], mysql_canonical).digests(whole).get(0, comparison.Digest())
    without = f", without {', '.join(left_out)}" if left_out else ""
    reason = (
        f"where nothing is written and loads have caught up, this gives {sums.rows}, {sums.first}, {sums.second} "
        f"there{without}: {by_hand.source_statement(engine, schema, compared)}"
    )
    return TableReport(source=source, table=name, verdict="not compared", rows_lake=sums.rows, reasons=[reason])


def _explained(report: TableReport, lake: SilverTables) -> TableReport:
    """Return the report of a table that is not equal with what the lake knows of it."""
    if report.verdict in {"equal", "not captured"}:
        return report
    problem, copying = lake.problem(report.source, report.table), lake.copying(report.source, report.table)
    if problem is not None:
        report = replace(report, reasons=[*report.reasons, f"the load stopped at this table: {problem}"])
    if copying is not None:
        report = replace(report, verdict="not compared", reasons=[copying, *report.reasons])
    return report


def _verify(
    source: str,
    name: str,
    database: Database,
    table: SourceTable | None,
    frame: DataFrame | None,
    treated: Mapping[str, str],
    sample: Sample | None,
    on_progress: OnProgress | None,
) -> TableReport:
    if table is None or frame is None or not table.captured:
        return _one_sided(source, name, database, table, frame)
    if database.place is not None and table.unsteady:
        raise NeedsOperator(
            f"{name} of {source} {table.unsteady}",
            hint="Let writers rest, load, and compare it with --at-rest --table.",
        )
    in_silver = tables.columns(frame)
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
    cells = None
    if sample is None:
        grid = _grid(side, about, by_number=by_number, least=1)
    else:
        grid, cells = sample.choose(source, name, lambda: _grid(side, about, by_number=by_number, least=_LEAST_SAMPLED))
    in_lake = SilverSide(frame, plan.columns, plan.key, database.forms)
    comparison = compare(side, in_lake, plan.columns, plan.key, grid, cells)
    return TableReport(
        source=source,
        table=name,
        verdict=_verdict(comparison.equal, plan),
        rows_source=comparison.source.rows,
        rows_lake=comparison.lake.rows,
        ranges=grid.cells,
        ranges_compared=comparison.compared,
        reasons=plan.reasons,
        differing=list(comparison.ranges) if grid.cells > 1 else [],
        differences=list(comparison.differences),
        complete=comparison.complete,
        treated=plan.treated,
    )


def _one_sided(
    source: str, name: str, database: Database, table: SourceTable | None, frame: DataFrame | None
) -> TableReport:
    """Return the report of a table that is not captured, or that one side does not have."""
    rows_source = database.side(table, [], []).count() if table and table.captured else None
    rows_lake = frame.count() if frame is not None else None
    verdict: Verdict = "not compared"
    if table is not None and not table.captured:
        reason = "it is not captured: the source's publication does not carry it"
        verdict = "not compared" if rows_lake else "not captured"
    elif not rows_source and not rows_lake:
        reason, verdict = "", "equal"
    elif table is None:
        reason = (
            "the table is not at the source: it was dropped or renamed there, which is not in its log, so the lake keeps it; "
            "or it does not leave the region"
        )
    else:
        reason, verdict = "the table is missing in the lake", "not equal"
    return TableReport(
        source=source,
        table=name,
        verdict=verdict,
        rows_source=rows_source,
        rows_lake=rows_lake,
        reasons=[reason] if reason else [],
    )


def _grid(side: SourceSide, about: int, *, by_number: bool, least: int) -> Grid:
    """Return the ranges of a table, by its leading key column where that is an integer on both sides; `least` or more."""
    bounds = side.bounds() if by_number else None
    span = comparison.keys(*bounds) if bounds else None
    return comparison.grid(span or comparison.hashes(), max(least, min(_MOST_RANGES, -(-about // _ROWS))))


def _verdict(equal: bool, plan: Plan) -> Verdict:
    return "equal" if equal and not plan.reasons else "not equal"
