"""The verification of sources against silver: every table of every source named, one after the other.

Assumes that writers have stopped and that the loads have caught up. Reads the source in one snapshot and silver as the last
load published it; changes neither. Called by command.py.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from pyspark.sql import DataFrame

from spark_jobs.failures import explained
from spark_jobs.verify import silver, tables
from spark_jobs.verify.compare import compare
from spark_jobs.verify.report import TableReport
from spark_jobs.verify.silver import SilverSide
from spark_jobs.verify.source import SourceDatabase, SourceTable
from spark_jobs.verify.source_side import SourceSide

_LOG = logging.getLogger(__name__)


class SilverTables(Protocol):
    """The silver tables of a stream, as the last load published them."""

    def names(self, source: str) -> set[str]:
        """Return the tables, `schema.table`, that the source has sent changes of."""

    def frame(self, source: str, name: str) -> DataFrame | None:
        """Return a source's rows of a table, with the table's own columns only; None when there is no silver table."""

    def problem(self, name: str) -> str | None:
        """Return why the load stopped at a table; None when it did not."""


def verify(
    source: str, database: SourceDatabase, lake: SilverTables, wanted: str | None = None
) -> Iterator[TableReport]:
    """Give a report for each table of a source, or for the one that `wanted` names, as soon as it is known."""
    at_source = database.tables()
    known = {str(table): table for table in at_source}
    for name in tables.to_compare(at_source, lake.names(source), wanted):
        started = time.monotonic()
        with explained(f"verifying {name} of {source}"):
            report = _verify(source, name, database, known.get(name), lake.frame(source, name))
        problem = lake.problem(name)
        if problem is not None and not report.equal:
            report = replace(report, reasons=[*report.reasons, f"the load stopped at this table: {problem}"])
        _LOG.debug("verified %s %s in %.1f s: %s", source, name, time.monotonic() - started, report.equal)
        yield report


def _verify(
    source: str, name: str, database: SourceDatabase, table: SourceTable | None, frame: DataFrame | None
) -> TableReport:
    started = time.monotonic()
    if table is None or frame is None:
        rows_source = SourceSide(database, table, [], []).whole().rows if table else None
        rows_lake = frame.count() if frame is not None else None
        reason = "the table is missing in the lake" if table else "the table is not at the source"
        equal = not rows_source and not rows_lake
        return TableReport(
            source=source,
            table=name,
            equal=equal,
            rows_source=rows_source,
            rows_lake=rows_lake,
            seconds=time.monotonic() - started,
            reasons=[] if equal else [reason],
        )
    plan = tables.plan(table, silver.columns(frame))
    found = compare(
        SourceSide(database, table, plan.columns, plan.key),
        SilverSide(frame, plan.columns, plan.key),
        plan.columns,
        plan.key,
    )
    return TableReport(
        source=source,
        table=name,
        equal=found.equal and not plan.reasons,
        rows_source=found.source.rows,
        rows_lake=found.lake.rows,
        seconds=time.monotonic() - started,
        reasons=plan.reasons,
        differences=list(found.differences),
        complete=found.complete,
    )
