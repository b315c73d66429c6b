"""What Debezium's engine writes to the edge: frames of schemas and records, and offsets, of each of its connectors."""

import random
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec

from edge.debezium.child import EngineProcess
from edge.debezium.frames import HELLO, RECORD, SCHEMA, FrameReader
from headrace.errors import CorruptInput, NeedsOperator
from headrace.formats import UNREADABLE
from headrace.position import Position
from tests.hostile.spoiling import FaultError, folder_in_memory, json_of, packed, spoil, spoil_bytes
from tests.unit.edge.debezium import engine_frames as wire
from tests.unit.edge.debezium import test_binlog as binlog
from tests.unit.edge.debezium import test_unproven as unproven
from tests.unit.edge.debezium.test_stream import Stream
from tests.unit.edge.postgres import messages as pgoutput

_ROW = {"id": 1, "note": "n"}
_NAMES = {
    "b": "io.debezium.data.Bits", "t": "io.debezium.time.Timestamp", "z": "io.debezium.time.ZonedTimestamp",
    "d": "io.debezium.time.Date", "g": "io.debezium.data.geometry.Point",
}  # fmt: skip
_FIELDS = [
    wire.field("id", "int32", "INT", length=10), wire.field("note", "string", "TEXT"),
    wire.field("a", "array", "_BIT", items={"type": "boolean"}), wire.field("b", "bytes", "BIT"),
    wire.field("t", "int64", "DATETIME", length=3),
    wire.field("z", "string", "TIMESTAMP"),
    wire.field("d", "int32", "DATE"), wire.field("n", "string", "NUMERIC", length=9, scale=2),
    wire.field("f", "double", "FLOAT"), wire.field("u", "int64", "BIGINT UNSIGNED"),
    wire.field("g", "struct", "POINT"),
]  # fmt: skip
_VALUES = _ROW | {
    "a": [True, None], "b": "Bw==", "t": 1_700_000_000_000, "z": "2026-01-01T00:00:00.5Z", "d": 19_000, "n": "1.50", "f": 1.5,
    "u": -1, "g": {"srid": 7, "wkb": "AQE="},
}  # fmt: skip
_NAMED = [each | ({"name": _NAMES[each["field"]]} if each["field"] in _NAMES else {}) for each in _FIELDS]
_SCHEMAS = [b"S" + each for each in wire.schemas(_NAMED)]
_LSN = "00000027:00000758:0005"


def _log(connector: str) -> list[bytes]:
    """Return records of a connector, without their frames."""
    match connector:
        case "postgres":
            return [
                wire.heartbeat(200), wire.begin(7, 900), wire.change("c", None, _VALUES), wire.change("u", _ROW, _VALUES),
                wire.change("t", None, None), wire.change("d", {"id": 1, "note": ""}, None), wire.end(7, 1000, 4),
                wire.begin(8, 1100), wire.end(8, 1200, 0), wire.heartbeat(1300),
            ]  # fmt: skip
        case "mysql" | "mariadb":
            return [
                binlog.begin(400, 7), binlog.change("c", 400, None, _VALUES), binlog.change("d", 400, _VALUES, None),
                binlog.end(400, 7, 2), binlog.change("t", 800, None, None), binlog.begin(900, 8), binlog.heartbeat(900),
            ]  # fmt: skip
        case "mongodb":
            offset = {"sec": 9, "ord": 3, "resume_token": unproven.token(unproven.CHANGED)}
            return [
                unproven.mongodb(7, 1, 1, 5), unproven.mongodb(8, 2, 2, 6), unproven.heartbeat(offset),
                unproven.heartbeat(offset | {"sec": -1, "ord": -1}),
            ]  # fmt: skip
        case "oracle":
            source = unproven.ORACLE | {"commit_scn": "2122185", "scn": "2122184", "redo_thread": 1, "txId": "0600"}
            offset = {"scn": "2122184", "commit_scn": "2122185:1:0600", "snapshot_scn": "5", "txId": "0600", "txSeq": 1}
            return [unproven.change(source, after=_VALUES, offset=offset), *[unproven.heartbeat(offset)] * 2]
        case _:
            end = {"commit_lsn": _LSN, "change_lsn": None, "event_serial_no": 1}
            return [
                unproven.sqlserver(_LSN, "00000027:00000758:0003"),
                unproven.sqlserver(_LSN, "00000027:00000758:0004", serial=2, number=2), *[unproven.heartbeat(end)] * 2,
            ]  # fmt: skip


_CONNECTORS = ("postgres", "mysql", "mariadb", "mongodb", "oracle", "sqlserver", "db2")


def debezium_input(chance: random.Random) -> bytes:
    """Return the frames of a connector's log, of which some are spoiled in a part's values or bytes, doubled or left out."""
    connector = chance.choice(_CONNECTORS)
    frames = [*_SCHEMAS, *(b"R" + each for each in _log(connector))]
    for _ in range(chance.randint(1, 2)):
        which = chance.randrange(len(frames))
        match chance.randrange(6):
            case 0:
                frames.insert(chance.randrange(len(frames)), frames[which])
            case 1:
                del frames[which]
            case 2:
                frames[which] = frames[which][:1] + spoil_bytes(frames[which][1:], chance)
            case _:
                spoiled = _schema if frames[which][:1] == b"S" else _record
                try:
                    frames[which] = spoiled(frames[which], chance)
                except (struct.error, *UNREADABLE):
                    # Spoiled before.
                    frames[which] = frames[which][:1] + spoil_bytes(frames[which][1:], chance)
    greeting = wire.hello(log_end=5000, settings={"binlog_format": "ROW"})[4:]
    if chance.random() < 0.05:
        greeting = b"H" + json_of(spoil(msgspec.json.decode(greeting[1:]), chance))
    stream = b"".join(struct.pack(">I", len(each)) + each for each in [greeting, *frames])
    return packed((connector, spoil_bytes(stream, chance) if chance.random() < 0.1 else stream))


def _schema(frame: bytes, chance: random.Random) -> bytes:
    return frame[:5] + json_of(spoil(msgspec.json.decode(frame[5:]), chance))


def _record(frame: bytes, chance: random.Random) -> bytes:
    """Return a record's frame with one of its parts spoiled in its values."""
    numbers = struct.unpack_from(">7i", frame, 1)
    schemas, at, parts = numbers[:2], 29, []
    for length in numbers[2:]:
        parts.append(None if length < 0 else frame[at : at + length])
        at += max(length, 0)
    given = [number for number, part in enumerate(parts) if part is not None]
    if not given:
        return frame
    which = chance.choice(given)
    part = parts[which] or b""
    # The topic is no JSON.
    parts[which] = spoil_bytes(part, chance) if which == 0 else json_of(spoil(msgspec.json.decode(part), chance))
    if chance.random() < 0.1:
        schemas = chance.randint(-2, 2), chance.randint(-2, 2)
    return b"R" + wire.packed(schemas, parts)


def feed_debezium(data: bytes) -> None:
    """A log is read into batches that a bridge takes, or it is refused with what is wrong, and without a value."""
    connector, content = msgspec.msgpack.decode(data)
    offset = {"mongodb": '{"sec":1,"ord":1}', "oracle": '{"scn":"1"}'}.get(connector, "{}")
    offset = '{"commit_lsn":"NULL"}' if connector in {"sqlserver", "db2"} else offset
    with folder_in_memory() as folder:
        stream = Stream(Path(folder), columns=[], connector=connector, reached=2, offset=offset)
        try:
            for kind, each in FrameReader().feed(content):
                _take(stream, kind, each)
            # As long as it takes until Db2's last place is whole.
            for second in range(40):
                stream.stream.look(float(second), heard=False)
        except (CorruptInput, NeedsOperator) as error:
            if len(error.message) > 2000 or "2026-01" in error.message + error.hint:
                raise FaultError("an error longer than a line, or with a value") from error
        finally:
            stream.stream.close()
        _check(stream)


def _take(stream: Stream, kind: int, content: bytes) -> None:
    if kind == HELLO:
        # As the process does it that has no process here.
        process = EngineProcess.__new__(EngineProcess)
        process._check(content)
    elif kind == SCHEMA:
        stream.rows.add_schema(content)
    elif kind == RECORD:
        stream.take(content)


def _check(stream: Stream) -> None:
    """Raise FaultError unless what was written is JSON, in batches that follow each other."""
    for value in stream.batcher.values:
        if value is not None:
            msgspec.json.decode(value)
    follows = Position.start(1)
    while (sealed := stream.batcher.seal()) is not None:
        if sealed.follows != follows:
            raise FaultError("a batch does not follow the one before it")
        follows = pgoutput.opened(sealed).last


Target = tuple[Callable[[random.Random], bytes], Callable[[bytes], None]]
TARGETS: dict[str, Target] = {"debezium": (debezium_input, feed_debezium)}
