"""What is published of a stream, in memory and as rows: the stream itself, and each of its tables."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from headrace.lake.own_tables import table_state
from spark_jobs.state import schema_texts

Positions = dict[str, str]

#: A row for each table of a stream, and one without a table for the stream itself.
COLUMNS = (
    "stream string, `table` string, path string, version bigint, load bigint, positions map<string, string>, state string, "
    "reason string, history bigint, changes bigint, since bigint, keyed boolean, schemas map<string, string>, "
    "warnings map<string, string>, data bigint, started_at timestamp, finished_at timestamp, bronze_version bigint, "
    "bronze_commit string, bronze_done bigint, bronze_after bigint, tried string, copying map<string, string>, "
    "held_back map<string, struct<`at`: string, reason: string, `schema`: string>>, "
    "unfinished map<string, struct<`after`: bigint, changes: bigint, upto: string, problem: string>>, "
    "partitions map<string, map<string, string>>, failures int, dropped timestamp, "
    "renamed_to string, begins map<string, struct<`at`: string, `time`: timestamp>>, bronze_removed map<string, string>, "
    "quality array<struct<expectation: string, expression: string, version: bigint, checked: bigint, failing: bigint, "
    "total: bigint, total_failing: bigint, problem: string>>"
)


@dataclass(frozen=True, kw_only=True)
class Quality:
    """How many rows of a table do not meet an expectation."""

    expectation: str
    expression: str
    #: Version of the table that was counted.
    version: int
    #: Rows that the load which counted put or changed, and those of them that do not meet it; None where it cannot be counted.
    checked: int | None = None
    failing: int | None = None
    #: The same of all rows.
    total: int | None = None
    total_failing: int | None = None
    #: Why it cannot be counted.
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """What bronze has of a source beyond the position up to which it is published: the next load may need it."""

    #: Version of bronze after which all of it came; -1 for any.
    after: int
    #: Changes of tables that wait for the end of their transaction.
    changes: int
    #: Position of the last record.
    upto: str
    #: Why the source goes no further, where that is no transaction that has not ended: somebody has to act.
    problem: str | None = None


#: Sources that are held back of which a table's reason has more than their number.
_LISTED = 5


@dataclass(frozen=True, kw_only=True)
class HeldBack:
    """A source whose rows of a table wait, because the table cannot have what it sent (silver/table_load.py)."""

    #: Position up to which the table shows it; empty where the table has nothing of it.
    at: str
    reason: str
    #: Digest of its newest schema, with which it was tried last.
    schema: str = ""


#: What the problem of a source begins with whose order is not known.
DISORDERED = "its records are in several partitions at once"
#: The state of a table that was dropped from the lake.
DROPPED = "dropped"
#: In place of the number of the load that publishes a table whose folder it has made.
NEW = -1


@dataclass(frozen=True, kw_only=True)
class Table:
    """A silver table as published."""

    #: The source's `schema.table`.
    table: str
    #: The Delta version to read; None when the table could not be made yet.
    version: int | None = None
    #: Changes that the load applied.
    changes: int = 0
    #: Positions up to which the table shows each source.
    positions: Positions = field(default_factory=dict)
    #: The newest schema record of each source, as it came.
    schemas: Mapping[str, str] = field(default_factory=dict)
    #: Why the table stopped, when it did.
    problem: str | None = None
    #: The Delta version of its history; None when none is kept.
    history: int | None = None
    #: Why its rows may differ from their source, by source and position of the schema that changed (silver/held_back.py).
    warnings: dict[str, str] = field(default_factory=dict)
    #: Whether a source gives it a key.
    keyed: bool = False
    #: The load that made its folder: versions published before are those of another one. None: of an earlier release.
    since: int | None = None
    #: Copies under way, which are not published yet: by source the position at which the copy began (silver/held_back.py).
    copying: dict[str, str] = field(default_factory=dict)
    #: Sources whose rows stay as they were while those of others go on: the table cannot have what they sent.
    held_back: dict[str, HeldBack] = field(default_factory=dict)
    #: Version of bronze after which all came that a table which stopped or is copied does not have. None: not known.
    bronze_after: int | None = None
    #: Digest of the settings with which a table that stopped was tried (silver/held_back.py).
    settings: str | None = None
    #: How often it could not be loaded since it was, for a reason that may pass.
    failures: int = 0
    #: What was counted of its expectations.
    quality: tuple[Quality, ...] = ()

    @property
    def lags(self) -> bool:
        """Whether its own positions show what it lacks, which came to bronze after `bronze_after`."""
        return self.problem is not None or bool(self.copying) or self.failures > 0

    @property
    def waiting(self) -> Positions:
        """Position at which a source's rows wait, for the end of a copy or for somebody to act, by source."""
        held = {source: of_source.at for source, of_source in self.held_back.items()}
        return held | {source: min(at, held.get(source, at)) for source, at in self.copying.items()}

    def as_going_on(self) -> "Table":
        """Return it without what it stopped or failed with, but for sources that are held back."""
        if not self.held_back:
            return replace(self, failures=0, problem=None, settings=None)
        held = [
            f"rows of {source} stay as they were at position {of_source.at or 'none'}: {of_source.reason}"
            for source, of_source in sorted(self.held_back.items())
        ]
        more = [f"so do those of {len(held) - _LISTED} more"] if len(held) > _LISTED else []
        return replace(self, failures=0, problem=f"{'; '.join([*held[:_LISTED], *more])} (other sources go on)")


@dataclass(frozen=True, kw_only=True)
class Begin:
    """Where a source begins by a table's next name: position and commit time of its first version there."""

    at: str
    #: None where the source has given none.
    time: datetime | None


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """A table that was dropped from the lake."""

    at: datetime
    #: The table as it was published last.
    table: Table
    #: The name that it has at its sources since, where it was renamed: its folders stay then, and its history is shown.
    renamed_to: str | None = None
    #: Where that name begins, by source.
    begins: dict[str, Begin] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Published:
    """What is published of a stream; number 0 is the state before the first load."""

    stream: str
    #: Number of the publication: of a load, a replay or maintenance.
    load: int = 0
    #: Number of the last one that was not maintenance.
    data: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    #: Version of bronze that was read, and the id of the commit that made it (published.py). None: not known.
    bronze_version: int | None = None
    bronze_commit: str | None = None
    #: Newest version of bronze of which nothing is left to do but what is unfinished. None: not known.
    bronze_done: int | None = None
    #: What bronze has beyond the position of a source, by source.
    unfinished: dict[str, Unfinished] = field(default_factory=dict)
    changes: int = 0
    #: Positions up to which each source is published.
    positions: Positions = field(default_factory=dict)
    #: Position up to which records are applied, by source and partition. Empty: not known.
    partitions: dict[str, dict[str, str]] = field(default_factory=dict)
    #: Position up to which bronze may lack records since they were too old, by source. It has all of the others.
    bronze_removed: Positions = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    #: Tables whose records loads pass over, by name.
    dropped: dict[str, Dropped] = field(default_factory=dict)

    @property
    def held(self) -> dict[str, str]:
        """Why sources go no further until somebody acts, by source."""
        return {source: rest.problem for source, rest in self.unfinished.items() if rest.problem is not None}

    @property
    def disordered(self) -> set[str]:
        """Sources whose order is not known: only a replay lets them go on."""
        return {source for source, why in self.held.items() if why.startswith(DISORDERED)}

    @cached_property
    def renamed(self) -> dict[str, Table]:
        """The tables that were renamed, by their former names."""
        return {name: drop.table for name, drop in self.dropped.items() if drop.renamed_to}

    @cached_property
    def _former(self) -> dict[str, str]:
        return {drop.renamed_to: name for name, drop in self.dropped.items() if drop.renamed_to}

    def kept(self, name: str) -> Table | None:
        """Return a table whose rows are kept, by its name or a former one; None of one that is dropped, or never was."""
        return self.tables.get(name) or self.renamed.get(name)

    def other_names(self, name: str) -> list[str]:
        """Return the former and later names of a table, by one of its names."""
        present, later = name, set[str]()
        while (drop := self.dropped.get(present)) is not None and drop.renamed_to and drop.renamed_to not in later:
            present = drop.renamed_to
            later.add(present)
        return [other for other in (present, *self.former_names(present)) if other != name]

    def former_names(self, name: str) -> list[str]:
        """Return the names that a table had before, the last one first."""
        names = list[str]()
        while (former := self._former.get(names[-1] if names else name)) is not None and former not in names:
            names.append(former)
        return names


def rows(done: Published, changed: Mapping[str, Table], dropped: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return the rows that a publication appends: of the stream, and of the tables that it changed or dropped."""
    common = {"stream": done.stream, "load": done.load, "finished_at": done.finished_at}
    own = {
        name: getattr(done, name)
        for name in ("data", "started_at", "bronze_version", "bronze_commit", "bronze_done", "changes")
    }
    unfinished = {source: asdict(rest) for source, rest in sorted(done.unfinished.items())}
    own |= {"positions": done.positions, "unfinished": unfinished, "partitions": done.partitions}
    own |= {"bronze_removed": done.bronze_removed}
    all_rows = [{**common, **own, "table": None, "state": "published"}]
    all_rows += [{**common, **_columns(done, changed[name])} for name in sorted(changed)]
    for name in sorted(dropped):
        drop = done.dropped[name]
        # The stream moves on without it.
        row = _columns(done, drop.table) | {"positions": drop.table.positions, "state": DROPPED, "dropped": drop.at}
        row |= {
            "renamed_to": drop.renamed_to,
            "begins": {source: asdict(at) for source, at in sorted(drop.begins.items())},
        }
        all_rows.append({**common, **row})
    return all_rows


def state(table: Table, positions: Positions) -> str:
    """Return the state of a table of a stream that is published up to some positions, as all that shows it has it.

    But `published` is `current` in the rows, as in those of earlier releases: queries of users compare it.
    """
    shown = table_state(
        reason=table.problem, copying=table.copying, version=table.version, behind=table.positions != positions
    )
    return "current" if shown == "published" else shown


def _columns(done: Published, table: Table) -> dict[str, Any]:
    behind = table.positions != done.positions
    return {
        "table": table.table,
        "version": table.version,
        "history": table.history,
        # None is the stream's own: the rows of tables that a load does not change need not be written again.
        "positions": table.positions if behind else None,
        "state": state(table, done.positions),
        "reason": table.problem,
        "changes": table.changes,
        "since": table.since,
        "copying": table.copying,
        "held_back": {source: asdict(held) for source, held in sorted(table.held_back.items())},
        "bronze_after": table.bronze_after,
        "tried": table.settings,
        "failures": table.failures,
        "keyed": table.keyed,
        "schemas": schema_texts.digests(table.schemas),
        "warnings": table.warnings,
        "quality": [asdict(each) for each in table.quality],
    }


def parse(
    newest_rows: list[dict[str, Any]], texts: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> dict[str, Published]:
    """Return what is published by stream, of the newest row of each stream and table; `texts` makes schemas of digests."""
    streams = {row["stream"]: row for row in newest_rows if row["table"] is None}
    names = ("stream", "load", "data", "bronze_version", "bronze_done", "changes")
    states = {
        stream: Published(
            **{name: row[name] for name in names},
            bronze_commit=row.get("bronze_commit"),
            # PySpark hands out times without a zone, in this machine's.
            started_at=row["started_at"].astimezone(UTC) if row["started_at"] else None,
            finished_at=row["finished_at"].astimezone(UTC) if row["finished_at"] else None,
            positions=dict(row["positions"] or {}),
            # An earlier release has none.
            unfinished={source: Unfinished(**rest) for source, rest in (row.get("unfinished") or {}).items()},
            partitions=dict(row.get("partitions") or {}),
            bronze_removed=dict(row.get("bronze_removed") or {}),
            tables={},
        )
        for stream, row in streams.items()
    }
    for row in newest_rows:
        if row["table"] is None or row["stream"] not in states:
            continue
        stream = states[row["stream"]]
        # Earlier releases drop none.
        if (dropped := row.get("dropped")) is not None:
            own = _table(row, stream, texts)
            begins = {
                source: Begin(at=begin["at"], time=begin["time"].astimezone(UTC) if begin["time"] else None)
                for source, begin in (row.get("begins") or {}).items()
            }
            drop = Dropped(at=dropped.astimezone(UTC), table=own, renamed_to=row.get("renamed_to"), begins=begins)
            stream.dropped[row["table"]] = drop
        else:
            stream.tables[row["table"]] = _table(row, stream, texts)
    return states


def _table(row: dict[str, Any], state: Published, texts: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Table:
    return Table(
        table=row["table"],
        version=row["version"],
        changes=row["changes"] if row["load"] == state.load else 0,
        positions=state.positions if row["positions"] is None else dict(row["positions"]),
        schemas=texts(row["schemas"] or {}),
        problem=row["reason"],
        history=row["history"],
        keyed=row["keyed"],
        warnings=dict(row["warnings"] or {}),
        since=row["since"],
        # Earlier releases have none.
        copying=dict(row.get("copying") or {}),
        held_back={source: HeldBack(**held) for source, held in (row.get("held_back") or {}).items()},
        bronze_after=row.get("bronze_after"),
        settings=row.get("tried"),
        failures=row.get("failures") or 0,
        quality=tuple(Quality(**each) for each in row.get("quality") or ()),
    )


def changed(before: Published, after: Published) -> dict[str, Table]:
    """Return the tables whose rows a publication has to write: the others go with the stream."""

    def plain(state: Published, table: Table | None) -> tuple[Table | None, bool]:
        if table is None:
            return None, False
        whole = table.positions == state.positions
        return replace(table, changes=0, positions={} if whole else table.positions), whole

    return {
        name: table
        for name, table in after.tables.items()
        if table.changes or plain(after, table) != plain(before, before.tables.get(name))
    }
