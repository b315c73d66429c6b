"""A table that is copied: what the catalog has of it, and the statements that read it in key order.

Guarantees that rows are ordered and compared by the server alone, in the key's own types and collations; that a description is
of one moment, whose sum every chunk has to fit; that a chunk is read by the key's index, independently of statistics. Called by
the snapshot's reader.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from edge.mysql.connection import Database
from edge.mysql.snapshot_columns import CATALOGUED, Catalogued, KeyColumn, field, quoted, selected
from edge.mysql.table_map import TableMap
from edge.snapshot.chunk_reader import where_clause
from edge.snapshot.plan import Key
from headrace.errors import NeedsOperator

_TABLES = "select table_schema, table_name from information_schema.tables where table_type in ('BASE TABLE', 'SYSTEM VERSIONED')"
_NAMED = "select table_type, table_rows from information_schema.tables where table_schema = %s and table_name = %s"
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

    @property
    def name(self) -> str:
        """The table in SQL."""
        return f"{quoted(self.described.database)}.{quoted(self.described.table)}"

    def select_after(self, where: str | None, after: Key | None, count: int) -> str:
        """Return the statement that selects rows behind a key, in key order."""
        behind = self._behind(after) if after is not None else None
        return self._select([where, behind], f" limit {count}")

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
    found = database.rows(_NAMED, of, table)
    if found and found[0][0] not in {"BASE TABLE", "SYSTEM VERSIONED"}:
        raise NeedsOperator(f"{where} is a {found[0][0]}, not a table", hint="Name tables of the source.")
    if not found:
        raise NeedsOperator(
            f"table {where} does not exist, or the user may not select from it",
            hint=f"Check its name: database.table, as the server has it. Otherwise: grant select on {name} to the user.",
        )
    before = shape(database, name)
    rows = database.rows(_COLUMNS, of, table)
    columns = tuple(Catalogued(*row).as_logged(mariadb=database.is_mariadb) for row in rows)
    names = [column.name for column in columns]
    index, key = _key(database, name, where, names)
    described = TableMap(
        database=of,
        table=table,
        fields=tuple(field(column, f"{where}.{column.name}") for column in columns),
        key=tuple(key),
        is_full=True,
    )
    places = tuple(names.index(column) for column in key)
    keyed = tuple(KeyColumn.from_catalog(columns[place]) for place in places)
    made = SnapshotTable(described=described, columns=columns, key=keyed, places=places, index=index, shape=before)
    return made, int(found[0][1] or 0)


def _key(database: Database, name: str, where: str, columns: list[str]) -> tuple[str, list[str]]:
    """Return the index that the log takes for the key, and its columns: the primary key, or the first that is as good."""
    indexes: dict[str, list[dict[str, object]]] = {}
    for row in database.dictionaries(f"show index from {name}"):
        # The end of a period distinguishes former rows, and is the same in all current ones.
        if row["Column_name"] is None or row["Column_name"] in columns:
            indexes.setdefault(str(row["Key_name"]), []).append(row)
    for index, parts in sorted(indexes.items(), key=lambda it: it[0] != "PRIMARY"):
        unique = all(not part["Non_unique"] and part["Null"] != "YES" and part["Column_name"] for part in parts)
        if index == "PRIMARY" or (unique and all(part["Sub_part"] is None for part in parts)):
            return index, [str(part["Column_name"]) for part in parts]
    raise NeedsOperator(
        f"table {where} has no key, so its rows cannot be distinguished",
        hint="Give it a primary key, or a unique index over columns that are not null; then request the snapshot again.",
    )
