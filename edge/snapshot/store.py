"""What of snapshots is kept in the state folder: the plan, requests that wait for the edge, and the history of tables.

A request is a file of its own, so that a command leaves one whether the edge runs or not; the edge takes them in the order in
which they were left. Everything written is durable when the call returns, private to the edge's user since it holds keys of
rows, and a crash leaves a file whole, old or new. A request is removed after the plan that follows from it is written: at worst
it is taken twice, which changes nothing. What the disk refuses raises NoSpace where that may pass, else NeedsOperator.

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

from edge.records.alterations import KnownColumn, Published, TableDescription
from edge.snapshot.plan import Plan, TablePlan, parse
from headrace import doors, files
from headrace.formats import SNAPSHOT_REQUEST, TABLE_HISTORY, UNREADABLE
from headrace.terminal import in_style

_log = logging.getLogger(__name__)


class Form(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What a table looked like, from some place in the log on."""

    name: str
    columns: tuple[KnownColumn, ...]
    schema: str
    #: Place of the first transaction whose records are of it.
    since: int
    rewritten: list[str] | None = None
    #: Place of the transaction whose schema record reported that; None before.
    reported: int | None = None
    #: Place up to which the far side may have records that were written by another description.
    others_until: int = 0
    #: The highest number of a column, and the columns that the edge's policy left out.
    newest: int = 0
    left_out: tuple[str, ...] = ()

    def describes(self, table: TableDescription) -> bool:
        """Whether the log has the same of a table."""
        return self.name == table.name and [it.shown for it in self.columns] == [it.shown for it in table.columns]


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a table needs a copy, and since when."""

    reasons: list[str]
    #: In milliseconds since 1970.
    at_ms: int


class HistoryFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All that is noted of a source's tables."""

    version: int = TABLE_HISTORY.version
    #: The epoch that places are of.
    epoch: int = 0
    tables: dict[str, list[Form]] = {}
    #: The last names of tables that were dropped, by identity: another table of that name does not have the rows of the former.
    dropped: dict[str, str] = {}
    needs_copy: dict[str, Mark] = {}
    #: When a copy was last requested for what any transaction may do to a table, by its name, in milliseconds since 1970.
    recurred: dict[str, int] = {}
    #: Labels of enum types by type, each by the database's number of it.
    labels: dict[str, dict[str, str]] = {}
    #: Whether tables may have sent records that are not in this file: it was lost once.
    incomplete: bool | msgspec.UnsetType = msgspec.UNSET
    #: What was published of which tables; None before it was looked at.
    published: Published | None = None


def read(path: Path) -> HistoryFile | None:
    """Return what a file holds, None where there is none; raise NeedsOperator when it cannot be read."""
    try:
        data = path.read_bytes()
        TABLE_HISTORY.check_json(data, str(path))
        return msgspec.json.decode(data, type=HistoryFile)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise files.problem(path, "read", error) from error
    except UNREADABLE:
        # As if nothing were known: more schema records than needed, and alterations of meanwhile are not found.
        _log.warning("%s is damaged, and is written again", path)
        return HistoryFile(incomplete=True)


def unreported(form: Form) -> list[str]:
    """Return the reasons that no schema record has had yet."""
    return (form.rewritten or []) if form.reported is None else []


def rows_moved(former: str, current: str) -> str:
    """Return how rows came or went with partitions; a partition that is new and was made as one had none."""
    before, after = _partitions(former), _partitions(current)
    gone = before.keys() - after.keys()
    if gone or any(number not in before and had_rows for number, (had_rows, _) in after.items()):
        return "partitions were attached, detached or dropped"
    # Releases before have no files.
    emptied = [number for number, (_, file) in after.items() if before.get(number, (False, ""))[1] not in ("", file)]
    return "partitions were truncated" if emptied else ""


def _partitions(listed: str) -> dict[str, tuple[bool, str]]:
    """Return by number whether a partition had rows before it was one, and the file with which it was last emptied."""
    entries = [entry.split(":") for entry in listed.split()]
    return {number.rstrip("+"): (number.endswith("+"), files[-1] if files else "") for number, *files in entries}


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
        requests: list[tuple[Path, Request]] = []
        for path in self._found():
            try:
                data = path.read_bytes()
                SNAPSHOT_REQUEST.check_json(data, f"snapshot request {path}")
                requests.append((path, msgspec.json.decode(data, type=Request)))
            except FileNotFoundError:
                # The edge took it meanwhile.
                continue
            except OSError as error:
                # Those behind it must not overtake it.
                raise files.problem(path, "read", error) from error
            except UNREADABLE as error:
                # Its condition may hold values of rows, and so may the words of the error.
                doors.log_unexpected(
                    _log, f"snapshot request {path} is damaged and was removed: request it again", error
                )
                self.taken(path)
        return requests

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
            it.name + (" (by a condition)" if it.where is not None else ""),
            in_style(it.state, _COLOURS[it.state]),
            ProgressBar(total=100, completed=_done(it), width=20),
            f"{it.rows:,}",
            f"{it.estimate:,}" if it.estimate >= 0 else "?",
            f"{it.rows_per_second:,.0f}" if it.state == "running" else "",
            _duration(it.seconds_left) if it.state == "running" else "",
        )
    parts: list[RenderableType] = [table]
    parts += [in_style(f"{it.name}: {it.problem}", "red") for it in plan.tables if it.problem]
    if waiting:
        parts.append(f"{len(waiting)} requests wait for the edge to take them.")
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
