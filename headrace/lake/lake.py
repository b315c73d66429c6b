"""The lake as Python programs open it. See the package."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError
from headrace.lake import delta_log, own_tables, views
from headrace.lake.own_tables import PublishedTable
from headrace.lake.storage import Storage
from headrace.lake.table import LakeTable

if TYPE_CHECKING:
    import pyarrow as pa

#: A moment: with a zone, or in UTC.
Moment = datetime | str | None


def open(config: str | Path) -> "Lake":  # noqa: A001 - as `gzip.open` is called.
    """Return the lake of a lake's file; raise ConfigurationError where that is wrong."""
    file = load(config, LakeFile)
    return Lake(file.root, file.spark_settings())


class Snapshot:
    """The tables of all streams at one publication, however long it is used: later loads change nothing in it.

    Those of a stream have the same transactions of each source.
    """

    def __init__(self, storage: Storage, tables: dict[str, LakeTable]) -> None:
        """Take the tables by their names in lower case."""
        self._storage, self._tables = storage, tables

    def names(self) -> list[str]:
        """Return the names of all tables, such as `silver.accounts`, `history.accounts` and `bronze.bank`."""
        return sorted(table.name for table in self._tables.values())

    def table(self, name: str) -> LakeTable:
        """Return a table; raise ConfigurationError when there was none of that name."""
        if name.casefold() not in self._tables:
            raise ConfigurationError(f"no table {name} was published", hint=f"There are: {', '.join(self.names())}.")
        return self._tables[name.casefold()]

    def views(self, engine: Literal["duckdb"]) -> str:
        """Return SQL that makes a view of each table of silver and history, in a schema of its database.

        The views read files of these versions: make them again after a load, and within `keep_days`.
        """
        if engine != "duckdb":
            raise ConfigurationError(f"no views for {engine!r}", hint="There are views for 'duckdb'.")
        names = (name for name in self.names() if name.startswith(("silver.", "history.")))
        return views.script(self._storage, map(self.table, names))


class Lake:
    """The tables of all streams, each at a version that was published."""

    def __init__(self, root: str, settings: Mapping[str, str] | None = None) -> None:
        """Take the lake's root, and [spark.settings] of its file."""
        self._storage = Storage(root, settings or {})

    def at(self, as_of: Moment = None) -> Snapshot:
        """Return all tables as they were published last, or by a time; bronze and `headrace.loads` are as they are now."""
        moment = _moment(as_of)
        state = self._own("state")
        rows = state.to_arrow() if state is not None else None
        states, names = _newest(rows, moment), self._own("names")
        published_tables = own_tables.published_tables(
            states, _rows(names.to_arrow() if names is not None else None), moment
        )
        streams = sorted({row["stream"] for row in states})
        places = {
            f"bronze.{own_tables.bronze_name(stream, streams)}": (f"bronze/{stream}", stream) for stream in streams
        }
        for name, (path, stream) in (places | {"headrace.loads": ("loads", "")}).items():
            if (version := delta_log.newest(self._storage, path)) is not None:
                published_tables[name.casefold()] = PublishedTable(name, path, version, stream, "", {})
        tables = {name: LakeTable(self._storage, table) for name, table in published_tables.items()}
        of_state = {}
        if state is not None and rows is not None:
            of_state = views.state_views(state.published, rows, self._storage, moment)
        return Snapshot(self._storage, tables | of_state)

    def names(self, *, as_of: Moment = None) -> list[str]:
        """Return the names of all tables: those of a snapshot."""
        return self.at(as_of).names()

    def table(self, name: str, *, as_of: Moment = None) -> LakeTable:
        """Return a table as it was published last, or by a time; raise ConfigurationError when there was none of that name."""
        return self.tables(name, as_of=as_of)[0]

    def tables(self, *names: str, as_of: Moment = None) -> list[LakeTable]:
        """Return several tables at one publication."""
        snapshot = self.at(as_of)
        return [snapshot.table(name) for name in names]

    def views(self, engine: Literal["duckdb"], *, as_of: Moment = None) -> str:
        """Return SQL that makes a view of each table: those of a snapshot."""
        return self.at(as_of).views(engine)

    def _own(self, table: str) -> LakeTable | None:
        """Return one of the lake's own tables as it is now; None where it is not there yet."""
        version = delta_log.newest(self._storage, table)
        return None if version is None else LakeTable(self._storage, PublishedTable(table, table, version, "", "", {}))


def _newest(rows: "pa.Table | None", moment: datetime | None) -> list[dict[str, Any]]:
    """Return the newest rows of what is published, by now and by a moment: there is one for each load of the last days."""
    if rows is None:
        return []
    places = {*own_tables.newest_places(rows).values(), *own_tables.newest_places(rows, moment).values()}
    return _rows(rows.take(sorted(places)))


def _rows(table: "pa.Table | None") -> list[dict[str, Any]]:
    if table is None:
        return []
    rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
    return rows


def _moment(given: Moment) -> datetime | None:
    """Return a moment in UTC; raise ConfigurationError for a text that is none."""
    try:
        moment = datetime.fromisoformat(given) if isinstance(given, str) else given
    except ValueError as error:
        raise ConfigurationError(f"as_of: {given!r} is no time", hint="Write it as 2026-01-31T09:15:00.") from error
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
