"""pgoutput messages built by hand, field by field as the PostgreSQL manual lays them out, and a decoder to feed them to."""

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from edge.postgres.pgoutput import Decoder
from edge.postgres.relations import Relation
from edge.progress.notes import Passed
from edge.records.alterations import Catalog
from edge.records.avro_records import AvroRecords
from edge.records.batcher import Batcher, SealedBatch
from edge.records.cloud_events import CloudEvents
from edge.records.column_policy import Policy
from edge.snapshot.table_history import TableHistory
from headrace.batch import CONTENT_ENCODING, Batch, decode
from headrace.configuration.edge import Records
from headrace.position import Position

EPOCH = 0x692010C0
COMMIT = 0x1A00000
END = COMMIT + 0x30
XID = 761
#: 2026-01-31 09:15:00.25 UTC, in milliseconds since 1970.
COMMIT_MS = 1_769_850_900_250
NOW_MS = COMMIT_MS + 11
OID = 16400
#: A column that the log does not carry.
UNCHANGED = object()

INT4, INT8, TEXT, NUMERIC = 23, 20, 25, 1700

Value = Any


def begin(commit: int = COMMIT, xid: int = XID) -> bytes:
    return b"B" + struct.pack(">QqI", commit, _pg_time(COMMIT_MS), xid)


def commit(commit: int = COMMIT, end: int = END) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, commit, end, _pg_time(COMMIT_MS))


def origin() -> bytes:
    return b"O" + struct.pack(">Q", COMMIT) + b"elsewhere\0"


def logical_message(
    content: bytes = b"abc", *, prefix: str = "prefix", lsn: int = COMMIT, transactional: bool = True
) -> bytes:
    head = b"M" + struct.pack(">BQ", transactional, lsn) + prefix.encode() + b"\0"
    return head + struct.pack(">I", len(content)) + content


def type_name(oid: int, name: str, namespace: str = "public") -> bytes:
    return b"Y" + struct.pack(">I", oid) + namespace.encode() + b"\0" + name.encode() + b"\0"


class Column(NamedTuple):
    name: str
    oid: int = TEXT
    key: bool = False
    modifier: int = -1


def relation(
    *columns: Column, oid: int = OID, schema: str = "public", table: str = "accounts", identity: str = "d"
) -> bytes:
    head = b"R" + struct.pack(">I", oid) + schema.encode() + b"\0" + table.encode() + b"\0"
    return (
        head
        + identity.encode()
        + struct.pack(">H", len(columns))
        + b"".join(
            struct.pack(">B", column.key)
            + column.name.encode()
            + b"\0"
            + struct.pack(">Ii", column.oid, column.modifier)
            for column in columns
        )
    )


def tuple_data(values: Sequence[Value]) -> bytes:
    return struct.pack(">H", len(values)) + b"".join(map(_column, values))


def insert(*values: Value, oid: int = OID) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + tuple_data(values)


def update(
    new: Sequence[Value], *, key: Sequence[Value] | None = None, old: Sequence[Value] | None = None, oid: int = OID
) -> bytes:
    message = b"U" + struct.pack(">I", oid)
    if key is not None:
        message += b"K" + tuple_data(key)
    if old is not None:
        message += b"O" + tuple_data(old)
    return message + b"N" + tuple_data(new)


def delete(*, key: Sequence[Value] | None = None, old: Sequence[Value] | None = None, oid: int = OID) -> bytes:
    kind, values = (b"K", key) if key is not None else (b"O", old or ())
    return b"D" + struct.pack(">I", oid) + kind + tuple_data(values)


def truncate(*oids: int, options: int = 0) -> bytes:
    return b"T" + struct.pack(">IB", len(oids), options) + b"".join(struct.pack(">I", oid) for oid in oids)


def _pg_time(milliseconds: int) -> int:
    return milliseconds * 1000 - 946_684_800_000_000


def _column(value: Value) -> bytes:
    if value is None:
        return b"n"
    if value is UNCHANGED:
        return b"u"
    data = value if isinstance(value, bytes) else str(value).encode()
    return b"t" + struct.pack(">I", len(data)) + data


def no_key(_relation: Relation) -> list[str]:
    return []


def tables_row(oids: Sequence[int], values: Sequence[Value], *, names: Sequence[str] = ()) -> list[bytes]:
    """A table with full identity and one column more, and one row of it in every kind of message that can hold it whole."""
    named = names or [f"c{number}" for number in range(len(oids))]
    columns = [Column(name, oid, key=True) for name, oid in zip(named, oids, strict=True)]
    row = (*values, "x")
    return [
        relation(*columns, Column("rest", key=True), identity="f"),
        insert(*row),
        update(row),
        update(row, old=row),
        update((*values, UNCHANGED), old=row),
        delete(old=row),
    ]


class Log:
    """A decoder with its batcher: feed messages, look at the records; `records` are settings of that section."""

    def __init__(
        self,
        *,
        target_bytes: int = 64 * 1024,
        key_of: Callable[[Relation], list[str]] = no_key,
        tail: Position | None = None,
        policy: Policy | None = None,
        repeat_schema_until: int = 0,
        history: TableHistory | None = None,
        kind: type[Decoder] = Decoder,
        catalog_of: Callable[[Relation], Catalog | None] = lambda _: None,
        passed: Mapping[str, Passed] | None = None,
        **records: Any,
    ) -> None:
        settings = Records(**records)
        placeholders = settings.unavailable == "placeholder"
        self.batcher = Batcher(
            source="jakarta/bank",
            tail=tail or Position.start(EPOCH),
            target_bytes=target_bytes,
            repeat_schema_until=repeat_schema_until,
            avro=AvroRecords(placeholders=placeholders) if settings.format == "avro" else None,
            events=CloudEvents("jakarta/bank") if records.get("cloudevents") else None,
        )
        self.decoder = kind(
            source="jakarta/bank",
            database="bank",
            epoch=EPOCH,
            batcher=self.batcher,
            key_of=key_of,
            records=settings,
            policy=policy,
            history=history,
            catalog_of=catalog_of,
            passed=passed,
        )

    def feed(self, *messages: bytes) -> None:
        for message in messages:
            self.decoder.feed(message, NOW_MS)

    def transaction(self, *messages: bytes, commit_lsn: int = COMMIT, end: int = END) -> None:
        self.feed(begin(commit_lsn), *messages, commit(commit_lsn, end))

    def sealed(self) -> list[SealedBatch]:
        batches = self.batcher.take()
        last = self.batcher.seal()
        return [*batches, last] if last else batches

    def batches(self) -> list[Batch]:
        return [opened(batch) for batch in self.sealed()]

    def records(self) -> list["Record"]:
        return [record for batch in self.batches() for record in records(batch)]

    def changes(self) -> list["Record"]:
        """Records without the schema records."""
        return [record for record in self.records() if "op" in (record.value or ())]


class Record(NamedTuple):
    position: Position
    key: Any
    #: None for a tombstone.
    value: Any


def opened(sealed: SealedBatch) -> Batch:
    """A batch as the bridge decodes it, which checks its segments, ends, order and counts."""
    return decode(sealed.properties, CONTENT_ENCODING, sealed.body)


def records(batch: Batch) -> Iterable[Record]:
    for position, key, value in zip(batch.positions(), batch.keys, batch.values, strict=True):
        yield Record(position, *(None if part is None else strict(part) for part in (key, value)))


def strict(text: bytes) -> Any:
    """Parse JSON that must be valid, UTF-8, without NaN, and without a name twice in an object."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        assert len(names) == len(set(names)), names
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(text.decode(), object_pairs_hook=once, parse_constant=refuse)
