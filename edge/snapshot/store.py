"""What of snapshots is kept in the state folder: the plan, and requests that wait for the edge.

A request is a file of its own, so that a command leaves one whether the edge runs or not; the edge takes them in the order in
which they were left. Everything written is durable when the call returns, private to the edge's user since it holds keys of rows,
and a crash leaves a file whole, old or new. A request is removed after the plan that follows from it is written: at worst it is
taken twice, which changes nothing. What the disk refuses raises NoSpace where that may pass, else NeedsOperator.

What is shown of snapshots: as a table for people, as names and values for scripts.
"""

import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from edge.snapshot.plan import Plan, TablePlan, parse
from headrace import files
from headrace.formats import SNAPSHOT_REQUEST

_log = logging.getLogger(__name__)
#: A table as SQL writes it: its schema and its name, each with or without quotes.
_QUOTED = re.compile(r'("(?:[^"]|"")+"|[^".]+)\.("(?:[^"]|"")+"|[^".]+)')


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What an operator requested."""

    version: int = SNAPSHOT_REQUEST.version
    kind: Literal["snapshot", "pause", "resume", "cancel"]
    #: `schema.table`, …; for `snapshot` none means every published table, for `cancel` every snapshot.
    tables: list[str] = []
    where: str | None = None
    replace: bool = False
    #: Whether a copy that is under way begins again: its rows changed since they were read.
    restart: bool = False


class SnapshotStore:
    """The snapshots' part of a state folder."""

    def __init__(self, folder: Path, source: str) -> None:
        self._source = source
        self._plan = folder / "snapshot.json"
        self._requests = folder / "snapshot-requests"

    def plan(self) -> Plan:
        """Return the plan, an empty one when there is none; raise NoSpace or NeedsOperator when it cannot be read."""
        try:
            data = self._plan.read_bytes()
        except FileNotFoundError:
            return Plan(source=self._source)
        except OSError as error:
            raise files.problem(self._plan, "read", error) from error
        return parse(data, self._source, str(self._plan))

    def save(self, plan: Plan) -> None:
        """Make the plan durable."""
        files.write_private(self._plan, msgspec.json.format(msgspec.json.encode(plan)) + b"\n")

    def request(self, request: Request) -> None:
        """Leave a request for the edge."""
        files.make_private_folder(self._requests)
        name = f"{time.time_ns():020}-{os.getpid()}.json"
        files.write_private(self._requests / name, msgspec.json.encode(request))

    def request_once(self, request: Request) -> None:
        """Leave a request, less the tables that a waiting one with the same options names; none where nothing is left."""
        same: list[Request] = []
        for _, waits in self.waiting():
            if waits.kind == "cancel":
                # It ends what those ahead of it request.
                same = []
            elif msgspec.structs.replace(waits, version=request.version, tables=request.tables) == request:
                same.append(waits)
        listed = {table for waits in same for table in waits.tables}
        tables = [table for table in request.tables if table not in listed]
        if tables or (not request.tables and all(waits.tables for waits in same)):
            self.request(msgspec.structs.replace(request, tables=tables))

    def waiting(self) -> list[tuple[Path, Request]]:
        """Return the requests that wait, oldest first. A damaged one is removed and logged.

        Raises NeedsOperator for one of a release whose requests are not read.
        """
        found: list[tuple[Path, Request]] = []
        for path in self._found():
            try:
                data = path.read_bytes()
                SNAPSHOT_REQUEST.check_json(data, f"snapshot request {path}")
                found.append((path, msgspec.json.decode(data, type=Request)))
            except FileNotFoundError:
                # The edge took it meanwhile.
                continue
            except OSError as error:
                # Those behind it must not overtake it.
                raise files.problem(path, "read", error) from error
            except (msgspec.MsgspecError, UnicodeDecodeError):
                _log.exception("snapshot request %s is damaged and was removed: request it again", path)
                self.taken(path)
        return found

    def taken(self, path: Path) -> None:
        """Remove a request; call it after the plan that follows from it is saved."""
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise files.problem(path, "removed", error) from error

    def _found(self) -> Iterator[Path]:
        try:
            yield from sorted(path for path in self._requests.iterdir() if path.suffix == ".json")
        except FileNotFoundError:
            return
        except OSError as error:
            raise files.problem(self._requests, "read", error) from error


def unquoted(name: str) -> str:
    """Return a table's name as the source has it: quotes that SQL would need around its parts are taken off."""
    parts = _QUOTED.fullmatch(name)
    if parts is None or '"' not in name:
        return name
    return ".".join(part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts.groups())


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
