"""What the page of a table needs beyond what is known of all tables, read for the tables that somebody looks at.

A page costs five reads at most, of one query or one file each, however many tables there are: publications of the table in
`state`, the texts of its schemas, its columns by its Delta log, the end of the audit file of `headrace lake serve`, and dbt's
manifest. They are done in a thread of its own: a store that does not answer delays a page by the time of `wait_seconds` once. Of
the audit file users and times are read, and nothing of what they asked: a query counts for a table when its text has the table's
name in SQL as a word.
"""

import json
import logging
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from headrace.console.bridges import defect
from headrace.console.lake_view import TablePublished
from headrace.console.lineage import DbtModels
from headrace.errors import CorruptInput, ReplicationError
from headrace.formats import UNREADABLE
from headrace.lake.own_tables import OwnTables, literal
from headrace.lake.table import find_stored
from headrace.schema import TableSchema

#: Bytes from the end of the file; users of one table.
_MOST_BYTES, _MOST_USERS = 1_000_000, 10
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Read:
    """The last query of a user that names a table."""

    user: str
    at: datetime


@dataclass(frozen=True)
class Reads:
    """The newest users of a table."""

    #: Whether queries are recorded at all.
    configured: bool = False
    #: Why the file cannot be read; empty where it can.
    problem: str = ""
    #: Newest first.
    users: tuple[Read, ...] = ()
    #: When the oldest query that was looked at began.
    since: datetime | None = None


NO_READS = Reads()


def find_reads(file: Path, name: str) -> Reads:
    """Return who asked for a table, by its name in SQL; a file that is not there yet has no queries."""
    try:
        lines = _last_lines(file)
    except FileNotFoundError:
        return Reads(configured=True)
    except OSError as error:
        return Reads(configured=True, problem=f"{file} cannot be read: {error.strerror or type(error).__name__}")
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE) if name else None
    users: dict[str, Read] = {}
    since: datetime | None = None
    for line in reversed(lines):
        if (found := _begun(line)) is None:
            continue
        read, query = found
        since = read.at
        if word is not None and word.search(query) and len(users) < _MOST_USERS:
            users.setdefault(read.user, read)
    return Reads(configured=True, users=tuple(users.values()), since=since)


def _last_lines(file: Path) -> list[bytes]:
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        opened.seek(max(0, size - _MOST_BYTES))
        lines = opened.read(_MOST_BYTES).splitlines()
    # The first one may have lost its beginning.
    return lines[1:] if size > _MOST_BYTES else lines


def _begun(line: bytes) -> tuple[Read, str] | None:
    """Return who began a query, and its text; None for other lines, and for what is none."""
    try:
        record = json.loads(line)
        if record["state"] != "begins":
            return None
        return Read(str(record["user"])[:_LONGEST_NAME], datetime.fromisoformat(record["at"])), str(record["query"])
    except (*UNREADABLE, KeyError, TypeError, ValueError):
        return None


_log = logging.getLogger(__name__)

#: Seconds after which a page that is still looked at is read again.
EVERY = 10.0
#: Tables of which the details are kept; rows of `state`, and different schemas of sources, of one table.
_MOST_TABLES, _MOST_ROWS, _MOST_SCHEMAS = 32, 1000, 20


@dataclass(frozen=True, kw_only=True)
class ColumnDetail:
    """A column of a table."""

    #: In silver, and at the source where that is another name; empty where no source has the column.
    name: str
    source_name: str
    #: In the lake, empty where the table has it no more or not yet, and at the sources.
    type: str
    source_types: tuple[str, ...]
    is_key: bool
    #: What the edge's policy does to its values; empty for nothing.
    policy: str


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version of a table that was published."""

    version: int
    load: int
    at: datetime | None
    #: Changes that the load applied; 0 of maintenance.
    changes: int


@dataclass(frozen=True, kw_only=True)
class TableDetail:
    """A table as its page shows it."""

    #: Why something of it could not be read; empty where all was.
    problem: str = ""
    columns: tuple[ColumnDetail, ...] = ()
    key: tuple[str, ...] = ()
    #: Newest first.
    versions: tuple[Version, ...] = ()
    reads: Reads = NO_READS
    #: dbt's models that read it, each with a word about it.
    models: tuple[tuple[str, str], ...] = ()
    #: By the monotonic clock.
    read_at: float = 0.0
    #: Of which table.
    of: TablePublished | None = None


class TableDetails:
    """Reads details of tables from `start` until `stop`."""

    def __init__(
        self,
        root: str | None,
        settings: Callable[[], Mapping[str, str]] = dict,
        audit_file: Path | None = None,
        manifest: Path | None = None,
        *,
        wait_seconds: float = 3.0,
    ) -> None:
        """Take the lake's root, what returns [spark.settings] of its file, the audit file of `headrace lake serve`, and dbt's
        manifest.
        """
        self._root, self._settings, self._audit_file = root, settings, audit_file
        self._dbt = DbtModels(manifest) if manifest is not None else None
        self._wait_seconds = wait_seconds
        self._reader: OwnTables | None = None
        self._changed = threading.Condition()
        self._details: OrderedDict[tuple[str, str], TableDetail] = OrderedDict()
        self._wanted: dict[tuple[str, str], TablePublished] = {}
        self._stopped = False
        self._thread = threading.Thread(target=self._follow, name="table details", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def find(self, table: TablePublished) -> TableDetail:
        """Return the details of a table as they are known; of one that was not looked at lately it waits for them, a little."""
        key = (table.stream, table.table)
        with self._changed:
            known = self._details.get(key)
            if known is None or known.of != table or time.monotonic() - known.read_at > EVERY:
                self._wanted[key] = table
                self._changed.notify_all()
            if known is None:
                self._changed.wait_for(lambda: key in self._details, self._wait_seconds)
                known = self._details.get(key)
            return known or TableDetail(problem="its details are not read yet: is the lake's storage reachable?")

    def read(self, table: TablePublished) -> TableDetail:
        """Read the details of a table; what cannot be read stays as it was known, with the reason."""
        former = self._details.get((table.stream, table.table), TableDetail())
        detail = replace(former, problem="")
        try:
            if self._reader is None:
                self._reader = OwnTables(self._root or "", self._settings())
            detail = replace(detail, versions=_versions(self._reader, table))
            # Neither a version nor a schema ever changes.
            if not detail.columns or former.of is None or _content(former.of) != _content(table):
                columns, key = _columns(self._reader, table)
                detail = replace(detail, columns=columns, key=key)
            # Not ahead of them: what a read that failed left is not of this version.
            detail = replace(detail, of=table)
        except ReplicationError as error:
            # Keys may be others by now.
            self._reader, detail = None, replace(detail, problem=error.message)
        except Exception as error:  # noqa: BLE001 - whatever it raises: the thread must go on, and the page shows it.
            _log.exception("the details of a table were not read")
            self._reader, detail = None, replace(detail, problem=defect(error))
        reads = find_reads(self._audit_file, table.name) if self._audit_file is not None else NO_READS
        models = self._dbt.of(table.name) if self._dbt is not None else ()
        return replace(detail, reads=reads, models=models, read_at=time.monotonic())

    def _follow(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._stopped)
                if self._stopped:
                    return
                # The newest first: whoever waited for the oldest has gone.
                key, table = self._wanted.popitem()
                for oldest in list(self._wanted)[: -_MOST_TABLES or None]:
                    del self._wanted[oldest]
            detail = self.read(table)
            with self._changed:
                self._details[key] = detail
                self._details.move_to_end(key)
                if len(self._details) > _MOST_TABLES:
                    self._details.popitem(last=False)
                self._changed.notify_all()


def _content(table: TablePublished) -> tuple[str, int | None, Mapping[str, str]]:
    return table.path, table.version, table.schemas


def _versions(reader: OwnTables, table: TablePublished) -> tuple[Version, ...]:
    rows = reader.ask(
        "state",
        f"""SELECT version, load, finished_at AS at, changes FROM state
        WHERE stream = {literal(table.stream)} AND "table" = {literal(table.table)} AND version IS NOT NULL
        ORDER BY load DESC LIMIT {_MOST_ROWS}""",  # noqa: S608 - texts are quoted.
    )
    # A table that stopped, or was counted again, has rows with the version that it had.
    older = [row["version"] for row in rows[1:]]
    first = [row for row, before in zip(rows, [*older, None], strict=False) if row["version"] != before]
    return tuple(
        Version(version=row["version"], load=row["load"], at=row["at"], changes=row["changes"] or 0) for row in first
    )


def _columns(reader: OwnTables, table: TablePublished) -> tuple[tuple[ColumnDetail, ...], tuple[str, ...]]:
    """Return the columns in the order of the lake's table, and the key by its names there."""
    stored = reader.columns(table.path, table.version) if table.version is not None and table.path else {}
    schemas = _schemas(reader, sorted(set(table.schemas.values()))[:_MOST_SCHEMAS])
    found: dict[str, ColumnDetail] = {
        name: ColumnDetail(name=name, source_name="", type=type_, source_types=(), is_key=False, policy="")
        for name, type_ in stored.items()
    }
    key: tuple[str, ...] = ()
    for schema in schemas:
        key = tuple(find_stored(name, stored) for name in schema.key) or key
        for column in schema.columns:
            name = find_stored(column.name, stored)
            sizes = ",".join(str(size) for size in (column.length, column.scale) if size is not None)
            kind = f"{column.type_name}({sizes})" if sizes else column.type_name
            known = found.get(name)
            found[name] = ColumnDetail(
                name=name,
                source_name=column.name if column.name != name else "",
                type=known.type if known else "",
                source_types=tuple(dict.fromkeys((*(known.source_types if known else ()), kind))),
                is_key=column.name in schema.key,
                policy=column.policy or "",
            )
    return tuple(found.values()), key


def _schemas(reader: OwnTables, digests: list[str]) -> list[TableSchema]:
    """Return schemas by the digests of their texts; one whose text is damaged is passed over."""
    if not digests:
        return []
    listed = ", ".join(map(literal, digests))
    schemas = []
    for row in reader.ask("schemas", f"SELECT text FROM schemas WHERE digest IN ({listed}) LIMIT {_MOST_SCHEMAS}"):  # noqa: S608 - as above.
        try:
            schemas.append(TableSchema.parse(row["text"]))
        except CorruptInput:
            continue
    return schemas
