"""One load of a stream: bronze, then silver, with a report that a person or a program can read.

Called by the command, by submit.py and by a server. What a step committed stays when the next one fails. The report and the
published positions are printed with rich.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pyspark.sql import SparkSession
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from headrace.configuration.lake import LakeFile
from headrace.errors import NeedsOperator, ReplicationError, Retryable
from headrace.terminal import Occasionally, Terminal, description_column, styled
from spark_jobs import lineage, run_log
from spark_jobs.bronze import load as bronze
from spark_jobs.bronze.load import BronzeReport
from spark_jobs.query import metastore
from spark_jobs.query.metastore import Registered
from spark_jobs.silver import load as silver
from spark_jobs.silver.load import SilverReport
from spark_jobs.silver.tables_load import TableGroup
from spark_jobs.state.offsets import Progress
from spark_jobs.state.published import Published

Step = Literal["bronze", "silver"]
#: Receives the step, what is done and what there is to do.
OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Report:
    """What a load did; a step that did not run is None."""

    bronze: BronzeReport | None = None
    silver: SilverReport | None = None
    #: Seconds from the commit of each source's newest change to the end of the step that brought it.
    lag: dict[str, float] = field(default_factory=dict)
    #: What was done to a metastore.
    metastore: Registered | None = None

    def plain(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def check(self) -> None:
        """Raise NeedsOperator when a table of silver stopped, Retryable when one failed.

        Of a group, the load that publishes will.
        """
        problems = self.silver.problems if self.silver and self.silver.group is None else {}
        held = self.silver.held if self.silver and self.silver.group is None else {}
        if self.silver and (problems or held):
            counts = [f"{len(problems)} table(s) stopped"] if problems else []
            counts += [f"{len(held)} source(s) are held"] if held else []
            listed = "; ".join([*(why for _, why in sorted(problems.items())), *_list_held(held)])
            raise NeedsOperator(
                f"stream {self.silver.stream!r}: {' and '.join(counts)}, the others are loaded: {listed}"
            )
        if self.silver and self.silver.group is None and self.silver.failed:
            listed = "; ".join(error for _, error in sorted(self.silver.failed.items()))
            raise Retryable(
                f"stream {self.silver.stream!r}: {len(self.silver.failed)} table(s) failed, the others are loaded: {listed}",
                hint="Run it again: a table that fails three times stops alone.",
            )


def run(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    *,
    only: Step | None = None,
    group: TableGroup | None = None,
    accept_gap: bool = False,
    on_progress: OnProgress | None = None,
) -> Report:
    """Load a stream; raise what either step raises. A table that stopped alone is in the report.

    Of a `group` of tables silver is brought up alone, and not published.
    """
    lake.stream(stream)

    def of_step(step: str) -> Callable[[int, int], None] | None:
        return (lambda done, todo: on_progress(step, done, todo)) if on_progress else None

    if group is not None:
        return Report(silver=silver.load(spark, lake, stream, group=group, on_progress=of_step("silver")))

    raw = None
    with lineage.failure_sent(lake, stream):
        if only != "silver":
            raw = bronze.load(spark, lake, stream, accept_gap=accept_gap, on_progress=of_step("bronze"))
        try:
            current = silver.load(spark, lake, stream, on_progress=of_step("silver")) if only != "bronze" else None
        except ReplicationError:
            _record(spark, lake, raw, None)
            raise
    return report(spark, lake, stream, raw, current)


def report(
    spark: SparkSession, lake: LakeFile, stream: str, raw: BronzeReport | None, current: SilverReport | None
) -> Report:
    """Record what a load did where others look for it, which fails no load, and return it."""
    lag = _record(spark, lake, raw, current)
    has_published = current is not None and current.load is not None
    registered = metastore.after_load(spark, lake, stream) if has_published else None
    if current is not None and has_published:
        lineage.send_load(lake, stream, current)
    return Report(bronze=raw, silver=current, lag=lag, metastore=registered)


def _record(
    spark: SparkSession, lake: LakeFile, raw: BronzeReport | None, current: SilverReport | None
) -> dict[str, float]:
    """Record what a load did, of one that is cancelled too: jobs of its tag are cancelled until it has ended."""
    spark.sparkContext.clearJobTags()
    return run_log.record(spark, lake, raw, current)


#: What each step of a load counts.
_COUNTED = {"bronze": "records", "silver": "tables", "maintenance": "tables"}


def show(console: Terminal, report: Report) -> None:
    """Print what a load did, a line for each partition, source and table that moved."""
    raw, current = report.bronze, report.silver
    if raw is not None:
        rate = f", {raw.records / raw.seconds:,.0f} a second" if raw.records and raw.seconds else ""
        what = f"{raw.records:,} records, {raw.files} files, {raw.seconds:.1f} s{rate}"
        console.print(
            styled("[bold]bronze[/] {}: {}", raw.stream, what if raw.records else f"nothing new ({raw.seconds:.1f} s)")
        )
        for source, count in sorted(raw.quarantined.items()):
            console.print(
                styled("  [bold red]{}: {:,} records are quarantined[/], see the table 'quarantine'", source, count)
            )
        for topic, ranges in [(raw.topic, raw.ranges), *sorted(raw.tables.items())]:
            for partition, (start, end) in sorted(ranges.items()):
                console.print(f"  {topic}/{partition}: offsets {start} to {end - 1}")
    if current is not None:
        _show_silver(console, current)
        for source, (after, upto) in sorted(current.ranges.items()):
            console.print(f"  {source}: {after or 'the beginning'} to {upto}")
        for table, count in sorted(current.changes.items()):
            console.print(f"  {table}: {count:,}")
        for source, count in sorted(current.waiting.items()):
            console.print(f"  {source}: {count:,} changes wait for the end of their transaction")
        _show_tables(console, current)
    _show_end(console, report)


def _show_end(console: Terminal, report: Report) -> None:
    if report.metastore is not None:
        console.print(f"  {report.metastore.line()}")
    for source, seconds in sorted(report.lag.items()):
        console.print(f"  {source}: its newest change is {seconds:,.1f} s old")


def _list_held(held: Mapping[str, str]) -> list[str]:
    return [f"source {source}: {why}" for source, why in sorted(held.items())]


def _show_tables(console: Terminal, done: SilverReport) -> None:
    """Print the tables that stopped, and those that may differ from their source."""
    for line in _list_held(done.held):
        console.print(styled("  [bold red]held:[/] {}", line))
    for table, problem in sorted(done.problems.items()):
        console.print(styled("  [bold red]{} stopped:[/] {}", table, problem))
    for table, error in sorted(done.failed.items()):
        console.print(styled("  [bold red]{} failed, and is tried again:[/] {}", table, error))
    for table, warning in sorted(done.warnings.items()):
        console.print(styled("  [yellow]{}:[/] {}", table, warning))


def _show_silver(console: Terminal, done: SilverReport) -> None:
    """Print a line of all tables together."""
    what = f"{sum(done.changes.values()):,} changes into {len(done.changes)} tables"
    if done.load is not None:
        what += f", load {done.load}, {done.seconds:.1f} s"
    elif done.group is not None and done.changes:
        what += f" of group {done.group.number}/{done.group.of}, not published yet, {done.seconds:.1f} s"
    else:
        what = f"nothing new ({done.seconds:.1f} s)"
    console.print(styled("[bold]silver[/] {}: {}", done.stream, what))


def show_positions(console: Terminal, state: Published, held: Progress) -> None:
    """Print what is published of a stream."""
    finished = f"{state.finished_at:%Y-%m-%d %H:%M:%S} UTC" if state.finished_at else "-"
    what = (state.stream, state.load, finished, state.bronze_version)
    console.print(styled("[bold]{}[/]: load {}, published {}, bronze version {}", *what))
    table = Table("source", "published up to")
    for source, position in sorted(state.positions.items()):
        table.add_row(source, position)
    console.print(table)
    table = Table("topic", "partition", "next offset")
    for name, topic in sorted(held.topics.items()):
        for partition, offset in sorted(topic.offsets.items()):
            table.add_row(name, str(partition), str(offset))
    console.print(table)


@contextmanager
def show_progress(console: Terminal) -> Iterator[OnProgress]:
    """Show how far a load, or maintenance, is while it runs: as bars on a terminal, else as a line now and then."""
    if not console.is_terminal:
        lines = Occasionally(lambda line: console.print(line, soft_wrap=True))
        yield lambda step, done, todo: lines.write(f"{step}: {done:,} of {todo:,} {_COUNTED.get(step, '')}".rstrip())
        return
    columns = (description_column(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        shown: dict[str, TaskID] = {}

        def on_progress(step: str, done: int, todo: int) -> None:
            if step not in shown:
                shown[step] = bars.add_task(step, total=None)
            bars.update(shown[step], completed=done, total=todo)

        yield on_progress
