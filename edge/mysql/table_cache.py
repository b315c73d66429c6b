"""The tables of a source: which are captured, and how each is decoded, by the table maps that the log brings.

Guarantees that the same description is compiled once, and that a table's schema record goes ahead again when the table is
described otherwise. Queries the catalog only for what the log does not have: which character set a collation is of, whether
bytes are an address or a UUID, and which columns are the period of a table with versions.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, Literal, NamedTuple

from edge.mysql import envelope, values
from edge.mysql.column_codec import ColumnCodec, Place, code, for_key, treated, without_zero_dates
from edge.mysql.column_text import BINARY, statement_text
from edge.mysql.coverage import SYSTEM, Chosen
from edge.mysql.ddl import Name, Statement, read_statement
from edge.mysql.debezium_types import with_debezium_form
from edge.mysql.events import Query
from edge.mysql.generated_columns import GeneratedColumns, SystemVersioning, may_have_period, period
from edge.mysql.rows import Table
from edge.mysql.snapshot_rows import Rows, taken
from edge.mysql.snapshot_table import SnapshotTable
from edge.mysql.table_map import Field, TableMap, parse_names, readings, signs, year_has_sign
from edge.records.alterations import Catalog
from edge.records.column_policy import LeftOut, NoForm, Policy
from headrace.configuration.edge import Records
from headrace.errors import NeedsOperator

_log = logging.getLogger(__name__)

#: The columns of every SEQUENCE.
_SEQUENCE: Final = (
    "next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment", "cache_size", "cycle_option",
    "cycle_count",
)  # fmt: skip
#: Descriptions that are remembered.
_MOST = 5000
#: Lengths of addresses and UUIDs, which the log shows as bytes.
_ADDRESS_LENGTHS: Final = frozenset({4, 16})


class Copied(NamedTuple):
    """A table that is copied: how the source selects it, what the log would make of it, and how its rows become records."""

    source: SnapshotTable
    table: Table
    rows: Rows


class TableCache:
    """The tables by their descriptions in the log."""

    def __init__(
        self,
        *,
        connector: str,
        source: str,
        chosen: Chosen,
        policy: Policy,
        zero_dates: Literal["text", "null"] = "text",
        records: Records,
        charset_of: Callable[[int], str],
        kinds_of: Callable[[str, str], dict[str, str]],
        type_of: Callable[[str, str], str],
        lower_case: bool = False,
        filled_of: Callable[[str, str], dict[str, bool]] = lambda _database, _table: {},
        names_of: Callable[[], list[Name]] = list,
        warn: Callable[[str, str], None] = lambda _name, _words: None,
        signs_of: Callable[[str, str], dict[str, bool]] = lambda _database, _table: {},
        generated_of: Callable[[str, str], Collection[str]] | None = None,
    ) -> None:
        """`names_of`: database and name of all tables that the catalog has.

        `type_of`: what kind of table the catalog has under a database and a name, empty where it has none.

        `filled_of`: of each of a table's columns, whether rows that are there when it is added have a value in it.

        `lower_case`: the server keeps names of tables in lower case, however statements write them.

        `warn`: takes a warning for the status, with its name.

        `signs_of`: of each of a table's columns, whether it is unsigned by the catalog.

        `generated_of`: the columns of a table that the server leaves out of updates and deletes, by the catalog; None where
        it logs all.
        """
        self._generated_of = generated_of
        self._signs_of = signs_of
        #: As edge/mysql/table_map.py has it, of the server that wrote the log.
        self._year_has_sign: bool | None = True
        self._warn, self._replaced = warn, set[str]()
        self._connector, self._source, self.chosen, self._policy = connector, source, chosen, policy
        self._charset_of, self._kinds_of, self._zero_dates = charset_of, kinds_of, zero_dates
        self._records = records
        self._names_of = names_of
        self._type_of, self._lower_case, self._filled_of = type_of, lower_case, filled_of
        #: Sequences that the log had changes of, by database and name.
        self._sequences: set[tuple[str, str]] = set()
        self._described: dict[bytes, Table | None] = {}
        # What was described last, as long as it is what its table is.
        self._last: tuple[bytes, Table | None] = (b"", None)
        self._current: dict[tuple[str, str], Table] = {}

    def note_version(self, version: str) -> None:
        """Note the version of the server that writes what follows of the log: after an upgrade it is another one."""
        has_sign = year_has_sign(version)
        if has_sign != self._year_has_sign:
            self._year_has_sign, self._last = has_sign, (b"", None)
            self._described.clear()

    def forget_generated(self) -> None:
        """Note that a table may be defined otherwise, where the log does not show which columns are generated."""
        if self._generated_of is not None:
            self._last = b"", None
            self._described.clear()

    def decode_table_map(self, body: bytes) -> Table | None:
        """Return the table that a table map event's body describes, None when it is not captured."""
        # The table's number and flags may differ where everything else is the same.
        description = body[8:]
        last, table = self._last
        if description == last:
            return table
        if description in self._described:
            table = self._described[description]
            if table is not None:
                self._make_current(table)
            self._last = description, table
            return table
        if len(self._described) >= _MOST:
            self._described.clear()
        table = self._capture(body)
        if table is not None:
            self._make_current(table)
        self._described[description] = table
        self._last = description, table
        return table

    def _describe(self, body: bytes) -> TableMap:
        """Return the table that a table map event describes; raise NoForm where its columns' signs are not known."""
        tables = readings(body, mariadb=self._connector == "mariadb", year_has_sign=self._year_has_sign)
        if len(tables) > 1:
            catalog = self._signs_of(tables[0].database, tables[0].table)
            tables = [each for each in tables if signs(each).items() <= catalog.items()]
        if len(tables) != 1:
            raise NoForm("the log does not show which of its columns behind a YEAR have a sign")
        return tables[0]

    def _capture(self, body: bytes) -> Table | None:
        database, name, _ = parse_names(body)
        # Of a table that is not captured nothing else has to be understood.
        if not self.chosen(database, name):
            return None
        described = self._describe(body)
        if self._is_sequence(described):
            return None
        try:
            return self._compile(described)
        except LeftOut as problem:
            _log.warning("%s. %s", problem.message, problem.hint)
            return None

    def statement(self, query: Query) -> tuple[str, Statement]:
        """Return a statement's text and what it means."""
        words = query.words
        # Every client's character set has ASCII.
        charset = "ascii" if query.collation is None or words.isascii() else self._charset_of(query.collation)
        text = statement_text(words, charset)
        return text, read_statement(text, query.sql_mode, query.database, lower_case=self._lower_case)

    def captures(self, database: str, table: str) -> bool:
        """Return whether changes of a table that a statement names are captured."""
        return self.chosen(database, table) and (database, table) not in self._sequences

    def is_changed_by(self, statement: Statement) -> bool:
        """Return whether a statement that changed rows may have changed those of a captured table."""
        if not statement.tables:
            return True
        return any(database not in SYSTEM and self.captures(database, table) for database, table in statement.tables)

    def all_captured(self) -> set[Name]:
        """Return the captured tables that the catalog has now, and those that this session had changes of."""
        return {name for name in (*self._names_of(), *self._current) if self.captures(*name)}

    def renew_schema(self, database: str, table: str) -> None:
        """Have the schema record of a table go ahead of its next change again."""
        current = self._current.get((database, table))
        if current is not None:
            current.schema_sent = False

    def emptied(self, database: str, table: str) -> Table:
        """Return a captured table that loses its rows.

        A table that no change of this session came from is described by nothing but its name.
        """
        current = self._current.get((database, table))
        if current is None:
            bare = TableMap(database=database, table=table, fields=(), key=(), is_full=True)
            current = Table(bare, [], self.shared(database, table))
            current.schema_sent = True
        return current

    @property
    def no_table(self) -> envelope.Table:
        """What records share that are about no table."""
        return self.shared("", "")

    def copied(self, source: SnapshotTable) -> Copied:
        """Return a table that the catalog describes, which changes nothing here. Raises as `of` does."""
        described = source.described
        codecs = []
        for field, column in zip(described.fields, source.columns, strict=True):
            where, of = self._place(described, field), column.charset or BINARY
            codec = code(field, lambda _, of=of: of, column.data_type, where)  # type: ignore[misc]
            codecs.append(taken(codec, field, column, where.name))
        codecs = [
            codec._replace(policy="exclude") if field.name in source.left_out else codec
            for field, codec in zip(described.fields, self._hidden(described, codecs), strict=True)
        ]
        table = self._make(described, codecs)
        return Copied(source, table, Rows([field.name for field in described.fields], codecs, list(source.places)))

    def current_table(self, copied: Copied) -> Table:
        """Return the table that rows put into the stream now belong to: the stream's own, unless it has another shape."""
        table = copied.table
        current = self._current.get((table.schema.schema, table.schema.table))
        if current is not None and current.schema == table.schema:
            return current
        self._make_current(table)
        return table

    def _make_current(self, table: Table) -> None:
        name = table.schema.schema, table.schema.table
        former = self._current.get(name)
        self._last = b"", None
        if former is not table:
            table.schema_sent = former is not None and former.schema_sent and former.schema == table.schema
            self._current[name] = table

    def _is_sequence(self, described: TableMap) -> bool:
        """Return whether this is a SEQUENCE of MariaDB's, which the log describes as a table.

        One that was dropped since is known by its columns alone.
        """
        name = described.database, described.table
        if tuple(field.name for field in described.fields) != _SEQUENCE or self._type_of(*name) == "BASE TABLE":
            self._sequences.discard(name)
            return False
        self._sequences.add(name)
        return True

    def _compile(self, described: TableMap) -> Table:
        where = f"{described.database}.{described.table}"
        if not described.is_full:
            raise NeedsOperator(
                f"the log does not name the columns of {where}: binlog_row_metadata was not FULL",
                hint="Run as an administrator: set global binlog_row_metadata = 'FULL'; and keep it in the server's "
                "configuration. Then start a new epoch: 'headrace edge init' in an empty state folder.",
            )
        kinds: dict[str, str] = {}
        versioned = self._connector == "mariadb" and may_have_period(described)
        if versioned or any(
            field.type == values.STRING and field.collation == values.BINARY and field.meta in _ADDRESS_LENGTHS
            for field in described.fields
        ):
            kinds = self._kinds_of(described.database, described.table)
        left_out = self._find_left_out(described)
        codes = [
            # Nothing of a column that is left out has to be understood but where it ends.
            code(replace(field, collation=values.BINARY) if field.name in left_out else field, self._charset_of,
                 kinds.get(field.name, ""), self._place(described, field))
            for field in described.fields
        ]  # fmt: skip
        shown = self._hidden(described, codes)
        generated = self._find_generated(described)
        for number in generated:
            shown[number] = codes[number]._replace(policy="exclude")
        absent = GeneratedColumns(codes, generated) if generated else None
        columns = period(described, kinds) if versioned else None
        if columns is None:
            return self._make(described, shown, generated=absent, depends_on_catalog=bool(kinds or generated))
        start, end = columns
        for number in columns:
            shown[number] = codes[number]._replace(policy="exclude")
        key = tuple(name for name in described.key if name != described.fields[end].name)
        versions = SystemVersioning(codes, start, end)
        return self._make(replace(described, key=key), shown, versions, absent, depends_on_catalog=True)

    def _find_generated(self, described: TableMap) -> list[int]:
        """Return where columns are that the server leaves out of updates and deletes."""
        if self._generated_of is None:
            return []
        names = frozenset(self._generated_of(described.database, described.table))
        generated = [number for number, field in enumerate(described.fields) if field.name in names]
        # Of a table that has no others, changes are not followed.
        return generated if len(generated) < len(described.fields) else []

    def _place(self, described: TableMap, field: Field) -> Place:
        return Place(f"{described.database}.{described.table}.{field.name}", self._report_replaced)

    def _report_replaced(self, column: str) -> None:
        """Report once a column that holds bytes which are no characters of its character set."""
        if column not in self._replaced:
            self._replaced.add(column)
            words = f"column {column} holds bytes that are no characters of its character set: records have U+FFFD in their place"
            _log.warning("%s", words)
            self._warn(f"text of {column}", words)

    def _find_left_out(self, described: TableMap) -> set[str]:
        names = [field.name for field in described.fields]
        treatments = self._policy.treatments(described.database, described.table, names, described.key)
        return {
            name
            for name, treatment in zip(names, treatments, strict=True)
            if treatment is not None and treatment.action == "exclude"
        }

    def _make(
        self,
        described: TableMap,
        codes: list[ColumnCodec],
        versions: SystemVersioning | None = None,
        generated: GeneratedColumns | None = None,
        *,
        depends_on_catalog: bool = False,
    ) -> Table:
        """Return a table that queries the catalog for its columns where its history needs that."""
        table = Table(described, codes, self.shared(described.database, described.table), versions, generated)

        def catalog() -> Catalog | None:
            filled = self._filled_of(described.database, described.table)
            return Catalog({}, filled) if all(field.name in filled for field in described.fields) else None

        table.description = table.description._replace(catalog=catalog, depends_on_catalog=depends_on_catalog)
        return table

    def _hidden(self, described: TableMap, codes: list[ColumnCodec]) -> list[ColumnCodec]:
        """Return the codecs as settings and policy require."""
        fields = described.fields
        codes = [for_key(it) if field.name in described.key else it for field, it in zip(fields, codes, strict=True)]
        if self._zero_dates == "null":
            codes = [without_zero_dates(codec) for codec in codes]
        names = [field.name for field in described.fields]
        treatments = self._policy.treatments(described.database, described.table, names, described.key)
        shown = [
            codec if treatment is None else treated(codec, treatment)
            for codec, treatment in zip(codes, treatments, strict=True)
        ]
        return [
            with_debezium_form(
                codec,
                self._records,
                f"{described.database}.{described.table}.{field.name}",
                nullable=field.nullable,
                in_key=field.name in described.key,
            )
            for field, codec in zip(described.fields, shown, strict=True)
        ]

    def shared(self, database: str, table: str) -> envelope.Table:
        """Return what all records of a table share, known or not."""
        return envelope.Table(connector=self._connector, source=self._source, database=database, table=table)
