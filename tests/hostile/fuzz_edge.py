"""What an edge reads that a database or a disk made: binlog events and row images, JSON documents of MySQL's, pgoutput, and the
files of its state folder.
"""

import json
import random
import sqlite3
import struct
import zlib
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from edge.mysql import values
from edge.mysql.checkpoint import MysqlCheckpoint
from edge.mysql.column_text import json_text
from edge.postgres.checkpoint import PostgresCheckpoint
from edge.progress.checkpoint import Checkpoint, State
from edge.progress.spool import Spool, _head
from edge.progress.spool_file import _ABOUT, _BATCH
from headrace.configuration.edge import Records
from headrace.errors import CorruptInput, NeedsOperator, NoSpace
from headrace.position import Position
from tests.hostile.spoiling import FaultError, folder_in_memory, json_of, packed, plain, spoil, spoil_bytes
from tests.unit.edge.delivery.test_window import position
from tests.unit.edge.mysql import events as binlog
from tests.unit.edge.mysql.test_fuzz import EVENTS, ROW, WIDE, XA
from tests.unit.edge.postgres import messages as pgoutput
from tests.unit.edge.postgres.test_fuzz import COLUMNS, the_log
from tests.unit.edge.progress.test_spool import full

SOURCE = "a/one"
_REFUSED = (CorruptInput, NeedsOperator)

# Binlog.

_MARIADB = [
    binlog.mariadb_gtid(1, 200), binlog.query("BEGIN", 250), WIDE, binlog.rows(23, 8, ROW), binlog.rows(24, 8, ROW + ROW),
    binlog.rows(25, 8, ROW), binlog.xid(900), binlog.mariadb_gtid(2, 1000, standalone=True),
    binlog.query("truncate table accounts", 1100, collation=45),
]  # fmt: skip
_LOGS: dict[str, list[bytes]] = {
    "mysql": EVENTS,
    "mysql, packed": [
        EVENTS[0],
        binlog.payload([binlog.query("BEGIN", 0), WIDE, binlog.rows(30, 8, ROW), binlog.xid(0)], 900),
    ],
    "mysql, xa": XA,
    "mariadb": _MARIADB,
}
#: Types of columns, with the bytes of metadata that each may have, and the size of a value where it is fixed.
_TYPES = [
    (values.TINY, b"", 1), (values.SHORT, b"", 2), (values.INT24, b"", 3), (values.LONG, b"", 4), (values.LONGLONG, b"", 8),
    (values.FLOAT, b"\4", 4), (values.DOUBLE, b"\10", 8), (values.YEAR, b"", 1), (values.DATE, b"", 3),
    (values.TIME2, b"\6", 6), (values.DATETIME2, b"\3", 7), (values.TIMESTAMP2, b"\0", 4), (values.NEWDECIMAL, b"\x12\6", 9),
    (values.BIT, b"\2\1", 2), (values.VARCHAR, b"\x2c\1", 0), (values.BLOB, b"\2", 0), (values.JSON, b"\4", 0),
]  # fmt: skip


def binlog_input(chance: random.Random) -> bytes:
    """Return a log, of which one event is spoiled behind its header; or rows of a table of any types, of random values."""
    name = chance.choice(list(_LOGS))
    log = list(_LOGS[name])
    if chance.random() < 0.4:
        log = [EVENTS[0], EVENTS[1], *_table(chance), EVENTS[-1]]
        name = "mysql"
    if chance.random() < 0.8:
        which = chance.randrange(len(log))
        result = log[which]
        log[which] = binlog.event(result[4], spoil_bytes(result[19:], chance), int.from_bytes(result[13:17], "little"))
    form = chance.choice(("plain", "debezium", "avro"))
    return msgspec.msgpack.encode((name.partition(",")[0], form, log))


def _table(chance: random.Random) -> tuple[bytes, bytes]:
    """Return a table of any columns, and rows of it."""
    chosen = [chance.choice(_TYPES) for _ in range(chance.randint(1, 12))]
    columns = [
        binlog.Column(
            f"c{number}", code, meta,
            unsigned=chance.random() < 0.5 if code in values.NUMERIC else None,
            collation=chance.choice((45, 8, 63, 13)) if code in values.CHARACTER else None,
        )
        for number, (code, meta, _) in enumerate(chosen)
    ]  # fmt: skip
    image = bytes((len(chosen) + 7) // 8)
    for code, _, size in chosen:
        data = chance.randbytes(size or chance.randrange(20))
        if not size:
            data = jsonb_input(chance) if code == values.JSON else data
            data = len(data).to_bytes(4 if code == values.JSON else 2, "little") + data
        image += data
    kind = chance.choice((30, 31, 32))
    return binlog.table_map(*columns), binlog.rows(kind, len(chosen), image * (1 + (kind == 31)))


def feed_binlog(data: bytes) -> None:
    """A log is read, and its values are JSON, or it is refused with its place."""
    engine, form, log = msgspec.msgpack.decode(data)
    records = {"debezium": Records(envelope="debezium"), "avro": Records(format="avro")}.get(form, Records())
    decoder, batcher = binlog.make_decoder(engine, records=records)
    try:
        binlog.feed(decoder, binlog.rotate(), *log)
    except _REFUSED as error:
        if not error.hint:
            raise FaultError("an error without a hint") from error
        return
    for value in batcher.values:
        if value is not None and form != "avro":
            json.loads(value)


def jsonb_input(chance: random.Random) -> bytes:
    """Return a document of MySQL's, spoiled in some of its bytes or not."""
    document = _document(chance, 0)
    return spoil_bytes(document, chance) if chance.random() < 0.8 else document


def _document(chance: random.Random, depth: int) -> bytes:  # noqa: PLR0911 - a case for each type.
    """Return type and value: objects and arrays, small or large, in which every value is behind the entries."""
    kind = chance.randrange(8 if depth < 4 else 6)
    if kind == 0:
        return bytes([4, chance.randrange(3)])
    if kind == 1:
        return b"\x09" + struct.pack("<q", chance.randrange(-(1 << 63), 1 << 63))
    if kind == 2:
        return b"\x0b" + struct.pack("<d", chance.choice((0.0, 1.5, -1e300, 1e-20, 3e15)))
    if kind == 3:
        text = chance.choice(("", "x", "é\n", "y" * 100)).encode()
        return b"\x0c" + bytes([len(text)]) + text
    if kind == 4:
        code, content = chance.choice(
            ((values.NEWDECIMAL, bytes.fromhex("0402800c")), (values.DATETIME, bytes(8)), (values.BLOB, b"abc"))
        )
        return b"\x0f" + bytes([code, len(content)]) + content
    if kind == 5:
        code, size = chance.choice(((5, 2), (6, 2), (7, 4), (8, 4), (10, 8)))
        return bytes([code]) + chance.randbytes(size)
    elements = [_document(chance, depth + 1) for _ in range(chance.randrange(4))]
    return (_object if kind == 6 else _array)(elements, large=chance.random() < 0.3)


def _array(elements: list[bytes], *, large: bool) -> bytes:
    number = "<I" if large else "<H"
    size = struct.calcsize(number)
    at, entries, content = 2 * size + (size + 1) * len(elements), b"", b""
    for each in elements:
        entries += _entry(each, at + len(content), number)
        content += each[1:]
    head = struct.pack(number, len(elements)) + struct.pack(number, at + len(content))
    return (b"\3" if large else b"\2") + head + entries + content


def _entry(element: bytes, offset: int, number: str) -> bytes:
    # What is short enough is where its offset would be.
    size = struct.calcsize(number)
    is_inside = element[0] in {4, 5, 6} or (element[0] in {7, 8} and size == 4)
    return element[:1] + (element[1:].ljust(size, b"\0") if is_inside else struct.pack(number, offset))


def _object(elements: list[bytes], *, large: bool) -> bytes:
    number = "<I" if large else "<H"
    size = struct.calcsize(number)
    names = [f"n{each}".encode() for each in range(len(elements))]
    at = 2 * size + (2 * size + 3) * len(elements)
    keys, entries, content = b"", b"", b"".join(names)
    for index, (name, each) in enumerate(zip(names, elements, strict=True)):
        keys += struct.pack(number, at + 2 * index) + struct.pack("<H", len(name))
        entries += _entry(each, at + len(content), number)
        content += each[1:]
    head = struct.pack(number, len(elements)) + struct.pack(number, at + len(content))
    return (b"\1" if large else b"\0") + head + keys + entries + content


def feed_jsonb(data: bytes) -> None:
    """A document is JSON, or it is refused as the decoder of its row refuses what it is in."""
    try:
        text = json_text(data)
    except (ValueError, IndexError, struct.error):
        return
    json.loads(text)


# pgoutput.

_OPTIONS: list[dict[str, Any]] = [
    {}, {"envelope": "debezium"}, {"format": "avro"}, {"cloudevents": True}, {"decimal": "precise"}, {"decimal": "double"},
    {"time": "connect"}, {"time": "adaptive"}, {"messages": ["*"], "transactions": True}, {"tombstones": True},
    {"unavailable": "placeholder"},
]  # fmt: skip


def pgoutput_input(chance: random.Random) -> bytes:
    """Return a log of which some messages are spoiled behind their first byte, doubled or left out."""
    log = [*the_log(pgoutput.COMMIT), *the_log(pgoutput.COMMIT + 1000)]
    for _ in range(chance.randint(0, 2)):
        which = chance.randrange(len(log))
        match chance.randrange(4):
            case 0:
                log.insert(chance.randrange(len(log)), log[which])
            case 1:
                del log[which]
            case _:
                log[which] = log[which][:1] + spoil_bytes(log[which][1:], chance)
    return msgspec.msgpack.encode((chance.randrange(len(_OPTIONS)), log))


def feed_pgoutput(data: bytes) -> None:
    """A log is read into batches that a bridge takes, or it is refused with its place."""
    number, messages = msgspec.msgpack.decode(data)
    log = pgoutput.Log(key_of=lambda _: [COLUMNS[0].name], target_bytes=1, **_OPTIONS[number])
    try:
        log.feed(*messages)
        batches = log.sealed()
    except _REFUSED as error:
        if not error.hint or "Größe" in error.message + error.hint:
            raise FaultError("an error without a hint, or with a value") from error
        return
    follows = Position.start(pgoutput.EPOCH)
    for sealed in batches:
        if sealed.follows != follows:
            raise FaultError("a batch does not follow the one before it")
        follows = pgoutput.opened(sealed).last


# The state folder.


def spool_input(chance: random.Random) -> bytes:
    """Return the rows of a spool, spoiled in what a row's checksum covers or in its columns, with a checksum that fits."""
    rows = []
    for number in range(1, 4):
        batch = full(number, 500)
        head, body = _head(batch), batch.body
        if chance.random() < 0.3:
            head = packed(spoil(msgspec.msgpack.decode(head), chance))
        if chance.random() < 0.2:
            body = spoil_bytes(body, chance)
        row = [
            number,
            str(batch.first),
            str(batch.last),
            100 * number,
            1.0,
            zlib.crc32(body, zlib.crc32(head)),
            head,
            body,
        ]
        rows.append(spoil(row, chance) if chance.random() < 0.3 else row)
    about = [1, SOURCE]
    return msgspec.msgpack.encode(plain([spoil(about, chance) if chance.random() < 0.1 else about, rows]))


def feed_spool(data: bytes) -> None:
    """A spool is taken up, and what it holds is given back; or it is refused, with what is lost."""
    about, rows = msgspec.msgpack.decode(data)
    with folder_in_memory() as folder:
        with closing(sqlite3.connect(Path(folder) / "spool.sqlite", isolation_level=None)) as connection:
            connection.execute("pragma synchronous = off")
            connection.execute(_ABOUT)
            connection.execute(_BATCH)
            # What no column of SQLite's holds is not in a file either.
            with suppress(sqlite3.Error, TypeError, OverflowError, ValueError):
                connection.execute("insert into about values (?, ?)", about)
                connection.executemany("insert into batch values (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        spool = Spool(Path(folder), SOURCE, 8 << 20)
        try:
            spool.open(position(0), position(3), 300)
            spool.read(spool.first_row, 1 << 20, position(0))
            spool.forget(position(1))
            spool.promised()
        except (NeedsOperator, NoSpace):
            return
        finally:
            spool.close()


_CHECKPOINTS: dict[str, Checkpoint] = {
    "postgresql": PostgresCheckpoint(
        source=SOURCE, stage="made", acknowledged=str(position(1)), spooled=str(position(2)), confirmed_lsn="16/B374D848",
        system_identifier="7", timeline=1, database="bank", slot="headrace", publication="headrace", publication_oid=16400,
        unseen=(761, 762),
    ),
    "mysql": MysqlCheckpoint(
        source=SOURCE, stage="made", acknowledged=str(position(1)), engine="mysql", gtids=f"{binlog.SERVER_UUID}:1-9",
        file="binlog.000007", offset=4, server_id=5, server=binlog.SERVER_UUID,
    ),
    "mariadb": MysqlCheckpoint(
        source=SOURCE, stage="made", acknowledged=str(position(1)), engine="mariadb", gtids="0-5-9,1-5-3",
        file="binlog.000007", offset=4, server_id=5, server="x",
    ),
}  # fmt: skip


def checkpoint_input(chance: random.Random) -> bytes:
    """Return a checkpoint file, spoiled in its values or bytes."""
    name = chance.choice(list(_CHECKPOINTS))
    value = msgspec.to_builtins(_CHECKPOINTS[name])
    data = json_of(value)
    data = spoil_bytes(data, chance) if chance.random() < 0.5 else json_of(spoil(value, chance))
    return msgspec.msgpack.encode((name, data))


def feed_checkpoint(data: bytes) -> None:
    """A checkpoint has everything that is asked of it, or it is refused when it is read."""
    name, content = msgspec.msgpack.decode(data)
    with folder_in_memory() as folder:
        state: State[Any] = State(Path(folder), type(_CHECKPOINTS[name]))
        state.path.write_bytes(content)
        try:
            result = state.read(SOURCE)
        except NeedsOperator:
            return
    _ = result.position, result.promised, result.confirmed, result.place, result.tail
    if isinstance(result, MysqlCheckpoint):
        _ = result.base, result.gtid_set


Target = tuple[Callable[[random.Random], bytes], Callable[[bytes], None]]
TARGETS: dict[str, Target] = {
    "binlog": (binlog_input, feed_binlog),
    "jsonb": (jsonb_input, feed_jsonb),
    "pgoutput": (pgoutput_input, feed_pgoutput),
    "spool": (spool_input, feed_spool),
    "checkpoint": (checkpoint_input, feed_checkpoint),
}
