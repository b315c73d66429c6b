"""What the lake holds, and how long it takes until Kafka may remove what the lake has not loaded yet: each looked up in a thread.

`<root>/state`, `<root>/loads`, `<root>/names`, `<root>/verified` and `<root>/quarantine` are described in docs/lake.md. A lake
that cannot be read, and Kafka that cannot be asked, keep what was known last, with the reason.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from headrace.configuration.lake import LakeFile, Stream
from headrace.console.bridges import defect
from headrace.console.lake_view import (
    Expectation,
    LakeView,
    Load,
    Quarantined,
    Reached,
    StreamPublished,
    TablePublished,
    Verdict,
)
from headrace.errors import ReplicationError
from headrace.lake.own_tables import NoTable, OwnTables, Row, table_state
from headrace.retention import KafkaReader, RetentionReader, StreamRetention

_log = logging.getLogger(__name__)

#: Seconds between two looks at the tables.
EVERY = 10.0
#: A look that takes longer is reported, in seconds.
_HUNG_SECONDS = 120.0

_STATE = """SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY stream, "table" ORDER BY load DESC) AS n FROM state)
    WHERE n = 1"""
_NAMES = 'SELECT stream, "table", name FROM names'
_LOADS = """SELECT stream, step, load, started_at, finished_at, seconds, "rows", files, cardinality(tables) AS tables
    FROM loads ORDER BY finished_at DESC LIMIT 500"""
#: Up to where each step brought each source.
_REACHED = """SELECT stream, step, s['source'] AS source, max(s['upto']) AS upto, max(s['commit_time']) AS commit_time,
    max(finished_at) AS finished_at
    FROM (SELECT stream, step, finished_at, unnest(sources) AS s FROM loads) GROUP BY stream, step, s['source']"""
#: Records of each source that are kept apart: since the newest of them, it is suspect.
_QUARANTINED = """SELECT source, count(*) AS records, max(quarantined_at) AS newest_at FROM quarantine
    WHERE source IS NOT NULL GROUP BY source"""
#: The newest verdict of each table of a source; but a difference that was found stays until as much of the table was equal.
_VERIFIED = """WITH newest AS (SELECT *, row_number() OVER (PARTITION BY stream, source, "table", verdict = 'not equal'
        ORDER BY verified_at DESC) AS n FROM verified),
    differing AS (SELECT * FROM newest d WHERE n = 1 AND verdict = 'not equal' AND NOT EXISTS (SELECT 1 FROM verified e
        WHERE e.verdict = 'equal' AND e.stream = d.stream AND e.source = d.source AND e."table" = d."table"
        AND e.verified_at > d.verified_at
        AND e.ranges_compared * greatest(d.ranges, 1) >= d.ranges_compared * greatest(e.ranges, 1)))
    SELECT * FROM differing UNION ALL SELECT * FROM newest o WHERE n = 1 AND verdict <> 'not equal'
        AND NOT EXISTS (SELECT 1 FROM differing d WHERE d.stream = o.stream AND d.source = o.source AND d."table" = o."table")"""


class Lake:
    """Reads the lake from `start` until `stop`, in a thread of its own."""

    def __init__(
        self,
        root: str | None,
        streams: Mapping[str, Stream] = MappingProxyType({}),
        settings: Callable[[], Mapping[str, str]] = dict,
        *,
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the lake's root, its streams, and what returns [spark.settings] of its file."""
        self._root, self._streams, self._settings = root, streams, settings
        self._every, self._clock = every, clock
        self._looked_at = clock()
        self._view = LakeView(configured=root is not None, problem="it has not been read yet" if root else "")
        self._late: tuple[LakeView, LakeView] | None = None
        self._reader: OwnTables | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="lake", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        if self._root is not None:
            self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        self._stopped.set()

    def view(self) -> LakeView:
        """Return what is known now; never waits."""
        view, seconds = self._view, self._clock() - self._looked_at
        if view.configured and view.read_at and not view.problem and seconds > self._every + _HUNG_SECONDS:
            # One for each view, for what it made of its tables.
            late = self._late
            if late is None or late[0] is not view:
                problem = f"a look at it has not ended for {seconds:.0f} s and more"
                late = self._late = view, replace(view, problem=problem, hint="Is its storage reachable?").indexed()
            return late[1]
        return view

    def look(self) -> None:
        """Read once."""
        try:
            if self._reader is None:
                self._reader = OwnTables(self._root or "", self._settings())
            offsets = {}
            for stream in self._streams:
                if (held := _offsets(self._reader, stream)) is not None:
                    offsets[stream] = held
            try:
                view = _view(self._reader)
                verdicts = {key: one for key, one in view.verdicts.items() if self._has_source(*key[:2])}
                known = replace(view, offsets=offsets, verdicts=verdicts, complete_at=self._view.complete_at)
                self._view = known.indexed()
            except NoTable as error:
                self._view = LakeView(
                    problem=f"nothing is published yet: {error.message}",
                    hint="Load a stream with 'headrace lake load', or correct [lake] root in the lake's file.",
                    offsets=offsets,
                    complete_at=self._view.complete_at,
                )
        except ReplicationError as error:
            # Keys may be others by now.
            self._reader = None
            self._view = replace(self._view, problem=error.message, hint=error.hint).indexed()
        except Exception as error:  # noqa: BLE001 - whatever it raises: the thread must go on, and the pages show it.
            _log.exception("the lake was not read")
            self._reader = None
            self._view = replace(self._view, problem=defect(error), hint="").indexed()
        self._looked_at = self._clock()

    def _has_source(self, stream: str, source: str) -> bool:
        """Whether the lake's file has a source: of one that was taken out, nobody will verify anything again."""
        return not self._streams or (stream in self._streams and source in self._streams[stream].sources)

    def _follow(self) -> None:
        while not self._stopped.is_set():
            self.look()
            self._stopped.wait(self._every)


def _view(reader: OwnTables) -> LakeView:
    # What is published is the lake's heart: without it there is none.
    state = reader.rows("state", _STATE)
    names = {(row["stream"], row["table"]): row["name"] for row in _optional(reader, "names", _NAMES)}
    streams = {row["stream"]: _stream(row) for row in state if row["table"] is None}
    tables = [
        _table(row, streams[row["stream"]], names)
        for row in state
        # Earlier releases drop none.
        if row["table"] and row["stream"] in streams and row.get("dropped") is None
    ]
    reached = {
        (row["step"], row["source"]): Reached(
            upto=row["upto"] or "", commit_time=row["commit_time"], finished_at=row["finished_at"]
        )
        for row in _optional(reader, "loads", _REACHED)
    }
    quarantined = {
        row["source"]: Quarantined(records=row["records"], newest_at=row["newest_at"])
        for row in _optional(reader, "quarantine", _QUARANTINED)
    }
    verdicts = {
        (row["stream"], row["source"], row["table"]): Verdict(
            verdict=row["verdict"],
            verified_at=row["verified_at"],
            rows_source=row["rows_source"],
            rows_lake=row["rows_lake"],
            compared=100.0 * row["ranges_compared"] / max(1, row["ranges"]),
        )
        for row in _optional(reader, "verified", _VERIFIED)
    }
    return LakeView(
        read_at=time.time(),
        streams=streams,
        tables=tuple(sorted(tables, key=lambda one: (one.stream, one.table))),
        loads=tuple(Load(**row) for row in _optional(reader, "loads", _LOADS)),
        reached=reached,
        verdicts=verdicts,
        quarantined=quarantined,
    )


def _optional(reader: OwnTables, table: str, query: str) -> list[Row]:
    """Return the rows of a table that a lake has only once something was recorded."""
    try:
        return reader.rows(table, query)
    except NoTable:
        return []


def _offsets(reader: OwnTables, stream: str) -> dict[tuple[str, int], int] | None:
    """Return what a stream's bronze table holds, as its newest load noted it (spark_jobs/state/offsets.py); None if not known."""
    try:
        note = reader.note(f"bronze/{stream}", "bronze")
    except NoTable:
        return {}
    if note is None:
        return None
    if (base := note.get("base")) is not None:
        # Of many topics it has those that changed since an earlier note, which has all of them.
        whole = reader.note_at(f"bronze/{stream}", "bronze", base["version"])
        if whole is None or whole.get("commit") != base["commit"]:
            return None
        topics = whole["topics"] | note["changed"]
    else:
        # Earlier releases wrote one topic only.
        topics = note.get("topics") or {note["topic"]: note}
    return {
        (topic, int(partition)): int(offset)
        for topic, held in topics.items()
        for partition, offset in held["offsets"].items()
    }


def _stream(row: Row) -> StreamPublished:
    return StreamPublished(
        stream=row["stream"],
        load=row["load"],
        changes=row["changes"] or 0,
        finished_at=row["finished_at"],
        positions=_map(row["positions"]),
    )


def _table(row: Row, stream: StreamPublished, names: dict[tuple[str, str], str]) -> TablePublished:
    positions = stream.positions if row["positions"] is None else _map(row["positions"])
    copying = _map(row.get("copying"))
    return TablePublished(
        stream=row["stream"],
        table=row["table"],
        name=names.get((row["stream"], row["table"]), ""),
        state=table_state(
            reason=row["reason"], copying=copying, version=row["version"], behind=positions != stream.positions
        ),
        reason=row["reason"] or "",
        warnings=tuple(_map(row["warnings"]).values()),
        version=row["version"],
        keyed=bool(row["keyed"]),
        positions=positions,
        copying=copying,
        held_back=frozenset(_map(row.get("held_back"))),
        published_at=stream.finished_at,
        # Earlier releases count none.
        expectations=tuple(
            Expectation(
                name=each["expectation"],
                expression=each["expression"],
                total=each["total"],
                failing=each["total_failing"],
                problem=each["problem"] or "",
            )
            for each in row.get("quality") or ()
        ),
        path=row.get("path") or "",
        history=row.get("history"),
        schemas=_map(row.get("schemas")),
    )


def _map(found: Any) -> dict[str, str]:
    """Return a map of a row: the reader makes a list of pairs of it."""
    return {} if not found else dict(found)


#: Seconds between two looks at Kafka.
RETENTION_EVERY = 20.0
#: By stream, then by topic and partition: offset of the first record that bronze lacks.
Loaded = Mapping[str, Mapping[tuple[str, int], int]]


@dataclass(frozen=True, kw_only=True)
class RetentionView:
    """What is known of all streams."""

    streams: dict[str, StreamRetention] = field(default_factory=dict)
    #: Why Kafka cannot be asked now; empty while it can, or before the first look.
    problem: str = ""
    hint: str = ""
    #: Whether Kafka has been asked at all.
    asked: bool = False


class Retention:
    """Asks Kafka from `start` until `stop`, in a thread of its own."""

    def __init__(
        self, file: LakeFile | None, loaded: Callable[[], Loaded | None], *, every: float = RETENTION_EVERY
    ) -> None:
        """Take the lake's file, and what returns the offsets that its bronze tables hold: None before they were read."""
        self._file = file
        self._loaded = loaded
        self._every = every
        self._view = RetentionView()
        self._reader: KafkaReader | None = None
        self._streams: dict[str, RetentionReader] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="retention", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        if self._file is not None:
            self._thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()

    def view(self) -> RetentionView:
        """Return what is known now; never waits."""
        return self._view

    def look(self) -> None:
        """Ask once; without an answer what is known stays, and with it the time until something is removed."""
        file, loaded = self._file, self._loaded()
        if file is None or loaded is None:
            return
        try:
            self._view = RetentionView(streams=self._ask(file, loaded), asked=True)
        except ReplicationError as error:
            self._view = RetentionView(
                streams=self._view.streams, problem=error.message, hint=error.hint or "", asked=True
            )

    def _ask(self, file: LakeFile, loaded: Loaded) -> dict[str, StreamRetention]:
        if self._reader is None:
            self._reader = KafkaReader(file.kafka)
        streams = {}
        for stream in loaded:
            reader = self._streams.setdefault(stream, RetentionReader(self._reader))
            if (retention := reader.read(partial(file.has_topic, stream), loaded[stream])) is not None:
                streams[stream] = retention
        return streams

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - a defect of this figure alone.
                _log.exception("the retention of the streams' topics was not looked up")
                self._view = replace(self._view, problem=defect(error), hint="", asked=True)
            # Once the lake was read, which takes a moment.
            self._stopped.wait(self._every if self._view.asked else 1.0)
