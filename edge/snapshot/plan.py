"""The plan of a source's snapshots: which tables are requested, and how far each is acknowledged.

One JSON file in the state folder, written by the edge alone, and only after the far side has what it counts. So it may fall
behind what was sent, never ahead: after a crash a chunk is read again, none is left out. It holds keys of rows, no rows.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from headrace.errors import NeedsOperator
from headrace.formats import SNAPSHOT_PLAN, UNREADABLE
from headrace.schema import TableSchema

State = Literal["waiting", "running", "done", "failed", "cancelled"]
#: A key, as the engine writes it: for PostgreSQL each column as the database prints it.
Key = list[str]


class LogTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What identifies a table in the log, so that its rows can be followed before the catalog is queried."""

    #: PostgreSQL's OID; another table under the same name has another one.
    oid: int
    #: Names of the key's columns, in key order.
    key: tuple[str, ...]
    #: By what rows are ordered, types and collations included; empty in a plan of a former release.
    order: str = ""

    def continues(self, former: "LogTable | None") -> bool:
        """Return whether a copy that was begun of `former` can go on behind the last key that it has."""
        if former is None or former.order:
            return self == former
        return (self.oid, self.key) == (former.oid, former.key)


class TablePlan(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One table's snapshot, from its request on."""

    #: `schema.table`, as it was requested.
    name: str
    #: A condition in SQL, for a part of the table.
    where: str | None = None
    #: Whether a truncate record goes ahead of the rows.
    replace: bool = False
    state: State = "waiting"
    #: Set when the copy begins; None before, and for engines whose log carries whole rows.
    log_table: LogTable | None = None
    #: Whether consumers may have the mark of its beginning, and not the one of its end. A plan of a former release has neither.
    marks_open: bool = False
    #: The schema in the mark of its beginning: for the one of its end, where the table is gone by then.
    marked_schema: TableSchema | None = None
    #: Key of the last row of the last acknowledged chunk; None before there is one.
    cursor: Key | None = None
    #: Whether every row up to the end was read and acknowledged, `again` excepted.
    whole: bool = False
    #: Keys of rows to read again: the log has a change of them, without all of their columns.
    again: list[Key] = []
    #: Rows acknowledged, those that were in the log already included, and chunks.
    rows: int = 0
    chunks: int = 0
    #: Rows by the database's own statistics; -1 while unknown.
    estimate: int = -1
    #: Of late, while it runs.
    rows_per_second: float = 0.0
    #: In milliseconds since 1970; 0 for not yet.
    asked_ms: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    #: Why it failed.
    problem: str = ""

    @property
    def unfinished(self) -> bool:
        """Whether there is still something to do."""
        return self.state in {"waiting", "running"}

    @property
    def is_of_whole_table(self) -> bool:
        """Whether it is of a whole table: the beginning and the end of such a copy are marked."""
        return self.where is None

    @property
    def is_at_first_row(self) -> bool:
        """Whether nothing of it is acknowledged."""
        return self.cursor is None and not self.whole

    def restart(self) -> None:
        """Copy the table again from its first row."""
        self.state, self.cursor, self.whole, self.again, self.rows, self.chunks = "waiting", None, False, [], 0, 0
        self.log_table = None

    @property
    def seconds_left(self) -> float | None:
        """How long it will take at the present rate; None while that is unknown."""
        if self.state != "running" or self.rows_per_second <= 0 or self.estimate < 0:
            return None
        return max(0, self.estimate - self.rows) / self.rows_per_second


class Plan(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All snapshots of a source, in the order in which they are made."""

    version: int = SNAPSHOT_PLAN.version
    source: str
    #: The epoch in which it goes on; 0 before it began.
    epoch: int = 0
    paused: bool = False
    tables: list[TablePlan] = []

    def add_all(
        self, names: Iterable[str], *, where: str | None, replace: bool, now_ms: int, restart: bool = False
    ) -> list[TablePlan]:
        """Add tables, except those of which the same was requested already and is not finished; return those that were added.

        An earlier snapshot of a table that has ended is forgotten, but not that the end of its copy is still to be marked.
        `restart`: one that is not finished begins again.
        """
        by_name: dict[str, list[TablePlan]] = {}
        for it in self.tables:
            by_name.setdefault(it.name, []).append(it)
        added: dict[str, TablePlan] = {}
        for name in names:
            planned = by_name.setdefault(name, [])
            same = [it for it in planned if it.unfinished and it.where == where and (it.replace or not replace)]
            if same:
                if restart:
                    same[0].restart()
                    same[0].started_ms = 0
                continue
            table = added[name] = TablePlan(name=name, where=where, replace=replace, asked_ms=now_ms)
            for it in planned:
                if it.marks_open and not it.unfinished:
                    table.marks_open, table.marked_schema = True, it.marked_schema
            planned.append(table)
        self.tables = [it for it in self.tables if it.unfinished or it.name not in added]
        self.tables += added.values()
        return list(added.values())

    def enter(self, epoch: int) -> bool:
        """Restart what is unfinished in another epoch, before which changes may be missing; return whether it is another."""
        if self.epoch == epoch:
            return False
        self.epoch = epoch
        for it in self.unfinished():
            it.restart()
        return True

    def cancel(self, names: list[str], now_ms: int) -> None:
        """End the snapshots of these tables, of all when none is named; what is sent stays sent.

        Those that failed are reported no more.
        """
        listed = set(names)
        for it in self.tables:
            if (it.unfinished or it.state == "failed") and (not listed or it.name in listed):
                it.state, it.finished_ms = "cancelled", now_ms

    def unfinished(self) -> Iterator[TablePlan]:
        """Yield what is still to be done, in order."""
        return (it for it in self.tables if it.unfinished)

    def abandoned(self) -> Iterator[TablePlan]:
        """Yield the cancelled and failed snapshots whose ends are not marked: consumers still wait for the rest of the copy."""
        return (it for it in self.tables if it.marks_open and not it.unfinished)

    def figures(self) -> dict[str, int | float | str]:
        """Return how far the table is that is copied now, or next, for headquarters; empty while nothing is to be copied."""
        left = list(self.unfinished())
        if not left:
            return {}
        now = left[0]
        values: dict[str, int | float | str] = {"snapshot_tables": len(left), "snapshot_table": now.name}
        values |= {"snapshot_rows": now.rows, "snapshot_rows_per_second": round(now.rows_per_second, 1)}
        values |= {"snapshot_estimate": now.estimate} if now.estimate >= 0 else {}
        return values | ({"snapshot_paused": 1} if self.paused else {})

    def failures(self) -> list[str]:
        """Return what `status` reports of each copy that failed, until the table is copied again or its copy cancelled."""
        return [f"the copy of {it.name} failed: {it.problem}" for it in self.tables if it.state == "failed"]

    @property
    def next(self) -> TablePlan | None:
        """What is to be done now; None when there is nothing, or while paused."""
        return None if self.paused else next(self.unfinished(), None)


def parse(data: bytes, source: str, path: str) -> Plan:
    """Return the plan that a file holds; raise NeedsOperator when it is damaged, of another source or of a release
    whose plans are not read.
    """
    hint = f"Move {path} to another folder, and request the snapshots again."
    try:
        SNAPSHOT_PLAN.check_json(data, f"snapshot plan {path}")
        plan = msgspec.json.decode(data, type=Plan)
    except UNREADABLE as error:
        raise NeedsOperator(f"snapshot plan {path} is damaged", hint=hint) from error
    plan.version = SNAPSHOT_PLAN.version
    if plan.source != source:
        raise NeedsOperator(f"snapshot plan {path} is of source {plan.source[:100]!r}, not of {source!r}", hint=hint)
    return plan
