"""The lake's own tables: SQL over them without Spark, and what they tell: which version of each table was published, its state.

SQL is answered by `deltalake`, for programs that look again and again: the console. The package is imported on the first read,
so that a console without a lake does not need it.

What is published is known by the tables `state` and `names`: the tables of all streams as they were published last, or at a
time: `headrace lake sql` shows the same as `silver` and `history`.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headrace.errors import NeedsOperator, NotConnected
from headrace.lake import delta_log
from headrace.lake.storage import Storage, is_remote, location, store_options

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable


Row = dict[str, Any]
#: What a commit carries of its own (spark_jobs/state/delta_log.py).
Note = dict[str, Any]
#: Commits among which the newest note is: those of maintenance carry none.
_COMMITS = (20, 1000)
_HINT = (
    "The console reads an object store with the credentials of its own environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
    "AWS_REGION, or a role of its machine). Those that Spark alone has, in a credential provider or in core-site.xml, are not "
    "read: set them for the console too."
)


class NoTable(NotConnected):
    """There is no such table yet."""


class OwnTables:
    """The lake's own tables under one root. A table whose version did not change since the last read is not read again."""

    def __init__(self, root: str, settings: Mapping[str, str] | None = None) -> None:
        """Take the lake's root, and [spark.settings] of its file."""
        self._root = location(root)
        self._options = store_options(root, settings or {})
        self._read: dict[tuple[str, str], tuple[str, list[Row]]] = {}
        self._notes: dict[str, tuple[str, Note]] = {}
        self._given = root, dict(settings or {})

    def rows(self, table: str, query: str) -> list[Row]:
        """Return the rows of a query over a table, which the query calls by its name.

        Raises:
            NoTable: there is no such table.
            NotConnected: it cannot be read, and why.
        """
        with self._opened(table) as opened:
            mark = _mark(opened)
            known = self._read.get((table, query))
            if known is None or known[0] != mark:
                known = self._read[table, query] = (mark, _queried(opened, table, query))
        return known[1]

    def ask(self, table: str, query: str) -> list[Row]:
        """Return the rows of a query that is one of many, and is not kept. Raises as `rows` does."""
        with self._opened(table) as opened:
            return _queried(opened, table, query)

    def columns(self, path: str, version: int) -> dict[str, str]:
        """Return the columns of a table of the lake at a version, each with its type in Delta's words. Raises as `rows` does."""
        with self._opened(path, version) as opened:
            return {
                field["name"]: type_text(field["type"]) for field in json.loads(opened.schema().to_json())["fields"]
            }

    def note(self, table: str, kind: str) -> Note | None:
        """Return the newest note of a kind that a commit of a table carries; None when none does. Raises as `rows` does."""
        with self._opened(table) as opened:
            mark = _mark(opened)
            known = self._notes.get(table)
            if known is None or known[0] != mark:
                found = next(filter(None, (_newest(opened.history(limit), kind) for limit in _COMMITS)), None)
                if found is None:
                    return None
                known = self._notes[table] = (mark, found)
        return known[1]

    def note_at(self, table: str, kind: str, version: int) -> Note | None:
        """Return the note of a kind that a version's commit carries; None when it has none, or only PyArrow could read it."""
        try:
            commit = next(delta_log.commits(Storage(*self._given), table, version), None)
        except NeedsOperator:
            return None
        return _newest([commit[1]], kind) if commit is not None else None

    @contextmanager
    def _opened(self, table: str, version: int | None = None) -> "Iterator[DeltaTable]":
        """Give a table; raise NoTable or NotConnected for whatever goes wrong with it."""
        try:
            from deltalake import DeltaTable  # noqa: PLC0415 - only where a lake is shown.
            from deltalake.exceptions import TableNotFoundError  # noqa: PLC0415 - as above.
        except ModuleNotFoundError as error:
            raise NotConnected(
                "the package deltalake is not installed", hint="Install Headrace with the extra 'console'."
            ) from error
        place = f"{self._root}/{table}"
        if self._is_missing(place):
            raise NoTable(f"{place} is not there")
        try:
            yield DeltaTable(place, version, storage_options=self._options or None)
        except TableNotFoundError as error:
            raise NoTable(f"{place} is not there") from error
        except Exception as error:
            # Of the library's engines each has errors of its own, none of which is a reason to end the console.
            raise NotConnected(
                f"{place} cannot be read: {str(error).splitlines()[0][:300]}",
                hint=_HINT if is_remote(self._root) else "",
            ) from error

    def _is_missing(self, place: str) -> bool:
        return not urlsplit(place).scheme and not Path(place, "_delta_log").is_dir()


def _queried(opened: "DeltaTable", table: str, query: str) -> list[Row]:
    from deltalake import QueryBuilder  # noqa: PLC0415 - only where a lake is shown.

    rows: list[Row] = QueryBuilder().register(table, opened).execute(query).read_all().to_struct_array().to_pylist()
    return rows


def literal(text: str) -> str:
    """Return a text as SQL has it here."""
    return "'" + text.replace("'", "''") + "'"


def type_text(of_delta: Any) -> str:
    """Return a type of Delta as a text: `array<string>`."""
    if isinstance(of_delta, str):
        return of_delta
    if of_delta["type"] == "array":
        return f"array<{type_text(of_delta['elementType'])}>"
    if of_delta["type"] == "map":
        return f"map<{type_text(of_delta['keyType'])}, {type_text(of_delta['valueType'])}>"
    fields = ", ".join(f"{field['name']}: {type_text(field['type'])}" for field in of_delta["fields"])
    return f"struct<{fields}>"


def _mark(table: "DeltaTable") -> str:
    """Return what is another one once the table has changed, or is another table."""
    return f"{table.version()} {table.metadata().id}"


def _newest(commits: Sequence[Mapping[str, Any]], kind: str) -> Note | None:
    """Return the first note of a kind; what other programs write there is passed over."""
    for commit in commits:
        try:
            found = json.loads(commit.get("userMetadata") or "null")
        except ValueError:
            continue
        if isinstance(found, dict) and found.get("headrace") == kind:
            return found
    return None


_Row = Mapping[str, Any]
_SUFFIX = 8


@dataclass(frozen=True)
class PublishedTable:
    """A table at a published version."""

    #: As SQL names it: `silver.accounts`, `history.accounts`.
    name: str
    #: Path under the lake's root.
    path: str
    version: int
    stream: str
    #: `schema.table` at the source.
    table: str
    #: Up to which position of each source its rows go.
    positions: dict[str, str]


def bronze_name(stream: str, streams: Collection[str]) -> str:
    """Return the name of a stream's table of bronze: SQL takes no `-`."""
    name = stream.replace("-", "_")
    taken = name != stream and name in streams
    return f"{name}_{hashlib.sha256(stream.encode()).hexdigest()[:_SUFFIX]}" if taken else name


def newest_places(rows: "pa.Table", as_of: datetime | None = None) -> dict[tuple[str, str | None], int]:
    """Return the place of the newest row of each stream and table, among those that were published by a time."""
    columns = [rows[name].to_pylist() for name in ("stream", "table", "load")]
    finished = rows["finished_at"].to_pylist() if as_of is not None else None
    places: dict[tuple[str, str | None], int] = {}
    for place, (stream, table, load) in enumerate(zip(*columns, strict=True)):
        if finished is not None and as_of is not None and finished[place] > as_of:
            continue
        if (stream, table) not in places or load > columns[2][places[stream, table]]:
            places[stream, table] = place
    return places


def is_gone(then: _Row, newest: _Row, database: str = "silver") -> bool:
    """Whether a table is no more what it was: it was dropped, or made again, which gave it versions of its own.

    The history of one that was renamed stays.
    """
    dropped = newest.get("dropped") is not None and not (database == "history" and newest.get("renamed_to"))
    return dropped or (newest.get("since") or 0) > then["load"]


def published_tables(
    states: Iterable[_Row], names: Iterable[_Row], as_of: datetime | None = None
) -> dict[str, PublishedTable]:
    """Return all tables by name, as published last, or by a time; raise NeedsOperator when nothing was published by then."""
    newest: dict[tuple[str, str | None], _Row] = {}
    then: dict[tuple[str, str | None], _Row] = {}
    for row in states:
        key = (row["stream"], row["table"])
        if key not in newest or newest[key]["load"] < row["load"]:
            newest[key] = row
        if (as_of is None or row["finished_at"] <= as_of) and (key not in then or then[key]["load"] < row["load"]):
            then[key] = row
    if not then:
        when = f" by {as_of.isoformat()}" if as_of is not None else " yet"
        raise NeedsOperator(
            f"nothing is published{when}", hint="Name a later time, or load a stream: 'headrace lake load'."
        )
    named = {(row["stream"], row["table"]): row["name"] for row in names}
    found: dict[str, PublishedTable] = {}
    for (stream, table), row in then.items():
        if table is None or (stream, table) not in named:
            continue
        own = (
            then[stream, None]["positions"] if row["positions"] is None and (stream, None) in then else row["positions"]
        )
        for database, version, folder in (
            ("silver", row["version"], row["path"]),
            ("history", row["history"], f"history/{row['path'].partition('/')[2]}" if row["path"] else None),
        ):
            if version is not None and folder and not is_gone(row, newest[stream, table], database):
                name = f"{database}.{named[stream, table]}"
                found[name.casefold()] = PublishedTable(name, folder, version, stream, table, dict(own or {}))
    return found


#: Every state, so that one that no table has can be counted as 0.
TABLE_STATES = ("published", "behind", "copying", "stopped", "not made")


def table_state(*, reason: str | None, copying: Mapping[str, str], version: int | None, behind: bool) -> str:
    """Return the state of a table that stopped for a `reason`, is copied, or has a version that may be `behind` its stream's."""
    if reason:
        return "stopped"
    if copying:
        return "copying"
    if version is None:
        return "not made"
    return "behind" if behind else "published"
