"""The report of a verification: a line for each table and where it differs, or the same as JSON.

Shows keys and names of columns, never the values of other columns.

`<root>/verified`: a row for each table of a source that was verified, with the verdict and when, for those who look later.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
from delta import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from rich.progress import BarColumn, Progress, SpinnerColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from headrace.configuration.lake import LakeFile
from headrace.doors import place_of
from headrace.errors import ReplicationError
from headrace.terminal import Occasionally, Terminal, description_column, in_style, styled
from spark_jobs.errors import explained
from spark_jobs.state import delta_log
from spark_jobs.verify.compare import Difference, Range

#: Differing keys, and differing ranges, that are printed for each table.
SHOWN = 10

#: `not captured`: neither side has rows, nothing is compared, and nothing is wrong.
Verdict = Literal["equal", "not equal", "not compared", "not captured"]
_STYLES = {"equal": "green", "not equal": "bold red", "not compared": "bold yellow"}


@dataclass(frozen=True, kw_only=True)
class TableReport:
    """What was found for one table of one source."""

    source: str
    #: `schema.table`.
    table: str
    verdict: Verdict
    #: None where the table is not there at all.
    rows_source: int | None = None
    rows_lake: int | None = None
    seconds: float = 0.0
    #: All transactions of the source that committed before this place, and no other; None when its writers rest.
    place: str | None = None
    #: How many ranges the table has, and how many of them were compared: fewer for a sample.
    ranges: int = 1
    ranges_compared: int = 1
    #: What is wrong with the table as a whole, a sentence each.
    reasons: list[str] = field(default_factory=list)
    #: Ranges that differ.
    differing: list[Range] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    #: Whether these are all differences, or only the first that were found.
    complete: bool = True
    #: Columns that were not compared, because the edge's policy or the log's limits do something to them, and what.
    treated: dict[str, str] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """Whether the table was compared and is equal."""
        return self.verdict == "equal"


def as_json(reports: list[TableReport], failed: Mapping[str, ReplicationError]) -> str:
    """Return the machine form: whether all is equal, every table with its differences, and the sources that failed."""
    tables: list[dict[str, Any]] = [asdict(report) | {"equal": report.equal} for report in reports]
    errors = [{"source": name, "error": error.message, "hint": error.hint} for name, error in failed.items()]
    equal = not failed and all(report.equal for report in _captured(reports))
    return json.dumps({"equal": equal, "tables": tables, "failed": errors}, ensure_ascii=False)


def show(reports: list[TableReport], console: Terminal) -> None:
    """Print a line for each table of a source, then where those that are not equal differ."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("source", overflow="fold")
    table.add_column("table", overflow="fold")
    table.add_column("rows at source", justify="right")
    table.add_column("rows in lake", justify="right")
    table.add_column("verdict")
    table.add_column("seconds", justify="right")
    captured = _captured(reports)
    for report in captured:
        table.add_row(
            report.source,
            report.table,
            _count(report.rows_source),
            _count(report.rows_lake),
            in_style(report.verdict, _STYLES[report.verdict]),
            f"{report.seconds:.1f}",
        )
    console.print(table)
    for report in captured:
        if not report.equal:
            _explain(report, console)
    for report in captured:
        if report.treated:
            listed = ", ".join(f"{name} ({action})" for name, action in report.treated.items())
            line = f"{report.source} {report.table}: not compared, left out by the edge, its publication or the log: {listed}"
            console.print(line, soft_wrap=True)
    others = [report.table for report in reports if report.verdict == "not captured"]
    if others:
        more = f" and {len(others) - SHOWN:,} more" if len(others) > SHOWN else ""
        line = f"{reports[0].source}: not captured: {', '.join(others[:SHOWN])}{more}"
        console.print(line, soft_wrap=True)
    for source, place in sorted({(report.source, report.place) for report in reports if report.place is not None}):
        console.print(f"{source}: every transaction that committed before {place}, and none after")
    if any(report.ranges_compared < report.ranges for report in reports):
        some = sum(report.ranges_compared for report in reports)
        console.print(f"a sample: {some:,} of {sum(report.ranges for report in reports):,} ranges")


def conclude(reports: list[TableReport], failed: Mapping[str, ReplicationError], console: Terminal) -> None:
    """Print the sources that failed, with the reason, and the sum of all verdicts."""
    for name, error in failed.items():
        what = in_style("not compared", _STYLES["not compared"])
        console.print(styled("{}: {}: {}", name, what, f"{error.message}. {error.hint}".strip()), soft_wrap=True)
    captured = _captured(reports)
    counts = Counter(report.verdict for report in captured)
    sources = len({report.source for report in captured})
    tables = f"{len(captured)} table{'s' * (len(captured) != 1)}"
    wrong = [
        in_style(f"{counts[verdict]} of {tables} {verdict}", _STYLES[verdict])
        for verdict in ("not equal", "not compared")
        if counts[verdict]
    ]
    if failed:
        several = f"{len(failed)} source{'s' * (len(failed) != 1)}"
        wrong.append(in_style(f"{several} not compared, or not all of it", _STYLES["not compared"]))
    equal = styled("[bold green]equal[/]: {} of {} source{}", tables, sources, "s" * (sources != 1))
    console.print(Text(", ").join(wrong) if wrong else equal)


def _captured(reports: list[TableReport]) -> list[TableReport]:
    return [report for report in reports if report.verdict != "not captured"]


@contextmanager
def progress(console: Terminal) -> Iterator["Shown"]:
    """Show what a verification is doing while it runs: on a terminal all the time, else as a line now and then."""
    columns = (SpinnerColumn(), description_column(), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        lines = Occasionally(lambda line: console.print(line, soft_wrap=True))
        yield Shown(bars, None if console.is_terminal else lines)


class Shown:
    """The line that shows what is being done."""

    def __init__(self, bars: Progress, lines: Occasionally | None = None) -> None:
        self._bars, self._lines = bars, lines
        self._task = bars.add_task("", total=None)

    def show(self, what: str) -> None:
        """Show what is being done, without a number."""
        self._bars.reset(self._task, total=None, description=what)
        if self._lines:
            self._lines.write(what)

    def table(self, source: str, table: str, done: int, total: int) -> None:
        """Show how many rows of a table are summed up, of about how many."""
        text = f"{source} {table}: {done:,} of about {total:,} rows"
        self._bars.update(self._task, description=text, completed=done, total=total)
        if self._lines:
            self._lines.write(text)


def _explain(report: TableReport, console: Terminal) -> None:
    console.print(styled("\n[bold]{} {}[/]", report.source, report.table))
    for reason in report.reasons:
        console.print(f"  {reason}", soft_wrap=True)
    counts = Counter[str]()
    for difference in report.differences:
        counts[difference.what] += difference.rows
    if counts:
        least = "" if report.complete else "at least "
        console.print(f"  {least}{', '.join(f'{count:,} {what}' for what, count in sorted(counts.items()))}")
    _some([_range(differing) for differing in report.differing if differing.column is not None], console)
    _some([_line(difference) for difference in report.differences], console)


def _some(lines: list[str], console: Terminal) -> None:
    for line in lines[:SHOWN]:
        console.print(f"  {line}", soft_wrap=True)
    if len(lines) > SHOWN:
        console.print(f"  and {len(lines) - SHOWN:,} more (--json lists them)")


def _range(differing: Range) -> str:
    first = "the least" if differing.first is None else f"{differing.first:,}"
    last = "the greatest" if differing.last is None else f"{differing.last:,}"
    rows = f"{differing.rows_source:,} rows at the source, {differing.rows_lake:,} in the lake"
    return f"{differing.column} from {first} to {last}: {rows}"


def _line(difference: Difference) -> str:
    key = ", ".join(f"{name}={'null' if value is None else value}" for name, value in difference.key.items())
    which = f" in {', '.join(difference.columns)}" if difference.columns else ""
    times = f" ({difference.rows:,} rows)" if difference.rows > 1 else ""
    return f"{key or 'a row without a key'}: {difference.what}{which}{times}"


def _count(rows: int | None) -> str:
    return "-" if rows is None else f"{rows:,}"


_STRUCTURE = (
    "verified_at timestamp, stream string, source string, `table` string, verdict string, rows_source bigint, rows_lake bigint, "
    "ranges bigint, ranges_compared bigint, seconds double"
)
_PLACE = ("stream", "source", "table")
#: Days for which verdicts are kept.
_KEPT = 31
#: After this many verifications the small files of the table are put together.
_COMPACT_EVERY = 50

_log = logging.getLogger(__name__)


def path(lake: LakeFile) -> str:
    """Return the path of the table."""
    return f"{lake.root}/verified"


def record(spark: SparkSession, lake: LakeFile, stream: str, reports: Sequence[TableReport]) -> None:
    """Append a row for each report of tables of a stream; a failure is logged alone."""
    if not reports:
        return
    now = datetime.now(UTC)
    names = ("source", "table", "verdict", "rows_source", "rows_lake", "ranges", "ranges_compared", "seconds")
    rows = [{"verified_at": now, "stream": stream} | {name: getattr(each, name) for name in names} for each in reports]
    try:
        with explained("verified"):
            # Refuses a folder that holds something else.
            delta_log.is_table(spark, path(lake))
            # From text, so that no Python process is started for a few rows.
            text = F.lit(msgspec.json.encode(rows).decode())
            frame = spark.range(1).select(F.inline(F.from_json(text, f"array<struct<{_STRUCTURE}>>")))
            frame.coalesce(1).write.format("delta").mode("append").option("mergeSchema", "true").save(path(lake))
            if delta_log.version(spark, path(lake)) % _COMPACT_EVERY == _COMPACT_EVERY - 1:
                spark.sql(f"OPTIMIZE delta.`{path(lake)}`")
    except Exception as error:  # noqa: BLE001 - the verdicts are printed, and other sources verified, all the same.
        why = error.message if isinstance(error, ReplicationError) else f"{type(error).__name__} at {place_of(error)}"
        _log.warning("the verification is done, but its verdicts are not recorded: %s", why)


def prune(spark: SparkSession, lake: LakeFile) -> None:
    """Remove verdicts of more than a month ago, but for the last one of each table of a source."""
    rows = spark.read.format("delta").load(path(lake))
    month_ago = F.lit(datetime.now(UTC) - timedelta(days=_KEPT))
    if rows.filter(F.col("verified_at") < month_ago).isEmpty():
        return
    newest = rows.groupBy(*_PLACE).agg(F.max("verified_at").alias("newest"))
    same = " AND ".join(f"t.`{name}` <=> s.`{name}`" for name in _PLACE)
    stale = F.expr(f"{same} AND t.verified_at < s.newest") & (F.col("t.verified_at") < month_ago)
    DeltaTable.forPath(spark, path(lake)).alias("t").merge(newest.alias("s"), stale).whenMatchedDelete().execute()
