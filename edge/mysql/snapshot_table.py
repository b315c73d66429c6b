"""A table that is copied: what the catalog has of it, and the statements that read it in key order.

Guarantees that rows are ordered and compared by the server alone, in the key's own types and collations; that a description is
of one moment, whose sum every chunk has to fit; that a chunk is read by the key's index, independently of statistics. Called by
the snapshot's reader.

A condition in SQL that is true of the rows with given keys, as records have keys (docs/mariadb.md).
"""

import base64
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from edge.mysql import column_text
from edge.mysql.connection import Database
from edge.mysql.coverage import generated_columns, leaves_generated_out
from edge.mysql.snapshot_rows import CATALOGUED, Catalogued, KeyColumn, field, quoted, selected
from edge.mysql.table_map import TableMap
from edge.snapshot.chunk_reader import check_keys, unclear, where_clause
from edge.snapshot.plan import Key
from headrace.configuration.edge import Records
from headrace.errors import NeedsOperator

_TABLES = "select table_schema, table_name from information_schema.tables where table_type in ('BASE TABLE', 'SYSTEM VERSIONED')"
_NAMED = "select table_type, table_rows from information_schema.tables where table_schema = %s and table_name = %s"
_ENGINE = """
    select e.transactions from information_schema.tables t join information_schema.engines e on e.engine = t.engine
    where t.table_schema = %s and t.table_name = %s
"""
#: Without the period of a table with versions, which no record has.
_COLUMNS = f"""
    select {CATALOGUED} from information_schema.columns where table_schema = %s and table_name = %s
        and coalesce(generation_expression, '') not in ('ROW START', 'ROW END') order by ordinal_position
"""  # noqa: S608
#: It changes with every row.
_COUNTER = re.compile(r" AUTO_INCREMENT=\d+")


@dataclass(frozen=True, kw_only=True)
class SnapshotTable:
    """A table that can be copied."""

    #: The table as the log would describe it, and its columns as the catalog does.
    described: TableMap
    columns: tuple[Catalogued, ...]
    #: The key's columns in order, and where they are among the columns.
    key: tuple[KeyColumn, ...]
    places: tuple[int, ...]
    #: The index that leads to a chunk.
    index: str
    #: A sum over all that a chunk has to fit.
    shape: str
    #: Columns that no record has, as the server leaves them out of updates and deletes.
    left_out: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The table in SQL."""
        return f"{quoted(self.described.database)}.{quoted(self.described.table)}"

    def select_after(self, where: str | None, after: Key | None, count: int) -> str:
        """Return the statement that selects rows behind a key, in key order."""
        behind = self._behind(after) if after is not None else None
        return self._select([where, behind], f" limit {count}")

    def select_all(self) -> str:
        """Return the statement that selects all rows, in no order."""
        # Names are quoted.
        return f"select {', '.join(map(selected, self.columns))} from {self.name}"  # noqa: S608

    def select_keys(self, where: str | None, keys: list[Key]) -> str:
        """Return the statement that selects the rows of these keys."""
        return self._select([where, " or ".join(f"({self._is(key)})" for key in keys)], "")

    def matching(self, where: str) -> str:
        """Return the statement that selects something for each row that a condition is true of."""
        return f"select 1 from {self.name}{where_clause([where])}"  # noqa: S608

    def key_of(self, row: list[bytes | None]) -> Key:
        """Return the key of a row that one of the statements selected, ahead of it what it is ordered by."""
        extra = iter(row[len(self.columns) :])
        values = [row[place] if column.selected is None else next(extra) for column, place in self._keyed()]
        return [self._order, *(column.text(value or b"") for column, value in zip(self.key, values, strict=True))]

    @property
    def _order(self) -> str:
        return ", ".join(column.declared for column in self.key)

    def _literals(self, key: Key) -> list[tuple[str, str]]:
        """Return the key's columns and values in SQL; raise NeedsOperator for a key of another order."""
        order, *texts = key
        if order != self._order or len(texts) != len(self.key):
            raise NeedsOperator(
                f"the key of {self.described.database}.{self.described.table} was altered while the table was copied: "
                f"it was {order}, and is {self._order}",
                hint="Request the snapshot again: it cannot continue in another order.",
            )
        return [(column.name, column.literal(text)) for column, text in zip(self.key, texts, strict=True)]

    def _keyed(self) -> Iterator[tuple[KeyColumn, int]]:
        return zip(self.key, self.places, strict=True)

    def _select(self, conditions: list[str | None], rest: str) -> str:
        # Names are quoted, values are literals; a condition is the operator's own.
        listed = ", ".join(
            [*map(selected, self.columns), *(column.selected for column in self.key if column.selected is not None)]
        )
        order = ", ".join(column.name for column in self.key)
        source = f"{self.name} force index ({quoted(self.index)})"
        return f"select {listed} from {source}{where_clause(conditions)} order by {order}{rest}"  # noqa: S608

    def _behind(self, after: Key) -> str:
        """Return the condition on rows behind a key, in a form that leads into the index for every number of columns."""
        pairs = self._literals(after)
        name, literal = pairs[-1]
        behind = f"{name} > {literal}"
        for name, literal in reversed(pairs[:-1]):
            behind = f"{name} >= {literal} and ({name} > {literal} or ({name} = {literal} and {behind}))"
        return behind

    def _is(self, key: Key) -> str:
        return " and ".join(f"{name} = {literal}" for name, literal in self._literals(key))


def listed(database: Database) -> list[tuple[str, str]]:
    """Return all tables, by database and name."""
    return sorted((str(of), str(name)) for of, name in database.rows(_TABLES))


def shape(database: Database, name: str) -> str:
    """Return a sum over all that a chunk has to fit; `name` is the table in SQL."""
    return _COUNTER.sub("", str(database.rows(f"show create table {name}")[0][1]))


def describe(database: Database, of: str, table: str) -> tuple[SnapshotTable, int]:
    """Return a table and how many rows it has by statistics; raise NeedsOperator when it cannot be copied."""
    where = f"{of}.{table}"
    name = f"{quoted(of)}.{quoted(table)}"
    tables = database.rows(_NAMED, of, table)
    if tables and tables[0][0] not in {"BASE TABLE", "SYSTEM VERSIONED"}:
        raise NeedsOperator(f"{where} is a {tables[0][0]}, not a table", hint="Name tables of the source.")
    if not tables:
        raise NeedsOperator(
            f"table {where} does not exist, or the user may not select from it",
            hint=f"Check its name: database.table, as the server has it. Otherwise: grant select on {name} to the user.",
        )
    before = shape(database, name)
    rows = database.rows(_COLUMNS, of, table)
    columns = tuple(Catalogued(*row).as_logged(mariadb=database.is_mariadb) for row in rows)
    names = [column.name for column in columns]
    index, key = _key(database, name, names)
    if not key and not _has_moments(database, of, table):
        raise NeedsOperator(
            f"table {where} has no key, and its engine knows no snapshots: its rows are of no one moment",
            hint="Give it a primary key, or make it a table of InnoDB; then request the snapshot again.",
        )
    described = TableMap(
        database=of,
        table=table,
        fields=tuple(field(column, f"{where}.{column.name}") for column in columns),
        key=tuple(key),
        is_full=True,
    )
    places = tuple(names.index(column) for column in key)
    keyed = tuple(KeyColumn.from_catalog(columns[place]) for place in places)
    left_out = frozenset(generated_columns(database, of, table) if leaves_generated_out(database) else ())
    copied = SnapshotTable(
        described=described, columns=columns, key=keyed, places=places, index=index, shape=before, left_out=left_out
    )
    return copied, int(tables[0][1] or 0)


def _has_moments(database: Database, of: str, table: str) -> bool:
    """Whether a snapshot holds the rows of a table still."""
    return database.rows(_ENGINE, of, table) == [("YES",)]


def _key(database: Database, name: str, columns: list[str]) -> tuple[str, list[str]]:
    """Return the index that the log takes for the key, and its columns: the primary key, the first that is as good, or none."""
    indexes: dict[str, list[dict[str, object]]] = {}
    for row in database.dictionaries(f"show index from {name}"):
        # The end of a period distinguishes former rows, and is the same in all current ones.
        if row["Column_name"] is None or row["Column_name"] in columns:
            indexes.setdefault(str(row["Key_name"]), []).append(row)
    for index, parts in sorted(indexes.items(), key=lambda it: it[0] != "PRIMARY"):
        unique = all(not part["Non_unique"] and part["Null"] != "YES" and part["Column_name"] for part in parts)
        if index == "PRIMARY" or (unique and all(part["Sub_part"] is None for part in parts)):
            return index, [str(part["Column_name"]) for part in parts]
    return "", []


_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_BYTES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_NUMBERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year"})
#: Written between quotes without escapes, after a check of what is in it.
_QUOTED = frozenset({"date", "time", "datetime", "timestamp", "uuid", "inet4", "inet6"})
_TIMES = frozenset({"date", "time", "datetime"})
_PLAIN = re.compile(r"[0-9a-fA-F:.T -]+Z?", re.ASCII)
_DECIMAL = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_BITS = re.compile(r"[01]+")
_FLOAT = struct.Struct("<f")


def condition(database: Database, name: str, keys: list[dict[str, Any]], records: Records) -> str:
    """Return the condition; raise NeedsOperator for a table that cannot be copied, and for keys that are not its own."""
    of, _, table = name.partition(".")
    source, _ = describe(database, of, table)
    columns = [source.columns[place] for place in source.places]
    names = [column.name for column in columns]
    for column in columns:
        if _has_form(column.data_type, records):
            raise unclear(name, f"{column.name!r} is written in one of Debezium's forms")
    check_keys(name, keys, names)
    rows = [
        " and ".join(f"{quoted(column.name)} = {_literal(column, key[column.name], name)}" for column in columns)
        for key in keys
    ]
    return " or ".join(f"({row})" for row in rows)


def _has_form(kind: str, records: Records) -> bool:
    """Whether values of a type are written in a form from which its text is not made again."""
    return (
        (kind == "decimal" and records.decimal != "string")
        or (kind in _TIMES and records.time != "iso")
        or (kind in _BYTES and records.binary != "base64")
    )


def _literal(column: Catalogued, value: Any, name: str) -> str:
    """Return a value of a record as SQL takes it."""
    kind = column.data_type
    try:
        literal = _text(column, kind, value, name) if isinstance(value, str) else _number(kind, value)
    except (ValueError, OverflowError) as error:
        raise unclear(name, f"a value cannot be one of {column.name!r}") from error
    if literal is None:
        raise unclear(name, f"a value cannot be one of {column.name!r}")
    return literal


def _number(kind: str, value: Any) -> str | None:
    if isinstance(value, bool):
        return None
    if kind in _NUMBERS and isinstance(value, int):
        return str(value)
    if kind in {"float", "double"} and isinstance(value, int | float):
        # Columns of single precision are compared in double.
        exact = _FLOAT.unpack(_FLOAT.pack(value))[0] if kind == "float" else float(value)
        return f"{exact!r}" if "e" in repr(exact) else f"{exact!r}e0"
    return None


def _text(column: Catalogued, kind: str, value: str, name: str) -> str | None:
    if kind in _TEXTS and column.charset is not None and column.charset != column_text.BINARY:
        utf8 = column.charset in column_text.UTF8
        codec = "utf-8" if utf8 else column_text.decoder(column.charset, f"{name}.{column.name}")
        return f"_{column.charset} x'{value.encode(codec).hex()}'"
    if kind in _BYTES | _TEXTS:
        return f"x'{base64.b64decode(value, validate=True).hex()}'"
    if kind in {"enum", "set"}:
        return f"_utf8mb4 x'{value.encode().hex()}'"
    return _written(kind, value)


def _written(kind: str, value: str) -> str | None:
    """Return a text that SQL takes nearly as it is."""
    if kind == "decimal" and _DECIMAL.fullmatch(value):
        return value
    if kind == "bit" and _BITS.fullmatch(value):
        return f"b'{value}'"
    if kind in _QUOTED and _PLAIN.fullmatch(value):
        # The session's time zone is UTC.
        return f"'{value.removesuffix('Z').replace('T', ' ')}'"
    return None
