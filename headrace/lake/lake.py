"""The lake as Python programs open it (see the package), and its views: SQL for DuckDB, and `lake.published` and `lake.tables` as
`headrace lake sql` shows them.

SQL for DuckDB has a view of each table over the Parquet files of its published version, without extensions of DuckDB's. A view
selects columns by their names in the files, in the types that the table has now, and leaves deleted rows out by their numbers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError
from headrace.lake import delta_log, own_tables
from headrace.lake.delta_log import DataFile
from headrace.lake.own_tables import PublishedTable, is_gone, newest_places
from headrace.lake.storage import Storage
from headrace.lake.table import Column, LakeTable

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
        return view_statements(self._storage, map(self.table, names))


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
            of_state = state_views(state.published, rows, self._storage, moment)
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


_AT = "TIMESTAMPTZ"
_TYPES = {
    "int64": "BIGINT",
    "int32": "INTEGER",
    "int16": "SMALLINT",
    "int8": "TINYINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date32[day]": "DATE",
    "timestamp[us, tz=UTC]": _AT,
    "timestamp[us]": "TIMESTAMP",
}


def view_statements(storage: Storage, tables: Iterable[LakeTable]) -> str:
    """Return the statements that make the views; those that are there are replaced."""
    statements, schemas = [], set[str]()
    for table in tables:
        schema, _, name = table.name.partition(".")
        if schema not in schemas:
            schemas.add(schema)
            statements.append(f"CREATE SCHEMA IF NOT EXISTS {_name(schema)};")
        statements.append(f"CREATE OR REPLACE VIEW {_name(schema)}.{_name(name)} AS {_query(storage, table)};")
    return "\n".join(statements) + "\n"


def _query(storage: Storage, table: LakeTable) -> str:
    whole = [file for file in table.content.files if file.deleted is None]
    parts = [_of_files(storage, table.columns, whole, [])] if whole else []
    parts += [
        _of_files(storage, table.columns, [file], table.deleted(file))
        for file in table.content.files
        if file.deleted is not None
    ]
    if not parts:
        nothing = ", ".join(f"CAST(NULL AS {type_name(column)}) AS {_name(column.name)}" for column in table.columns)
        return f"SELECT {nothing} WHERE false"
    return " UNION ALL ".join(parts)


def _of_files(storage: Storage, columns: list[Column], files: list[DataFile], deleted: list[int]) -> str:
    # A column that no file has yet would have no name there: the table's own row of nulls has them all.
    types = {column.stored: "TIMESTAMP" if type_name(column) == _AT else type_name(column) for column in columns}
    empty = ", ".join(f"CAST(NULL AS {kind}) AS {_name(stored)}" for stored, kind in types.items())
    chosen = ", ".join(f"{_value(column)} AS {_name(column.name)}" for column in columns)
    listed = ", ".join(_text(f"{storage.root}/{file.path}") for file in files)
    source = f"read_parquet([{listed}], union_by_name = true, file_row_number = true)"
    left = f" WHERE file_row_number NOT IN ({', '.join(map(str, deleted))})" if deleted else ""
    rows = f"(SELECT * FROM {source}{left} UNION ALL BY NAME SELECT {empty}, CAST(NULL AS BIGINT) AS file_row_number WHERE false)"  # noqa: S608 - as below.
    return f"SELECT {chosen} FROM {rows}"  # noqa: S608 - names and paths are the lake's, and quoted.


def _value(column: Column) -> str:
    if type_name(column) == _AT:
        # Spark's files have them in UTC without saying so: a cast would take them for times of the session's zone.
        return f"make_timestamptz(epoch_us({_name(column.stored)}))"
    return f"CAST({_name(column.stored)} AS {type_name(column)})"


def type_name(column: Column) -> str:
    """Return what DuckDB calls the type of a column."""
    return _of_arrow(str(column.type))


def _of_arrow(kind: str) -> str:
    if kind.startswith("decimal128"):
        return "DECIMAL" + kind.removeprefix("decimal128").replace(" ", "")
    if kind.startswith("list<"):
        return f"{_of_arrow(kind.removeprefix('list<').removesuffix('>').partition(': ')[2])}[]"
    return _TYPES[kind]


def _name(plain: str) -> str:
    quoted = plain.replace('"', '""')
    return f'"{quoted}"'


def _text(plain: str) -> str:
    quoted = plain.replace("'", "''")
    return f"'{quoted}'"


_PUBLISHED = ("stream", "load", "started_at", "finished_at", "bronze_version", "bronze_done", "changes", "positions")
_TABLES = ("stream", "table", "path", "version", "history", "load", "positions", "state", "reason")


class StateView(LakeTable):
    """Rows in memory, made of the lake's table `state` at a version."""

    def __init__(
        self, storage: Storage, published: PublishedTable, rows: "pa.Table", columns: Sequence[str] | None = None
    ) -> None:
        """Take the rows; `columns` are those that are read, all when not given."""
        super().__init__(storage, published, columns)
        self._rows = rows

    def select(self, *columns: str) -> "StateView":
        """Return the view with some of its columns."""
        return StateView(self._storage, self.published, self._rows, columns)

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """Yield the rows."""
        yield from self._rows.select([column.name for column in self.columns]).to_batches()

    def _all_columns(self) -> list[Column]:
        return [Column(field.name, field.name, field.type) for field in self._rows.schema]


def state_views(
    state: PublishedTable, rows: "pa.Table", storage: Storage, as_of: datetime | None
) -> dict[str, LakeTable]:
    """Return the views by name, of the rows of `state`: of what was published by a time, or at all."""
    marked = ("stream", "table", "load", "finished_at", "state", "since", "dropped")
    there = [column for column in marked if column in rows.schema.names]
    marks: list[dict[str, Any]] = rows.select(there).to_pylist()
    has_positions = rows["positions"].is_valid().to_pylist()
    newest, then = newest_places(rows), newest_places(rows, as_of)
    streams = [
        place
        for place, mark in enumerate(marks)
        if mark["table"] is None and (as_of is None or mark["finished_at"] <= as_of)
    ]
    tables = [
        place
        for (stream, name), place in then.items()
        if name is not None
        and marks[place]["state"] != "dropped"
        and not is_gone(marks[place], marks[newest[stream, name]])
    ]
    # A table that a load did not change has the positions of its stream.
    own = [place if has_positions[place] else then.get((marks[place]["stream"], None), place) for place in tables]
    current = rows.take(tables)
    current = current.set_column(current.schema.get_field_index("positions"), "positions", rows["positions"].take(own))
    views: dict[str, LakeTable] = {}
    for name, content, columns in (
        ("lake.published", rows.take(streams), _PUBLISHED),
        ("lake.tables", current, _TABLES),
    ):
        there = [column for column in columns if column in content.schema.names]
        published = PublishedTable(name, state.path, state.version, "", "", {})
        views[name] = StateView(storage, published, content.select(there))
    return views
