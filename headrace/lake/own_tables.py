"""Answers SQL over the lake's own small tables by `deltalake`, for programs that look again and again: the console.

The package is imported on the first read, so that a console without a lake does not need it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headrace import object_store
from headrace.errors import NotConnected
from headrace.lake.storage import location

if TYPE_CHECKING:
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
        self._options = object_store.options(root, settings or {})
        self._read: dict[tuple[str, str], tuple[str, list[Row]]] = {}
        self._notes: dict[str, tuple[str, Note]] = {}

    def rows(self, table: str, query: str) -> list[Row]:
        """Return the rows of a query over a table, which the query calls by its name.

        Raises:
            NoTable: there is no such table.
            NotConnected: it cannot be read, and why.
        """
        with self._opened(table) as opened:
            from deltalake import QueryBuilder  # noqa: PLC0415 - only where a lake is shown.

            mark = _mark(opened)
            known = self._read.get((table, query))
            if known is None or known[0] != mark:
                found = QueryBuilder().register(table, opened).execute(query)
                known = self._read[table, query] = (mark, found.read_all().to_struct_array().to_pylist())
        return known[1]

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

    @contextmanager
    def _opened(self, table: str) -> "Iterator[DeltaTable]":
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
            yield DeltaTable(place, storage_options=self._options or None)
        except TableNotFoundError as error:
            raise NoTable(f"{place} is not there") from error
        except Exception as error:
            # Of the library's engines each has errors of its own, none of which is a reason to end the console.
            raise NotConnected(
                f"{place} cannot be read: {str(error).splitlines()[0][:300]}",
                hint=_HINT if object_store.is_remote(self._root) else "",
            ) from error

    def _is_missing(self, place: str) -> bool:
        return not urlsplit(place).scheme and not Path(place, "_delta_log").is_dir()


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
