"""What is known of the lake at one moment, as pages show it: streams, tables with their sources and views in SQL, loads and
verdicts. Pure values: lake.py makes them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from headrace.configuration.lake import Stream, TableOptions
from headrace.console.bridges import BridgesView

#: Every state of an expectation, so that one that none has can be counted as 0.
EXPECTATION_STATES = ("met", "not met", "not counted")


@dataclass(frozen=True, kw_only=True)
class StreamPublished:
    """What is published of a stream."""

    stream: str
    load: int
    changes: int
    finished_at: datetime | None
    #: By source.
    positions: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What the last load that counted found of an expectation of a table's rows."""

    name: str
    expression: str = ""
    #: All rows, and those that do not meet it; None where it cannot be counted.
    total: int | None
    failing: int | None
    #: Why it cannot be counted; empty where it can.
    problem: str

    @property
    def state(self) -> str:
        """One of EXPECTATION_STATES."""
        return "not counted" if self.problem or self.failing is None else "not met" if self.failing else "met"


@dataclass(frozen=True, kw_only=True)
class TablePublished:
    """A table of a stream, by its newest publication."""

    stream: str
    #: `schema.table` at the source.
    table: str
    #: `silver.NAME` in SQL.
    name: str
    #: published, behind, copying, stopped, not made.
    state: str
    reason: str
    warnings: tuple[str, ...]
    version: int | None
    keyed: bool
    positions: dict[str, str]
    #: By source: where a copy that is under way began.
    copying: dict[str, str]
    #: Sources without which it goes on; of one that stopped, none.
    held_back: frozenset[str] = frozenset()
    #: When its stream was published last.
    published_at: datetime | None
    expectations: tuple[Expectation, ...] = ()
    #: Its folder under the lake's root, empty where it is not known, and the version of its history, None where none is kept.
    path: str = ""
    history: int | None = None
    #: Of the newest schema record of each source, its digest in the lake's table `schemas`.
    schemas: Mapping[str, str] = field(default_factory=dict)

    def is_stopped_for(self, source: str) -> bool:
        """Whether a source's rows of it go no further."""
        return self.state == "stopped" and (not self.held_back or source in self.held_back)


@dataclass(frozen=True, kw_only=True)
class Load:
    """One step of a load."""

    stream: str
    step: str
    load: int | None
    started_at: datetime
    finished_at: datetime
    seconds: float
    rows: int
    files: int
    tables: int


@dataclass(frozen=True, kw_only=True)
class Reached:
    """Up to where a step of the loads brought a source."""

    upto: str
    #: When the newest change of it was committed at the source.
    commit_time: datetime | None
    finished_at: datetime


@dataclass(frozen=True, kw_only=True)
class Quarantined:
    """Records in a source's partitions that are none of it."""

    records: int
    newest_at: datetime


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What verification found last for a table of a source."""

    verdict: str
    verified_at: datetime
    rows_source: int | None
    rows_lake: int | None
    #: Share of the table's ranges that was compared, in percent.
    compared: float


@dataclass(frozen=True, kw_only=True)
class LakeView:
    """The lake at one moment."""

    #: False where the console was started without a lake's file.
    configured: bool = True
    #: Why it cannot be read now; empty while it can.
    problem: str = ""
    hint: str = ""
    #: When it was read last, in seconds since 1970; None before the first time.
    read_at: float | None = None
    streams: dict[str, StreamPublished] = field(default_factory=dict)
    tables: tuple[TablePublished, ...] = ()
    loads: tuple[Load, ...] = ()
    #: By step and source.
    reached: dict[tuple[str, str], Reached] = field(default_factory=dict)
    #: By stream, source and table.
    verdicts: dict[tuple[str, str, str], Verdict] = field(default_factory=dict)
    #: By source.
    quarantined: dict[str, Quarantined] = field(default_factory=dict)
    #: Of each stream's bronze table, by topic and partition: the offset after the last record. None before the first look.
    offsets: dict[str, dict[tuple[str, int], int]] | None = None
    #: By step and source: when the step was last seen to have all that was committed. Kept from view to view.
    complete_at: dict[tuple[str, str], float] = field(default_factory=dict)

    def table(self, stream: str, name: str) -> TablePublished | None:
        """Return a table of a stream; None where there is none of that name."""
        return self._by_name.get((stream, name))

    def tables_of(self, stream: str, source: str) -> Sequence[TablePublished]:
        """Return the tables of a stream that hold a source."""
        return self._by_source.get((stream, source), ())

    def verdicts_of_source(self, stream: str, source: str) -> Mapping[str, Verdict]:
        """Return the last verdicts of a source, by table."""
        return self._verdicts_by_source.get((stream, source), {})

    def verdicts_of_table(self, stream: str, table: str) -> Mapping[str, Verdict]:
        """Return the last verdicts of a table, by source."""
        return self._verdicts_by_table.get((stream, table), {})

    def indexed(self) -> "LakeView":
        """Return this view with its tables and verdicts by name, so that no page has to make that."""
        _ = self._by_name, self._by_source, self._verdicts_by_source, self._verdicts_by_table
        return self

    # Made once for each view: a page of ten thousand tables searches nothing.

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], TablePublished]:
        return {(table.stream, table.table): table for table in self.tables}

    @cached_property
    def _by_source(self) -> Mapping[tuple[str, str], list[TablePublished]]:
        found = defaultdict(list)
        for table in self.tables:
            for source in table.positions:
                found[table.stream, source].append(table)
        return found

    @cached_property
    def _verdicts_by_source(self) -> Mapping[tuple[str, str], dict[str, Verdict]]:
        found: dict[tuple[str, str], dict[str, Verdict]] = defaultdict(dict)
        for (stream, source, table), verdict in self.verdicts.items():
            found[stream, source][table] = verdict
        return found

    @cached_property
    def _verdicts_by_table(self) -> Mapping[tuple[str, str], dict[str, Verdict]]:
        found: dict[tuple[str, str], dict[str, Verdict]] = defaultdict(dict)
        for (stream, source, table), verdict in self.verdicts.items():
            found[stream, table][source] = verdict
        return found

    def lag(self, step: str, source: str, committed: str | None, now: float, *, is_heard: bool = True) -> float | None:
        """Return how old what a step lacks of a source may be, in seconds; 0 when it lacks nothing, None when not known.

        What it lacks came after it was last seen to lack nothing: a change after a quiet week is not a week old.
        `committed` is what Kafka has, None when not known: it may be the end of a transaction whose last change a step has. Of a
        bridge that is not heard it is an older one: that a step has all of that says nothing about now.
        """
        reached = self.reached.get((step, source))
        if reached is None or committed is None:
            return None
        transaction = committed.rpartition("/")[0]
        if reached.upto >= committed or (transaction and reached.upto.startswith(f"{transaction}/")):
            if is_heard:
                self.complete_at[step, source] = now
            return 0.0
        since = (reached.commit_time or reached.finished_at).timestamp()
        return max(0.0, now - max(since, self.complete_at.get((step, source), 0.0)))


#: Sources on one page.
MOST_SOURCES = 100


@dataclass(frozen=True, kw_only=True)
class SourceOfTable:
    """What a table has of a source."""

    source: str
    position: str
    #: How old what readers of the table lack may be, in seconds; None where that is not known.
    lag: float | None
    verdict: Verdict | None
    #: Where its copy that is under way began; empty for none.
    copying: str


def sources_of_table(table: TablePublished, lake: LakeView, bridges: BridgesView) -> list[SourceOfTable]:
    """Return the sources of a table, those first whose last verdict is the worst."""
    verdicts = lake.verdicts_of_table(table.stream, table.table)
    found = []
    without = table.positions.keys() - table.held_back if table.held_back else set()
    for source, position in table.positions.items():
        seen, lag = bridges.sources.get(source), None
        # What is known of positions is of the whole stream: a table that is behind it lacks more.
        if seen is not None and (table.state == "published" or source in without):
            lag = lake.lag("silver", source, seen.status.position, bridges.at, is_heard=not seen.problem)
        found.append(
            SourceOfTable(
                source=source,
                position=position,
                lag=lag,
                verdict=verdicts.get(source),
                copying=table.copying.get(source, ""),
            )
        )
    order = ("not equal", "not compared", "equal")
    return sorted(
        found,
        key=lambda one: (
            order.index(one.verdict.verdict) if one.verdict and one.verdict.verdict in order else 1,
            one.source,
        ),
    )


def table_freshness(sources: list[SourceOfTable]) -> float | None:
    """Return how old what readers of a table lack may be at most, in seconds; None where that is not known of any source."""
    return max((one.lag for one in sources if one.lag is not None), default=None)


def sql_views(table: TablePublished, stream: Stream | None) -> list[tuple[str, str]]:
    """Return what SQL has beside a table of silver, each with a word about it."""
    name = table.name
    if not name:
        return []
    found = [(f"silver_live.{name}", "newest, lake sql only")]
    options = (stream.tables.get(table.table) if stream else None) or TableOptions()
    # Until a load has counted expectations, there is no such view.
    if options.valid_view and (table.expectations or not options.expect):
        found.append((f"valid.{name}", "rows that meet all"))
    if table.history is not None:
        found.append((f"history.{name}", "former rows too"))
    return found
