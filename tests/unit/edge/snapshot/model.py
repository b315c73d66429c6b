"""A database, its log and its consumer, small enough to try every interleaving of writes, chunks, watermarks and crashes.

A row is (number, large): `large` is a column that an update may leave out of the log, as PostgreSQL does with a large value that
did not change. A transaction may stand in the log before readers see it.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from edge.snapshot.active_plan import ActivePlan
from edge.snapshot.coordinator import SnapshotCoordinator
from edge.snapshot.plan import LogTable, Plan
from edge.snapshot.ports import Chunk, Described, Put
from edge.snapshot.store import Request
from headrace.errors import NeedsOperator, NotConnected
from headrace.position import Position
from headrace.schema import COPY_BEGINS, COPY_ENDS, TableSchema

#: The key of a row that consumers have and the source has no more.
STALE = -1


class Entry(NamedTuple):
    """An entry of the log: a change, a truncate, or a watermark."""

    kind: str
    key: int = 0
    former: int | None = None
    row: tuple[int, int | None] | None = None
    content: bytes = b""


class Database:
    """Rows of one table as they are, as readers see them, and the log of how they came to be."""

    def __init__(self, rows: int) -> None:
        self.now: dict[int, tuple[int, int]] = {key: (key, 1000 + key) for key in range(rows)}
        self.log: list[Entry] = []
        #: The state after each entry, from before the first on.
        self.states = [dict(self.now)]
        #: How much of the log readers see.
        self.visible = 0
        #: Whether the table is gone.
        self.is_dropped = False
        #: Whether it has no key; then the rows of the moment that is copied.
        self.is_keyless = False
        self.moment: dict[int, tuple[int, int]] = {}
        self._number = 10_000

    def write(self, kind: str, key: int, other: int, *, whole: bool, hidden: bool) -> None:
        """Commit something that is possible; `hidden` leaves it to be seen later."""
        self._number += 1
        number, now = self._number, self.now
        if kind == "insert" and key not in now:
            now[key] = (number, number)
            self._append(Entry("insert", key, row=now[key]))
        elif kind == "update" and key in now:
            large = number if whole else now[key][1]
            now[key] = (number, large)
            self._append(Entry("update", key, row=(number, large if whole else None)))
        elif kind == "move" and key in now and other not in now:
            row = now.pop(key)
            now[other] = (number, number if whole else row[1])
            self._append(Entry("update", other, former=key, row=(number, number if whole else None)))
        elif kind == "delete" and key in now:
            del now[key]
            self._append(Entry("delete", key))
        elif kind == "truncate" and now:
            now.clear()
            self._append(Entry("truncate"))
        if not hidden:
            self.visible = len(self.log)

    def write_watermark(self, content: bytes) -> None:
        self._append(Entry("mark", content=content))

    def _append(self, entry: Entry) -> None:
        self.log.append(entry)
        self.states.append(dict(self.now))


class Consumer:
    """Records as the far side has them: each position once, in order."""

    def __init__(self) -> None:
        self.records: list[tuple[tuple[int, int], Entry]] = []

    @property
    def tail(self) -> tuple[int, int]:
        return self.records[-1][0] if self.records else (0, 0)

    def take(self, place: int, ordinal: int, entry: Entry) -> None:
        """Take a record, unless its position is not behind the last one's."""
        if (place, ordinal) > self.tail:
            self.records.append(((place, ordinal), entry))

    def lose(self, kept: int) -> None:
        """Be left with so many records: the others had not arrived."""
        del self.records[kept:]

    def of_copy(self) -> list[str]:
        """Return the marks and the rows of a copy, by their kind, in order."""
        return [entry.kind for _, entry in self.records if entry.kind in {"read", COPY_BEGINS, COPY_ENDS}]

    def rows(self) -> dict[int, tuple[int, int | None]]:
        """Return the rows that follow from the records; None is a large value that was never sent."""
        rows: dict[int, tuple[int, int | None]] = {STALE: (0, 0)}
        for _, entry in self.records:
            if entry.kind == "truncate":
                rows.clear()
                continue
            old = rows.get(entry.key if entry.former is None else entry.former)
            if entry.former is not None:
                rows.pop(entry.former, None)
            if entry.kind == "delete":
                rows.pop(entry.key, None)
            elif entry.row is not None:
                number, large = entry.row
                rows[entry.key] = (number, large if large is not None else old[1] if old else None)
        return rows


class Reader:
    """Reads chunks; `meanwhile` is called wherever others may write."""

    def __init__(self, database: Database, meanwhile: Callable[[], None]) -> None:
        self._database, self._meanwhile = database, meanwhile

    def published(self) -> list[str]:
        return ["public.t"]

    def named(self, names: list[str]) -> list[str]:
        return names

    def describe(self, name: str, where: str | None) -> Described:
        if self._database.is_dropped:
            raise NeedsOperator("there is no such table", hint="-")
        if self._database.is_keyless:
            return Described("t", -1, of_moment=True)
        return Described("t", -1, LogTable(1, ("key",)))

    def leave(self) -> None:
        self._database.moment = {}

    def write_watermark(self, content: bytes, table: Any = None) -> None:
        self._meanwhile()
        self._database.write_watermark(content)

    def rows(self, table: Any, where: str | None, after: Any, count: int, limit_bytes: int) -> Chunk:
        found = self._seen()
        if self._database.is_keyless:
            self._database.moment = found[0] if after is None else self._database.moment
            found = self._database.moment, found[1]
        behind = -1 if after is None else int(after[0])
        keys = sorted(key for key in found[0] if key > behind)[:3]
        return self._chunk(found, keys, end=len(keys) < 3)

    def read_keys(self, table: Any, where: str | None, keys: Any, limit_bytes: int) -> Chunk:
        result = self._seen()
        # As if no more than two rows were within the limit.
        keys = keys[:2]
        chunk = self._chunk(result, [int(key) for (key,) in keys if int(key) in result[0]], end=True)
        return dataclasses.replace(chunk, keys=len(keys))

    def close(self) -> None:
        pass

    def _seen(self) -> tuple[dict[int, tuple[int, int]], int]:
        self._meanwhile()
        seen = self._database.visible
        state = self._database.states[seen]
        self._meanwhile()
        return state, seen

    @staticmethod
    def _chunk(found: tuple[dict[int, tuple[int, int]], int], keys: list[int], *, end: bool) -> Chunk:
        state, seen = found
        rows = [msgspec.json.encode((key, state[key])) for key in keys]
        last = [str(keys[-1])] if keys else None
        return Chunk(table="t", rows=rows, size=10 * len(rows), last=last, end=end, seen=seen)


class Edge:
    """One session: decodes the log from a place on, and copies beside it; it is also the decoder's side of a snapshot."""

    def __init__(self, database: Database, consumer: Consumer, folder: Any, start: int, meanwhile: Any) -> None:
        self._database, self._consumer, self._meanwhile = database, consumer, meanwhile
        self.decoded = start
        #: Up to where everything is acknowledged, as an index of the log.
        self.acknowledged = 0
        self._before = 0
        self._window: Any = None
        self._followed: tuple[Any, Any] = ((), None)
        self._on_watermark: Any = None
        self.jobs: list[Any] = []
        #: Whether the next job loses its connection.
        self.fail_next = False
        #: Whether every job is refused.
        self.refuse = False
        self.control = ActivePlan(folder, 1)
        self.copying = SnapshotCoordinator(
            self.control,
            self,
            acknowledged=lambda: Position(1, self.acknowledged, 0),
            wake=lambda: None,
            aim_bytes=1000,
            worker=lambda connect, wake: self,  # type: ignore[arg-type, return-value]
        )

    # The worker: its jobs run when the test says so.

    @property
    def busy(self) -> int:
        return len(self.jobs)

    def do(self, job: Any, then: Any) -> None:
        self.jobs.append((job, then, []))

    def take(self) -> None:
        while self.jobs and self.jobs[0][2]:
            _, then, outcome = self.jobs.pop(0)
            then(outcome[0])

    def work(self) -> None:
        for job, _, outcome in self.jobs:
            if not outcome:
                failed, self.fail_next = self.fail_next, False
                try:
                    if self.refuse:
                        raise NeedsOperator("refused", hint="-")
                    outcome.append(NotConnected("lost") if failed else job(self.reader()))
                except NeedsOperator as error:
                    outcome.append(error)
                return

    def stop(self, seconds: float) -> None:
        pass

    # The source.

    def reader(self) -> Reader:
        return Reader(self._database, self._meanwhile)

    def stream(self, marked: Any) -> "Edge":
        self._on_watermark = marked
        return self

    # The stream.

    def follow(self, tables: Any, moved: Any) -> None:
        self._followed = tuple(tables), moved

    def watch(self, table: Any, window: Any) -> None:
        self._window = window

    def unwatch(self) -> None:
        self._window = None

    def window_opened(self) -> None:
        self._before = self.decoded

    def truncate(self, table: Any) -> Position:
        self._consumer.take(self.decoded, 1, Entry("truncate"))
        return Position(1, self.decoded, 0)

    def mark_copy(self, table: Any, mark: str) -> Position:
        # A truncate follows the beginning.
        self._consumer.take(self.decoded, 0 if mark == COPY_BEGINS else 1, Entry(mark))
        return Position(1, self.decoded, 0)

    def schema_of(self, table: Any) -> TableSchema:
        return TableSchema(schema="public", table=table, key=[], columns=[])

    def mark_copy_of_gone(self, schema: TableSchema, mark: str) -> Position:
        assert schema == self.schema_of("t")
        return self.mark_copy(None, mark)

    def fits(self, chunk: Chunk, window: Any) -> bool:
        return chunk.seen >= self._before and not window.altered

    def put(self, chunk: Chunk, window: Any) -> Put:
        again, position = [], None
        for ordinal, text in enumerate(chunk.rows, start=2):
            key, row = msgspec.json.decode(text)
            name = b"%d" % key
            if window.keeps(name):
                self._consumer.take(self.decoded, ordinal, Entry("read", key, row=tuple(row)))
                position = Position(1, self.decoded, 0)
            elif window.must_reread(name):
                again.append([str(key)])
        return Put(position, again)

    def decode(self) -> None:
        """Decode the next entry of the log, if there is one."""
        if self.decoded == len(self._database.log):
            return
        entry = self._database.log[self.decoded]
        self.decoded += 1
        if entry.kind == "mark":
            self._on_watermark(entry.content)
            return
        self._consumer.take(self.decoded, 1, entry)
        whole = entry.row is None or entry.row[1] is not None
        followed, moved = self._followed
        if entry.former is not None and not whole:
            for table in followed:
                moved(table, [str(entry.key)])
        window = self._window
        if window is None:
            return
        if entry.kind == "truncate":
            window.truncate()
            return
        former = None if entry.former is None else b"%d" % entry.former
        window.change(b"%d" % entry.key, former, whole=whole)


class Folder:
    """A state folder in memory: what is saved is what a crash leaves."""

    def __init__(self, plan: Plan) -> None:
        self.saved = msgspec.json.encode(plan)
        #: Requests that wait, each with its file.
        self.requests: list[tuple[Path, Request]] = []

    def plan(self) -> Plan:
        return msgspec.json.decode(self.saved, type=Plan)

    def save(self, plan: Plan) -> None:
        self.saved = msgspec.json.encode(plan)

    def waiting(self) -> list[tuple[Path, Request]]:
        return list(self.requests)

    def taken(self, path: Path) -> None:
        self.requests = [request for request in self.requests if request[0] != path]
