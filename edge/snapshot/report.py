"""What is shown of snapshots: as a table for people, as names and values for scripts."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from edge.snapshot.plan import Plan, TablePlan
from edge.snapshot.store import Request

_COLOURS = {"running": "cyan", "done": "green", "failed": "red", "cancelled": "yellow", "waiting": "dim"}


def as_dict(plan: Plan, waiting: Sequence[Request]) -> dict[str, Any]:
    """Return the plan without its keys of rows, and how many requests wait for the edge."""
    return {
        "source": plan.source,
        "paused": plan.paused,
        "requests_waiting": len(waiting),
        "tables": [
            {
                "table": it.name,
                # The condition itself may hold values of rows.
                "conditional": it.where is not None,
                "replace": it.replace,
                "state": it.state,
                "rows": it.rows,
                "estimated_rows": it.estimate if it.estimate >= 0 else None,
                "chunks": it.chunks,
                "rows_per_second": it.rows_per_second,
                "seconds_left": it.seconds_left,
                "asked_ms": it.asked_ms or None,
                "started_ms": it.started_ms or None,
                "finished_ms": it.finished_ms or None,
                "problem": it.problem or None,
            }
            for it in plan.tables
        ],
    }


def as_table(plan: Plan, waiting: Sequence[Request]) -> RenderableType:
    """Return the plan as a person reads it."""
    table = Table(title=f"Snapshots of {plan.source}" + (" (paused)" if plan.paused else ""), title_justify="left")
    for name, justify in (("table", "left"), ("state", "left"), ("", "left"), ("rows", "right"), ("of about", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("rows/s", justify="right")
    table.add_column("left", justify="right")
    for it in plan.tables:
        table.add_row(
            Text(it.name + (" (by a condition)" if it.where is not None else "")),
            Text(it.state, style=_COLOURS[it.state]),
            ProgressBar(total=100, completed=_done(it), width=20),
            f"{it.rows:,}",
            f"{it.estimate:,}" if it.estimate >= 0 else "?",
            f"{it.rows_per_second:,.0f}" if it.state == "running" else "",
            _duration(it.seconds_left) if it.state == "running" else "",
        )
    parts: list[RenderableType] = [table]
    parts += [Text(f"{it.name}: {it.problem}", style="red") for it in plan.tables if it.problem]
    if waiting:
        parts.append(Text(f"{len(waiting)} requests wait for the edge to take them."))
    return Group(*parts)


def is_quiet(plan: Plan, waiting: Sequence[Request]) -> bool:
    """Whether nothing is left to be watched."""
    return not waiting and next(plan.unfinished(), None) is None


def _done(it: TablePlan) -> float:
    if it.state == "done":
        return 100.0
    return min(99.0, 100 * it.rows / it.estimate) if it.estimate > 0 else 0.0


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
