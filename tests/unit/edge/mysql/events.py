"""Binlog events built by hand, from the manuals of MariaDB and MySQL; nothing here is made by the code under test."""

import struct
import zlib
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from edge.mysql.coverage import Chosen
from edge.mysql.decoder import Decoder
from edge.mysql.table_cache import TableCache
from edge.records.avro_records import AvroRecords
from edge.records.batcher import Batcher
from edge.records.cloud_events import CloudEvents
from edge.records.column_policy import Policy
from headrace.configuration.edge import Policy as Section
from headrace.configuration.edge import Records
from headrace.position import Position

SERVER, MADE, NOW_MS = 5, 1_769_850_900, 1_769_850_900_261
SERVER_UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
CHARSETS = {45: "utf8mb4", 255: "utf8mb4", 8: "latin1", 63: "binary", 99: "swe7", 51: "cp1251", 13: "sjis", 36: "cp866"}


class Column(NamedTuple):
    """A column of a table map."""

    name: str
    type: int
    meta: bytes = b""
    unsigned: bool | None = None
    collation: int | None = None
    members: tuple[str, ...] = ()
    real: int | None = None


def event(kind: int, body: bytes, end: int = 0, *, flags: int = 0) -> bytes:
    """Return an event without a checksum."""
    return struct.pack("<IBIIIH", MADE, kind, SERVER, 19 + len(body), end, flags) + body


def checked(found: bytes) -> bytes:
    """Return an event with its checksum."""
    found = found[:9] + (len(found) + 4).to_bytes(4, "little") + found[13:]
    return found + zlib.crc32(found).to_bytes(4, "little")


def rotate(file: str = "binlog.000007") -> bytes:
    return event(4, struct.pack("<Q", 4) + file.encode(), flags=0x20)


def format_description(version: str) -> bytes:
    return event(15, b"\4\0" + version.encode().ljust(50, b"\0") + bytes(40))


def mariadb_gtid(number: int, end: int, *, standalone: bool = False, flags: int = 0) -> bytes:
    return event(162, struct.pack("<QIB", number, 0, flags | standalone) + bytes(6), end)


def mysql_gtid(number: int, end: int, times: bytes = b"") -> bytes:
    """Return a transaction's first event; `times` is what follows the numbers for replicas from 8.0.1 on."""
    return event(33, b"\1" + UUID(SERVER_UUID).bytes + struct.pack("<Q", number) + b"\2" + bytes(16) + times, end)


def xid(end: int) -> bytes:
    return event(16, struct.pack("<Q", 9), end)


def xa_prepared(name: bytes, end: int, *, one_phase: bool = False) -> bytes:
    return event(38, struct.pack("<BIII", one_phase, 1, len(name), 0) + name, end)


def query(words: str | bytes, end: int, database: str = "bank", collation: int | None = None) -> bytes:
    name, text = database.encode(), words.encode() if isinstance(words, str) else words
    # As servers write them: flags, sql_mode, the catalog `std`, the client's collations.
    variables = (
        b"" if collation is None else bytes(5) + b"\1" + bytes(8) + b"\6\3std\4" + struct.pack("<HHH", collation, 8, 8)
    )
    head = struct.pack("<IIBHH", 3, 0, len(name), 0, len(variables))
    return event(2, head + variables + name + b"\0" + text, end)


def load(words: str, end: int, database: str = "bank") -> bytes:
    """Return an event that has the rows of a file added by a statement."""
    name = database.encode()
    head = struct.pack("<IIBHH", 3, 0, len(name), 0, 0) + struct.pack("<IIIB", 1, 4, 9, 0)
    return event(18, head + name + b"\0" + words.encode(), end)


def table_map(
    *columns: Column,
    table: str = "accounts",
    database: str = "bank",
    key: tuple[int, ...] = (0,),
    full: bool = True,
    id_: int = 21,
    nullable: bytes | None = None,
) -> bytes:
    count = len(columns)
    body = id_.to_bytes(6, "little") + b"\1\0" + _name(database.encode()) + _name(table.encode()) + bytes([count])
    body += bytes(column.type for column in columns)
    meta = b"".join(column.meta for column in columns)
    body += bytes([len(meta)]) + meta + (b"\xff" * ((count + 7) // 8) if nullable is None else nullable)
    signs = [column.unsigned for column in columns if column.unsigned is not None]
    if signs:
        bits = int("".join("01"[sign] for sign in signs).ljust((len(signs) + 7) // 8 * 8, "0"), 2)
        body += _field(1, bits.to_bytes((len(signs) + 7) // 8, "big"))
    collations = [column.collation for column in columns if column.collation is not None]
    if collations:
        body += _field(3, b"".join(_packed(collation) for collation in collations))
    if full:
        body += _field(4, b"".join(_string(column.name) for column in columns))
        for kind, real in ((5, 248), (6, 247)):
            chosen = [column for column in columns if column.members and column.real == real]
            if chosen:
                value = b"".join(bytes([len(c.members)]) + b"".join(map(_string, c.members)) for c in chosen)
                body += _field(kind, value)
        if key:
            body += _field(8, bytes(key))
    return event(19, body)


def rows(kind: int, columns: int, images: bytes, *, present: bytes | None = None, id_: int = 21) -> bytes:
    """Return a rows event of version 1 (23, 24, 25) or 2 (30, 31, 32)."""
    bitmap = b"\xff" * ((columns + 7) // 8) if present is None else present
    extra = b"\2\0" if kind >= 30 else b""
    bitmaps = bitmap * 2 if kind in {24, 31} else bitmap
    return event(kind, id_.to_bytes(6, "little") + b"\1\0" + extra + bytes([columns]) + bitmaps + images)


def payload(inner: list[bytes], end: int, compress: bytes | None = None, *, size: int | None = None) -> bytes:
    plain = b"".join(inner)
    data = plain if compress is None else compress
    head = (
        _field(1, _packed(len(data)))
        + _field(2, _packed(0 if compress is not None else 255))
        + _field(3, _packed(len(plain) if size is None else size))
    )
    return event(40, head + b"\0" + data, end)


def make_decoder(engine: str = "mysql", **options: Any) -> tuple[Decoder, Batcher]:
    until = options.get("repeat_schema_until", 0)
    records = options.get("records", Records())
    batcher = Batcher(
        source="jakarta/bank",
        tail=Position.start(1),
        repeat_schema_until=until,
        avro=AvroRecords() if records.format == "avro" else None,
        events=CloudEvents("jakarta/bank") if records.cloudevents else None,
    )
    policy = Policy(options.get("policy", Section()), any_case=options.get("any_case", False))
    tables = TableCache(
        connector=engine,
        source="jakarta/bank",
        chosen=options.get("chosen") or Chosen([], [], policy),
        policy=policy,
        records=records,
        charset_of=CHARSETS.__getitem__,
        kinds_of=lambda _database, _table: options.get("kinds", {}),
        type_of=lambda _database, _table: options.get("table_type", "BASE TABLE"),
        lower_case=options.get("lower_case", False),
        filled_of=lambda _database, _table: options.get("filled", {}),
        signs_of=lambda _database, _table: options.get("signs", {}),
        generated_of=lambda _database, _table: options.get("generated", ()),
        warn=options.get("warn", lambda _name, _words: None),
    )
    largest = options.get("largest", 15 << 20)
    made = Decoder(
        prepared_reader=options.get("again", EmptyLog()),
        epoch=1,
        base="binlog",
        after=7 << 32 | 4,
        batcher=batcher,
        tables=tables,
        mariadb=engine == "mariadb",
        largest=largest,
        records=records,
        history=options.get("history"),
        passed=options.get("passed"),
    )
    return made, batcher


class EmptyLog:
    """A log that holds nothing of before."""

    def rows(self, start: int) -> Iterator[tuple[bytes, int]]:
        return iter([])

    def find(self, xid: str, before: int) -> Generator[None, None, dict[str, int]]:
        yield
        return {}

    def first(self) -> str:
        return "binlog.000003"


def feed(to: Decoder, *events: bytes) -> None:
    for each in events:
        to.feed(each, len(each), NOW_MS)
    while to.xa.is_replaying:
        to.xa.replay(NOW_MS)


def _name(name: bytes) -> bytes:
    return bytes([len(name)]) + name + b"\0"


def _string(text: str) -> bytes:
    return bytes([len(text.encode())]) + text.encode()


def _packed(number: int) -> bytes:
    if number < 251:
        return bytes([number])
    return b"\xfc" + number.to_bytes(2, "little") if number < 1 << 16 else b"\xfe" + number.to_bytes(8, "little")


def _field(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + _packed(len(value)) + value
