"""What records take from each of Debezium's connectors: columns by their Connect schemas, and the envelope of our own edges."""

from typing import Any, Final

from edge.debezium import binlog_values
from edge.debezium.source import Change, Source, described
from edge.debezium.unproven import Documents, Unproven
from edge.debezium.values import Convert, converter
from edge.mysql import envelope as mysql
from edge.postgres import envelope as postgres
from headrace.schema import Column

#: Names by which the driver gives types that a column gets its numbers from.
_SERIAL: Final = {"serial": "int4", "serial4": "int4", "bigserial": "int8", "serial8": "int8", "smallserial": "int2"}
#: Types whose declared length the schema record has, and those with a scale.
_WITH_LENGTH: Final = frozenset({"varchar", "bpchar", "bit", "varbit"})
_TIMES: Final = frozenset({"time", "timetz", "timestamp", "timestamptz"})
#: Digits of a second where none are declared.
_DIGITS: Final = 6
#: Of a numeric that is declared.
_MOST_DIGITS: Final = 1000


class Postgres:
    """PostgreSQL."""

    #: Whether an old row has all columns; the name of the type of a text.
    has_whole_rows, text = False, "text"

    def schema(self, source: Source) -> str:
        """Return the schema."""
        return source.schema

    def table(self, name: str, source: Source) -> postgres.Table:
        """Return what all records of a table share."""
        return postgres.Table(source=name, database=source.db, schema=source.schema, table=source.table)

    def transaction(self, epoch: int, commit: int, source: Source | None, now_ms: int) -> postgres.Transaction:
        """Return what all records of a transaction share, by the source block of its first change if there is one."""
        commit_ms, xid = (source.ts_ms, source.txId) if source is not None else (now_ms, None)
        return postgres.Transaction(
            epoch=epoch, commit=commit, commit_ms=commit_ms, xid=xid if isinstance(xid, int) else 0
        )

    def rest(self, table: Any, change: Change, transaction: Any, ordinal: int, number: int, now_ms: int) -> bytes:
        """Return what comes behind the rows of a record."""
        around = postgres.Around(
            transaction.committed, transaction.place, b"%08x" % ordinal, transaction.read(now_ms), b"%d" % number
        )
        rest: bytes = (table.for_snapshot() if change.op == "r" else table).rest(change.op.encode(), around)
        return rest

    def column(self, field: dict[str, Any], position: int, *, optional: bool) -> Column:
        """Return a column by its Connect schema."""
        name, length, scale = described(field)
        name = name.lower()
        name = _SERIAL.get(name, name)
        if name == "numeric":
            # Without a declared precision it is any.
            length, scale = (None, None) if not length or length > _MOST_DIGITS else (length, scale or 0)
        elif name in _TIMES:
            length, scale = (None if scale == _DIGITS else scale), None
        else:
            length, scale = (length if name in _WITH_LENGTH else None), None
        return Column(
            name=field["field"], type_name=name, length=length, scale=scale, position=position, optional=optional
        )

    def converter(self, field: dict[str, Any], column: Column) -> Convert:
        """Return what makes a record's value of Debezium's."""
        return converter(field, column.type_name)


class Binlog:
    """MySQL, or MariaDB."""

    has_whole_rows, text = True, "TEXT"

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def schema(self, source: Source) -> str:
        """Return the database: there are no schemas."""
        return source.db

    def table(self, name: str, source: Source) -> mysql.Table:
        """Return what all records of a table share."""
        return mysql.Table(connector=self._kind, source=name, database=source.db, table=source.table)

    def transaction(self, epoch: int, commit: int, source: Source | None, now_ms: int) -> mysql.Transaction:
        """Return what all records of a transaction share."""
        source = source or Source(ts_ms=now_ms)
        return mysql.Transaction(
            epoch=epoch, commit=commit, commit_us=source.ts_ms * 1000, server_id=source.server_id, gtid=source.gtid,
            file=source.file,
        )  # fmt: skip

    def rest(self, table: Any, change: Change, transaction: Any, ordinal: int, number: int, now_ms: int) -> bytes:
        """Return what comes behind the rows of a record."""
        middle = table.middle(transaction, copied=change.op == "r")
        end = mysql.end(change.op.encode(), transaction, now_ms)
        # A truncate's has no rows: Debezium's number is that of a row before it.
        row = 0 if change.op == "t" else change.source.row
        return b"%b%d%b%08x%b%d}}" % (middle, row, transaction.place, ordinal, end, number)

    def column(self, field: dict[str, Any], position: int, *, optional: bool) -> Column:
        """Return a column by its Connect schema, which says of each whether it is NOT NULL."""
        optional = optional and bool(field.get("optional"))
        return binlog_values.column(field, described(field), position, self._kind, optional=optional)

    def converter(self, field: dict[str, Any], column: Column) -> Convert:
        """Return what makes a record's value of Debezium's."""
        return binlog_values.converter(field, column)


Connector = Postgres | Binlog | Unproven
CONNECTORS: Final[dict[str, Connector]] = {
    "postgres": Postgres(),
    "mysql": Binlog("mysql"),
    "mariadb": Binlog("mariadb"),
    **{kind: Unproven(kind) for kind in ("sqlserver", "oracle", "db2")},
    "mongodb": Documents("mongodb"),
}
