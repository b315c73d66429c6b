"""SQL for DuckDB: a view of each table over the Parquet files of its published version, without extensions of DuckDB's.

A view selects columns by their names in the files, in the types that the table has now, and leaves deleted rows out by their
numbers. Called by lake.py.
"""

from collections.abc import Iterable

from headrace.lake.arrow_types import Column
from headrace.lake.delta_log import DataFile
from headrace.lake.storage import Storage
from headrace.lake.table import LakeTable

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


def script(storage: Storage, tables: Iterable[LakeTable]) -> str:
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
