"""The lake as Python programs open it. See the package."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError
from headrace.lake_reader import delta_log, duckdb_views, published
from headrace.lake_reader.published import PublishedTable
from headrace.lake_reader.storage import Storage
from headrace.lake_reader.table import LakeTable

#: A moment: with a zone, or in UTC.
Moment = datetime | str | None


def open(config: str | Path) -> "Lake":  # noqa: A001 - as `gzip.open` is called.
    """Return the lake of a lake's file; raise ConfigurationError where that is wrong."""
    file = load(config, LakeFile)
    return Lake(file.root, file.spark_settings())


class Lake:
    """The tables of all streams, each at a version that was published."""

    def __init__(self, root: str, settings: Mapping[str, str] | None = None) -> None:
        """Take the lake's root, and [spark.settings] of its file."""
        self._storage = Storage(root, settings or {})

    def names(self, *, as_of: Moment = None) -> list[str]:
        """Return the names of all tables, such as `silver.accounts` and `history.accounts`."""
        return sorted(one.name for one in self._published(as_of).values())

    def table(self, name: str, *, as_of: Moment = None) -> LakeTable:
        """Return a table as it was published last, or by a time; raise ConfigurationError when there was none of that name."""
        return self.tables(name, as_of=as_of)[0]

    def tables(self, *names: str, as_of: Moment = None) -> list[LakeTable]:
        """Return several tables at one publication: those of a stream have the same transactions of each source."""
        found = self._published(as_of)
        if unknown := [name for name in names if name.casefold() not in found]:
            raise ConfigurationError(
                f"no table {unknown[0]} was published",
                hint=f"There are: {', '.join(sorted(one.name for one in found.values()))}.",
            )
        return [LakeTable(self._storage, found[name.casefold()]) for name in names]

    def views(self, engine: Literal["duckdb"], *, as_of: Moment = None) -> str:
        """Return SQL that makes a view of each table at its published version, in a schema of its database.

        The views read files of that version: make them again after a load, and within `keep_days`.
        """
        if engine != "duckdb":
            raise ConfigurationError(f"no views for {engine!r}", hint="There are views for 'duckdb'.")
        tables = sorted(self._published(as_of).values(), key=lambda one: one.name)
        return duckdb_views.script(self._storage, [LakeTable(self._storage, one) for one in tables])

    def _published(self, as_of: Moment) -> dict[str, PublishedTable]:
        return published.tables(self._rows("state"), self._rows("names"), _moment(as_of))

    def _rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of one of the lake's own tables; none where it is not there yet."""
        version = delta_log.newest(self._storage, table)
        if version is None:
            return []
        own = LakeTable(self._storage, PublishedTable(table, table, version, "", "", {}))
        rows: list[dict[str, Any]] = own.to_arrow().to_pylist(maps_as_pydicts="strict")
        return rows


def _moment(given: Moment) -> datetime | None:
    """Return a moment in UTC; raise ConfigurationError for a text that is none."""
    try:
        moment = datetime.fromisoformat(given) if isinstance(given, str) else given
    except ValueError as error:
        raise ConfigurationError(f"as_of: {given!r} is no time", hint="Write it as 2026-01-31T09:15:00.") from error
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
