"""What a verification says: a line for each table and where it differs, or the same as JSON.

Shows keys and names of columns, never the values of other columns.
"""

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from spark_jobs.verify.compare import Difference

#: Differing keys that are printed for each table.
SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class TableReport:
    """What was found for one table of one source."""

    source: str
    #: `schema.table`.
    table: str
    equal: bool
    #: None where the table is not there at all.
    rows_source: int | None
    rows_lake: int | None
    seconds: float
    #: What is wrong with the table as a whole, a sentence each.
    reasons: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    #: Whether these are all differences, or only the first that were found.
    complete: bool = True


def as_json(reports: list[TableReport]) -> str:
    """Return the machine form: whether all is equal, and every table with its differences."""
    tables: list[dict[str, Any]] = [asdict(report) for report in reports]
    return json.dumps({"equal": all(report.equal for report in reports), "tables": tables}, ensure_ascii=False)


def show(reports: list[TableReport], console: Console) -> None:
    """Print a line for each table, then where those that are not equal differ."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("source", overflow="fold")
    table.add_column("table", overflow="fold")
    table.add_column("rows at source", justify="right")
    table.add_column("rows in lake", justify="right")
    table.add_column("verdict")
    table.add_column("seconds", justify="right")
    for report in reports:
        table.add_row(
            escape(report.source),
            escape(report.table),
            _count(report.rows_source),
            _count(report.rows_lake),
            "[green]equal[/]" if report.equal else "[bold red]not equal[/]",
            f"{report.seconds:.1f}",
        )
    console.print(table)
    for report in reports:
        if not report.equal:
            _explain(report, console)
    unequal = sum(not report.equal for report in reports)
    sources = len({report.source for report in reports})
    tables = f"{len(reports)} table{'s' * (len(reports) != 1)}"
    console.print(
        f"[bold red]{unequal} of {tables} not equal[/]"
        if unequal
        else f"[bold green]equal[/]: {tables} of {sources} source{'s' * (sources != 1)}"
    )


def _explain(report: TableReport, console: Console) -> None:
    console.print(f"\n[bold]{escape(report.source)} {escape(report.table)}[/]")
    for reason in report.reasons:
        console.print(f"  {escape(reason)}")
    counts = Counter[str]()
    for difference in report.differences:
        counts[difference.what] += difference.rows
    if counts:
        least = "" if report.complete else "at least "
        console.print(f"  {least}{', '.join(f'{count:,} {what}' for what, count in sorted(counts.items()))}")
    for difference in report.differences[:SHOWN]:
        console.print(f"  {escape(_line(difference))}", soft_wrap=True)
    rest = len(report.differences) - SHOWN
    if rest > 0:
        console.print(f"  and {rest:,} more (--json lists them)")


def _line(difference: Difference) -> str:
    key = ", ".join(f"{name}={'null' if value is None else value}" for name, value in difference.key.items())
    which = f" in {', '.join(difference.columns)}" if difference.columns else ""
    times = f" ({difference.rows:,} rows)" if difference.rows > 1 else ""
    return f"{key or 'a row without a key'}: {difference.what}{which}{times}"


def _count(rows: int | None) -> str:
    return "-" if rows is None else f"{rows:,}"
