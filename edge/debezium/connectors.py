"""What records take from each of Debezium's connectors: columns by their Connect schemas, and the envelope of our own edges.

Those for SQL Server, Oracle, Db2 and MongoDB are experimental, and were never run against a server by us. Their logs have no
record of where a transaction ends, and two may commit at one place. So what is one transaction there is all changes of one place,
in the order in which the connector reads them, which is that of the log: by change LSN and serial number, by SCN and redo
address, or in MongoDB's by its resume token. It is whole once a change or a heartbeat of a later place comes, or a second
heartbeat in a row: Debezium sends one after a change at once, and the next when it has looked and found nothing. MongoDB's cursor
finds nothing between two parts of a large transaction too: its heartbeats have to be of a later place. Db2's connector sends no
heartbeat while it finds nothing: a place of its log is whole, too, after 30 s in which nothing came (edge/debezium/stream.py).
"""

import re
from base64 import b64decode
from typing import Any, Final

import msgspec
from msgspec import json

from edge.debezium.frames import Change, Source, described
from edge.debezium.values import Convert, binlog_column, binlog_converter, converter
from edge.mysql import envelope as mysql
from edge.postgres import envelope as postgres
from edge.records.envelope import TableNames
from headrace.position import commit_text
from headrace.schema import Column

#: Three parts, as SQL Server prints them; Db2's last part is longer on some platforms.
_LSN: Final = re.compile(r"[0-9a-f]{8}:[0-9a-f]{8}:([0-9a-f]{4}|[0-9a-f]{16})")
_NO_LSN: Final = (None, "NULL")
#: The lowest place ahead of which a copy has positions.
_FIRST: Final = 2
#: MongoDB's resume token as BSON: a text of hexadecimal digits, which begins with a time of the cluster and its order.
_TOKEN: Final = re.compile(rb"\x02_data\0.{4}(82[0-9A-F]{16}[0-9A-F]*)\0", re.DOTALL | re.IGNORECASE)
#: What a record's source block has besides, where Debezium's has it.
_OWN: Final = (
    "txId", "change_lsn", "commit_lsn", "event_serial_no", "scn", "commit_scn", "rs_id", "ssn", "redo_thread", "ord", "lsid",
    "txnNumber",
)  # fmt: skip
_NUMERIC: Final = frozenset({"DECIMAL", "NUMERIC", "NUMBER", "MONEY", "SMALLMONEY"})
#: Types by what Connect's schema has, as PostgreSQL names them.
_TYPES: Final = {
    "int8": "int2", "int16": "int2", "int32": "int4", "int64": "int8", "float": "float4", "double": "float8",
    "boolean": "bool", "bytes": "bytea", "io.debezium.time.IsoDate": "date", "io.debezium.time.IsoTime": "time",
    "io.debezium.time.IsoTimestamp": "timestamp", "io.debezium.time.ZonedTimestamp": "timestamptz",
}  # fmt: skip
#: The only column of a collection besides its key.
_DOCUMENT: Final = "document"


def lsn(text: str) -> int:
    """Return an LSN as a number: of 80 bits, or 128; raise ValueError where it is none."""
    if not _LSN.fullmatch(text):
        raise ValueError("no LSN")
    return int(text.replace(":", ""), 16)


def _number(text: str | None) -> int:
    return int((text or "0").replace(":", ""), 16)


def commit_scn(text: str) -> int:
    """Return the newest commit of any redo thread: `SCN:THREAD:TRANSACTIONS,…`, or one SCN alone."""
    return max(int(each.partition(":")[0]) for each in text.split(","))


def token(offset: dict[str, Any]) -> str:
    """Return the digits of an offset's resume token, which sort as the log does; raise ValueError where it is none."""
    match = _TOKEN.search(b64decode(offset["resume_token"]))
    if match is None:
        raise ValueError("no resume token")
    return match[1].decode().upper()


def offset_place(offset: dict[str, Any]) -> int:
    """Return the place of an offset of any of the four: up to there all is read, or a part of what is at it."""
    if "sec" in offset:
        if int(offset["sec"]) < 0:
            # Of an idle server the heartbeat has the token alone.
            return int(token(offset)[2:18], 16)
        return int(offset["sec"]) << 32 | int(offset["ord"]) & 0xFFFFFFFF
    if "commit_lsn" in offset:
        # A SQL Server that has captured nothing yet has none: that is below all others.
        return _FIRST if offset["commit_lsn"] == "NULL" else lsn(offset["commit_lsn"])
    # A server on which nothing was committed since the copy has the SCN of that.
    return commit_scn(offset.get("commit_scn") or offset.get("snapshot_commit_scn") or offset["scn"])


def source_place(source: Source, offset: int) -> int:
    """Return where a change is committed, by its LSN or SCN, or as MongoDB's by its offset; raise ValueError for none."""
    if source.commit_lsn is not None:
        return lsn(source.commit_lsn)
    if source.commit_scn is not None:
        return commit_scn(source.commit_scn)
    if source.ord is not None:
        # Its time in the source block is that of a clock, the offset's that of the cluster.
        return offset
    raise ValueError("no place")


def was_read(source: Source, own: dict[str, Any], offset: dict[str, Any]) -> bool:
    """Whether a change, which has an offset of its own, is known to be one that an offset has as read."""
    if "sec" in offset:
        return "resume_token" in offset and token(own) <= token(offset)
    if source.commit_lsn is not None:
        place, upto = lsn(source.commit_lsn), lsn(offset["commit_lsn"])
        if place != upto or offset.get("change_lsn") in _NO_LSN:
            # None in that behind a copy, which has all of its place.
            return place <= upto
        # Of several changes with one change LSN the offset has the number of the last: Db2's source block has none.
        serial, last_serial = (each.get("event_serial_no") or 0 for each in (own, offset))
        return (_number(source.change_lsn), serial) <= (_number(offset["change_lsn"]), last_serial)
    place, thread = source_place(source, 0), str(source.redo_thread)
    handled = (each.split(":") for each in (offset.get("commit_scn") or "").split(",") if each.count(":") == 2)
    return (
        # It is in the copy.
        place <= int(offset.get("snapshot_scn") or 0)
        or (own.get("txId") == offset.get("txId") and own.get("txSeq", 0) <= offset.get("txSeq", -1))
        or any(
            thread == each and (place < int(scn) or (place == int(scn) and str(source.txId) in transactions.split("-")))
            for scn, each, transactions in handled
        )
    )


class _Transaction:
    """What all records of one place share."""

    def __init__(self, epoch: int, commit: int, source: Source, now_ms: int) -> None:
        self.commit, self.commit_ms = commit, source.ts_ms or now_ms
        own = {name: value for name in _OWN if (value := getattr(source, name)) is not None}
        self.id = json.encode(str(source.txId or source.commit_lsn or commit))
        self.own = json.encode(own)[1:-1] + b"," * bool(own)
        self.place = b'"position":"%08x/%b/' % (epoch, commit_text(commit).encode())


class _Table(TableNames):
    """What all records of a table share."""

    def source(self, transaction: _Transaction, ordinal: int) -> bytes:
        """Return the source block up to and including the ordinal."""
        return b"%b%08x" % (self.ahead(transaction, transaction.own), ordinal)

    def ahead(self, transaction: _Transaction, own: bytes, *, copied: bool = False) -> bytes:
        """Return the source block up to the ordinal; `own` is what a change has of it."""
        names = self.copied if copied else self.streamed
        return b"%b%d%b%b%b" % (self.head, transaction.commit_ms, names, own, transaction.place)


class Unproven:
    """SQL Server, Oracle or Db2."""

    has_whole_rows, text = True, "text"

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def schema(self, source: Source) -> str:
        """Return the schema; MongoDB has databases alone."""
        return source.schema or source.db

    def table(self, name: str, source: Source) -> _Table:
        """Return what all records of a table share."""
        return _Table(
            connector=self._kind, source=name, database=source.db, schema=self.schema(source), table=source.table
        )

    def transaction(self, epoch: int, commit: int, source: Source | None, now_ms: int) -> _Transaction:
        """Return what all records of a place share."""
        return _Transaction(epoch, commit, source or Source(ts_ms=now_ms), now_ms)

    def around(self, table: Any, change: Change, transaction: Any, now_ms: int) -> tuple[bytes, bytes]:
        """Return what comes between a record's rows and its ordinal, and between that and its number in the transaction."""
        # Each change has its own place within the commit's.
        own = _Transaction(0, 0, change.source, now_ms).own
        return table.ahead(transaction, own, copied=change.op == "r"), (
            b'"},"op":"%b","ts_ms":%d,"transaction":{"id":%b,"total_order":'
            % (change.op.encode(), now_ms, transaction.id)
        )

    def column(self, field: dict[str, Any], position: int, *, optional: bool) -> Column:
        """Return a column by its Connect schema, with a type of PostgreSQL's that holds its values."""
        source_type, length, scale = described(field)
        name = _TYPES.get(str(field.get("name")), _TYPES.get(str(field.get("type")), "text"))
        if name == "text" and source_type.upper().split("(")[0] in _NUMERIC and length:
            name, scale = "numeric", scale or 0
        else:
            length = scale = None
        return Column(
            name=field["field"], type_name=name, length=length, scale=scale, position=position, optional=optional
        )

    def converter(self, field: dict[str, Any], column: Column) -> Convert:
        """Return what makes a record's value of Debezium's."""
        return converter(field, column.type_name)


class Documents(Unproven):
    """MongoDB: a collection is a table of its key and its documents, both as JSON in text."""

    @staticmethod
    def fields() -> list[dict[str, Any]]:
        """Return the Connect schemas of the columns."""
        return [{"field": "id", "type": "string"}, {"field": _DOCUMENT, "type": "string"}]

    @staticmethod
    def rows(key: bytes | None, change: Change, placeholder: str) -> Change:
        """Return a change of a document as one of a row; a document that the log does not carry is the placeholder."""
        change.source.table = change.source.collection
        row = json.decode(key or b"{}", type=dict[str, str])
        documents = json.decode(change.before), json.decode(change.after)
        before, after = (None if each is None else row | {_DOCUMENT: each} for each in documents)
        if change.op == "d":
            before = before or row
        elif after is None and change.op == "u":
            after = row | {_DOCUMENT: placeholder}
        rows = (msgspec.Raw(json.encode(each)) for each in (before, after))
        return Change(change.source, change.op, *rows)


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

    def around(self, table: Any, change: Change, transaction: Any, now_ms: int) -> tuple[bytes, bytes]:
        """Return what comes between a record's rows and its ordinal, and between that and its number in the transaction."""
        # JSON has no such byte.
        around = postgres.Around(transaction.committed, transaction.place, b"\0", transaction.read(now_ms), b"\0")
        rest = (table.for_snapshot() if change.op == "r" else table).rest(change.op.encode(), around)
        ahead, between, _ = rest.split(b"\0")
        return ahead, between

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

    def around(self, table: Any, change: Change, transaction: Any, now_ms: int) -> tuple[bytes, bytes]:
        """Return what comes between a record's rows and its ordinal, and between that and its number in the transaction."""
        middle = table.middle(transaction, copied=change.op == "r")
        # A truncate's has no rows: Debezium's number is that of a row before it.
        row = 0 if change.op == "t" else change.source.row
        return b"%b%d%b" % (middle, row, transaction.place), mysql.end(change.op.encode(), transaction, now_ms)

    def column(self, field: dict[str, Any], position: int, *, optional: bool) -> Column:
        """Return a column by its Connect schema, which says of each whether it is NOT NULL."""
        optional = optional and bool(field.get("optional"))
        return binlog_column(field, described(field), position, self._kind, optional=optional)

    def converter(self, field: dict[str, Any], column: Column) -> Convert:
        """Return what makes a record's value of Debezium's."""
        return binlog_converter(field, column)


Connector = Postgres | Binlog | Unproven
CONNECTORS: Final[dict[str, Connector]] = {
    "postgres": Postgres(),
    "mysql": Binlog("mysql"),
    "mariadb": Binlog("mariadb"),
    **{kind: Unproven(kind) for kind in ("sqlserver", "oracle", "db2")},
    "mongodb": Documents("mongodb"),
}
