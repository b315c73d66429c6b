"""A table of the lake at one version, as Arrow, Polars, pandas or a relation of DuckDB, and its columns in Arrow.

The rows are those of `headrace lake sql`, the lake's own columns among them (`_source`, `_position`, `_commit_time`). Files are
read as they are needed: batches fit into memory, whatever the table's size.

Also names of columns in silver that cannot have the name that they have at their source (spark_jobs/silver/target_schema.py).
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.errors import ConfigurationError, NeedsOperator
from headrace.lake import delta_log
from headrace.lake.delta_log import DataFile, TableVersion
from headrace.lake.own_tables import PublishedTable
from headrace.lake.storage import Storage

if TYPE_CHECKING:
    import duckdb
    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl
    import pyarrow as pa


_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_SUFFIX = 8
#: Characters that names of columns have in Parquet only where a table maps its names.
_MAPPED = re.compile(r"[ ,;{}()\n\t=]")
_PHYSICAL = "delta.columnMapping.physicalName"
#: Microseconds of the beginning of Julian day 0, before which Spark's 96 bits have a negative day and time of day. Arrow takes
#: both for positive ones, which adds this much, modulo 2**64.
_JULIAN = -2_440_588 * 86_400_000_000
_ADDED = (2**32 * 86_400_000_000) % 2**64 + 2**64 // 1000


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    #: Its name in the table's files.
    stored: str
    type: "pa.DataType"


def is_mapped(name: str) -> bool:
    """Whether a table maps its names where a column has this one."""
    return bool(_MAPPED.search(name))


def add_suffix(name: str) -> str:
    """Return the name that a column has which cannot have its own one."""
    return f"{name}_{hashlib.sha256(name.encode()).hexdigest()[:_SUFFIX]}"


def open_name(name: str) -> str:
    """Return the name that a column has where its table maps no names, and Parquet does not take its own one."""
    return _MAPPED.sub("_", add_suffix(name))


def find_stored(name: str, columns: Collection[str]) -> str:
    """Return the name that a source's column has among those of a silver table, whether it is there or not."""
    return next((other for other in (add_suffix(name), open_name(name)) if other in columns), name)


def of_int96(times: "pa.Array") -> "pa.Array":
    """Return times of 96 bits as Spark has them, from what Arrow makes of them: `infinity` of PostgreSQL is beyond Arrow's."""
    import pyarrow as pa  # noqa: PLC0415 - an extra.
    import pyarrow.compute as pc  # noqa: PLC0415 - as above.

    plain = times.cast(pa.timestamp("us")).view(pa.int64())
    # Wraps, as Spark's own does.
    right = pc.subtract(plain, pa.scalar(_ADDED - 2**64 if _ADDED >= 2**63 else _ADDED, pa.int64()))
    return pc.if_else(pc.less(plain, _JULIAN), right, plain).view(pa.timestamp("us"))


def columns(schema: str) -> list[Column]:
    """Return the columns of a schema as a Delta log has it; raise NeedsOperator for a type that has none in Arrow here."""
    return [
        Column(field["name"], field.get("metadata", {}).get(_PHYSICAL, field["name"]), _type(field["type"]))
        for field in json.loads(schema)["fields"]
    ]


def _type(of_delta: Any) -> "pa.DataType":
    import pyarrow as pa  # noqa: PLC0415 - an extra.

    plain = {
        "long": pa.int64(),
        "integer": pa.int32(),
        "short": pa.int16(),
        "byte": pa.int8(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "date": pa.date32(),
        "string": pa.string(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    if isinstance(of_delta, str):
        if match := _DECIMAL.fullmatch(of_delta):
            return pa.decimal128(int(match[1]), int(match[2]))
        if of_delta in plain:
            return plain[of_delta]
    elif of_delta["type"] == "array":
        return pa.list_(_type(of_delta["elementType"]))
    elif of_delta["type"] == "map":
        return pa.map_(_type(of_delta["keyType"]), _type(of_delta["valueType"]))
    elif of_delta["type"] == "struct":
        return pa.struct([(field["name"], _type(field["type"])) for field in of_delta["fields"]])
    raise NeedsOperator(f"a column of Delta type {of_delta!r} cannot be read here", hint="Read the table with Spark.")


class LakeTable:
    """A table at the version that was published; immutable."""

    def __init__(self, storage: Storage, published: PublishedTable, columns: Sequence[str] | None = None) -> None:
        """Take what was published; `columns` are those that are read, all when not given."""
        self._storage, self.published, self._only = storage, published, columns

    @property
    def name(self) -> str:
        """Its name in SQL."""
        return self.published.name

    @property
    def version(self) -> int:
        """The Delta version that is read."""
        return self.published.version

    @cached_property
    def content(self) -> TableVersion:
        """Its files and columns; raises NeedsOperator where the log has that version no more."""
        return delta_log.read(self._storage, self.published.path, self.published.version)

    @cached_property
    def columns(self) -> list[Column]:
        """The columns that are read."""
        every = self._all_columns()
        if self._only is None:
            return every
        by_name = {column.name: column for column in every}
        if unknown := [name for name in self._only if name not in by_name]:
            raise ConfigurationError(f"{self.name} has no column {unknown[0]!r}", hint=f"It has: {', '.join(by_name)}.")
        return [by_name[name] for name in self._only]

    def _all_columns(self) -> list[Column]:
        return columns(self.content.schema)

    def select(self, *columns: str) -> "LakeTable":
        """Return the table with some of its columns: the others are not read."""
        if not columns:
            raise ConfigurationError(f"{self.name}: no column is selected", hint="Name one at least.")
        return LakeTable(self._storage, self.published, columns)

    @cached_property
    def schema(self) -> "pa.Schema":
        """The columns in Arrow."""
        import pyarrow as pa  # noqa: PLC0415 - an extra.

        return pa.schema([(column.name, column.type) for column in self.columns])

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """Yield the rows; raise NeedsOperator where maintenance has removed a file of this version."""
        for file in self.content.files:
            try:
                yield from self._of_file(file)
            except FileNotFoundError as error:
                raise NeedsOperator(
                    f"{self.name}: a file of version {self.version} is there no more: {file.path}",
                    hint="Maintenance keeps what was published within [lake] keep_days. Ask for a newer state.",
                ) from error

    def deleted(self, file: DataFile) -> list[int]:
        """Return the numbers of deleted rows of a file."""
        if file.deleted is None:
            return []
        return sorted(delta_log.deleted_rows(self._storage, self.published.path, file.deleted))

    def _of_file(self, file: DataFile) -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa  # noqa: PLC0415 - an extra.
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above.

        deleted = self.deleted(file)
        # Spark's timestamps of 96 bits go beyond what 64 bits of nanoseconds hold.
        with (
            self._storage.opened(file.path) as opened,
            pq.ParquetFile(opened, coerce_int96_timestamp_unit="us") as parquet,
        ):
            kept = bytearray(b"\1" * parquet.metadata.num_rows) if deleted else None
            for row in deleted:
                if kept is not None and row < len(kept):
                    kept[row] = 0
            there = set(parquet.schema_arrow.names)
            wanted = [column.stored for column in self.columns if column.stored in there]
            if not wanted:
                # The file is older than these columns, and any one has its number of rows.
                wanted = parquet.schema_arrow.names[:1]
            leaves = [parquet.schema.column(place) for place in range(len(parquet.schema))]
            int96 = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
            first = 0
            for batch in parquet.iter_batches(columns=wanted):
                arrays = [
                    _stored(batch, column, int96).cast(column.type)
                    if column.stored in there
                    else pa.nulls(batch.num_rows, column.type)
                    for column in self.columns
                ]
                rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
                if kept is not None:
                    part = pa.py_buffer(bytes(kept[first : first + batch.num_rows]))
                    mask = pa.Array.from_buffers(pa.uint8(), batch.num_rows, [None, part]).cast(pa.bool_())
                    rows = rows.filter(mask)
                first += batch.num_rows
                if rows.num_rows:
                    yield rows

    def reader(self) -> "pa.RecordBatchReader":
        """Return the rows as a stream of Arrow batches, which most engines take."""
        import pyarrow as pa  # noqa: PLC0415 - an extra.

        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def to_arrow(self) -> "pa.Table":
        """Return all rows in memory."""
        return self.reader().read_all()

    def to_polars(self) -> "pl.DataFrame":
        """Return all rows as Polars has them."""
        import polars as pl  # noqa: PLC0415 - the caller's.

        return pl.DataFrame(self.to_arrow())

    def to_pandas(self, **options: Any) -> "pd.DataFrame":
        """Return all rows as pandas has them; options are those of Arrow's `to_pandas`."""
        return self.to_arrow().to_pandas(**options)

    def to_duckdb(self, connection: "duckdb.DuckDBPyConnection | None" = None) -> "duckdb.DuckDBPyRelation":
        """Return a relation of DuckDB, in a connection of the caller's or DuckDB's own; it can be queried any number of times."""
        import duckdb  # noqa: PLC0415 - the caller's.

        return (connection or duckdb).from_arrow(self.to_arrow())


def _stored(batch: "pa.RecordBatch", column: Column, int96: set[str]) -> "pa.Array":
    found = batch.column(column.stored)
    return of_int96(found) if column.stored in int96 else found
