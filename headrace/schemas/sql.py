"""A table as a CREATE TABLE statement of PostgreSQL's, for a sink that wants the table to be there.

Types are those of the source where PostgreSQL has them by itself, and text for all others (types of extensions and of users).
Only the key is NOT NULL: a sink may write a row of which the log carries the key alone.
"""

from typing import Final

from headrace.schema import Column, TableSchema

_TYPES: Final = {
    "int2": "smallint", "int4": "integer", "int8": "bigint", "oid": "bigint", "float4": "real", "float8": "double precision",
    "bool": "boolean", "timestamptz": "timestamp with time zone", "timetz": "time with time zone",
    **{name: name for name in (
        "text", "name", "date", "time", "timestamp", "interval", "uuid", "json", "jsonb", "xml", "bytea", "inet", "cidr",
        "macaddr", "macaddr8", "money", "numeric", "point", "tsvector", "int4range", "int8range", "numrange", "tsrange",
        "tstzrange", "daterange",
    )},
    "TINYINT": "smallint", "TINYINT UNSIGNED": "smallint", "SMALLINT": "smallint", "SMALLINT UNSIGNED": "integer",
    "MEDIUMINT": "integer", "MEDIUMINT UNSIGNED": "integer", "INT": "integer", "INT UNSIGNED": "bigint", "BIGINT": "bigint",
    "BIGINT UNSIGNED": "numeric(20)", "YEAR": "integer", "FLOAT": "real", "DOUBLE": "double precision", "DECIMAL": "numeric",
    "DATE": "date", "DATETIME": "timestamp", "TIMESTAMP": "timestamp with time zone", "JSON": "json",
    **dict.fromkeys(("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "GEOMETRY"), "bytea"),
}  # fmt: skip
_WITH_LENGTH: Final = {"varchar": "varchar", "bpchar": "char", "VARCHAR": "varchar", "CHAR": "char"}


def create_table(schema: TableSchema) -> str:
    """Return the statement, with a semicolon."""
    lines = [f"    {_quoted(column.name)} {_type(column)}{_constraint(column, schema)}" for column in schema.columns]
    if schema.key:
        lines.append(f"    primary key ({', '.join(map(_quoted, schema.key))})")
    return f"create table {_quoted(schema.schema)}.{_quoted(schema.table)} (\n" + ",\n".join(lines) + "\n);"


def _type(column: Column) -> str:
    name = column.type_name
    if column.policy is not None:
        return "text"
    is_array = name.startswith("_")
    name = name.removeprefix("_")
    if name in _WITH_LENGTH:
        found = "text" if column.length is None else f"{_WITH_LENGTH[name]}({column.length})"
    else:
        found = _TYPES.get(name, "text")
        if found == "numeric" and column.length is not None:
            found = f"numeric({column.length}, {column.scale or 0})"
    return f"{found}[]" if is_array else found


def _constraint(column: Column, schema: TableSchema) -> str:
    return " not null" if column.name in schema.key else ""


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
