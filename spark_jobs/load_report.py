"""The load's report and the published positions as a person reads them, with rich."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from spark_jobs.load import OnProgress, Report
from spark_jobs.progress import Occasionally
from spark_jobs.silver.load import SilverReport
from spark_jobs.state.offsets import Progress
from spark_jobs.state.published import Published

#: What each step of a load counts.
_COUNTED = {"bronze": "records", "silver": "tables", "maintenance": "tables"}


def show(console: Console, report: Report) -> None:
    """Print what a load did, a line for each partition, source and table that moved."""
    raw, silver = report.bronze, report.silver
    if raw is not None:
        rate = f", {raw.records / raw.seconds:,.0f} a second" if raw.records and raw.seconds else ""
        console.print(
            f"[bold]bronze[/] {raw.stream}: {raw.records:,} records, {raw.files} files, {raw.seconds:.1f} s{rate}"
            if raw.records
            else f"[bold]bronze[/] {raw.stream}: nothing new ({raw.seconds:.1f} s)"
        )
        for source, count in sorted(raw.quarantined.items()):
            console.print(f"  [bold red]{source}: {count:,} records are quarantined[/], see the table 'quarantine'")
        for topic, ranges in [(raw.topic, raw.ranges), *sorted(raw.tables.items())]:
            for partition, (start, end) in sorted(ranges.items()):
                console.print(f"  {topic}/{partition}: offsets {start} to {end - 1}")
    if silver is not None:
        _show_silver(console, silver)
        for source, (after, upto) in sorted(silver.ranges.items()):
            console.print(f"  {source}: {after or 'the beginning'} to {upto}")
        for table, count in sorted(silver.changes.items()):
            console.print(f"  {table}: {count:,}")
        for source, count in sorted(silver.waiting.items()):
            console.print(f"  {source}: {count:,} changes wait for the end of their transaction")
        _show_tables(console, silver)
    for source, seconds in sorted(report.lag.items()):
        console.print(f"  {source}: its newest change is {seconds:,.1f} s old")


def _show_tables(console: Console, done: SilverReport) -> None:
    """Print the tables that stopped, and those that may differ from their source."""
    for table, problem in sorted(done.problems.items()):
        console.print(f"  [bold red]{table} stopped:[/] {problem}", highlight=False)
    for table, error in sorted(done.failed.items()):
        console.print(f"  [bold red]{table} failed, and is tried again:[/] {error}", highlight=False)
    for table, warning in sorted(done.warnings.items()):
        console.print(f"  [yellow]{table}:[/] {warning}", highlight=False)


def _show_silver(console: Console, done: SilverReport) -> None:
    """Print a line of all tables together."""
    what = f"{sum(done.changes.values()):,} changes into {len(done.changes)} tables"
    if done.load is not None:
        what += f", load {done.load}, {done.seconds:.1f} s"
    elif done.group is not None and done.changes:
        what += f" of group {done.group.number}/{done.group.of}, not published yet, {done.seconds:.1f} s"
    else:
        what = f"nothing new ({done.seconds:.1f} s)"
    console.print(f"[bold]silver[/] {done.stream}: {what}")


def show_positions(console: Console, state: Published, held: Progress) -> None:
    """Print what is published of a stream."""
    finished = f"{state.finished_at:%Y-%m-%d %H:%M:%S} UTC" if state.finished_at else "-"
    console.print(
        f"[bold]{state.stream}[/]: load {state.load}, published {finished}, bronze version {state.bronze_version}"
    )
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
def progress(console: Console) -> Iterator[OnProgress]:
    """Show how far a load, or maintenance, is while it runs: as bars on a terminal, else as a line now and then."""
    if not console.is_terminal:
        lines = Occasionally(lambda line: console.print(line, soft_wrap=True, markup=False, highlight=False))
        yield lambda step, done, todo: lines.say(f"{step}: {done:,} of {todo:,} {_COUNTED.get(step, '')}".rstrip())
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        shown: dict[str, TaskID] = {}

        def on_progress(step: str, done: int, todo: int) -> None:
            if step not in shown:
                shown[step] = bars.add_task(step, total=None)
            bars.update(shown[step], completed=done, total=todo)

        yield on_progress
