"""Frames as RecordEngine.java writes them, made by hand; records have what Debezium 3.6's connector for PostgreSQL wrote."""

import json
import struct
from collections.abc import Sequence
from typing import Any

PROTOCOL = 6
SYSTEM = "7000000000000000001"
OFFSET_KEY = '["headrace",{"server":"headrace"}]'
HEARTBEATS, TRANSACTIONS, TABLE = "__debezium-heartbeat.headrace", "headrace.transaction", "headrace.public.t"
KEY_SCHEMA, VALUE_SCHEMA = 0, 1


def frame(kind: str, content: bytes) -> bytes:
    return struct.pack(">I", len(content) + 1) + kind.encode() + content


def hello(
    protocol: int = PROTOCOL, *, log_end: int | None = 5000, has_slot: bool = False, system: str = SYSTEM, **more: Any
) -> bytes:
    server = {"system_identifier": system, "log_end": log_end, "has_slot": has_slot} | more
    # As where the server cannot be asked, without a log's end.
    return frame("H", json.dumps({"protocol": protocol} | ({} if log_end is None else {"server": server})).encode())


def part(value: Any) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value, separators=(",", ":")).encode()


def record(topic: str, offset: Any, key: Any = None, value: Any = None, schemas: tuple[int, int] = (-1, -1)) -> bytes:
    """Return a record's content, without its frame."""
    parts = [part(each) for each in (topic, OFFSET_KEY, offset, key, value)]
    return packed(schemas, parts)


def packed(schemas: Sequence[int], parts: Sequence[bytes | None]) -> bytes:
    """Return a record's content by its parts."""
    lengths = [-1 if each is None else len(each) for each in parts]
    return struct.pack(">7i", *schemas, *lengths) + b"".join(each or b"" for each in parts)


def heartbeat(lsn: int) -> bytes:
    return record(HEARTBEATS, {"lsn": lsn, "lsn_commit": lsn}, {"serverName": "headrace"}, {"ts_ms": 1})


def begin(xid: int, lsn: int) -> bytes:
    return record(TRANSACTIONS, {"lsn": lsn}, None, {"status": "BEGIN", "id": f"{xid}:{lsn}", "event_count": None})


def end(xid: int, lsn: int, count: int) -> bytes:
    return record(
        TRANSACTIONS,
        {"lsn": lsn, "lsn_commit": lsn, "txId": xid},
        None,
        {"status": "END", "id": f"{xid}:{lsn}", "event_count": count},
    )


def change(
    op: str,
    before: Any,
    after: Any,
    *,
    xid: int = 7,
    key: Any = None,
    snapshot: str = "false",
    table: str = "t",
    topic: str = TABLE,
) -> bytes:
    source = {"ts_ms": 1000, "snapshot": snapshot, "db": "bank", "schema": "public", "table": table, "txId": xid}
    value = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 2000}
    schemas = (-1 if op == "t" else KEY_SCHEMA, VALUE_SCHEMA)
    return record(topic, {"lsn": 1}, key or {"id": (after or before or {}).get("id")}, value, schemas)


def field(name: str, kind: str, type_name: str, **more: Any) -> dict[str, Any]:
    parameters = {"__debezium.source.column.type": type_name} | {
        f"__debezium.source.column.{key}": str(more.pop(key)) for key in ("length", "scale") if key in more
    }
    return {"field": name, "type": kind, "optional": True, "parameters": parameters} | more


def schema(number: int, fields: list[dict[str, Any]]) -> bytes:
    return struct.pack(">i", number) + json.dumps({"type": "struct", "fields": fields}).encode()


def schemas(columns: list[dict[str, Any]], key: tuple[str, ...] = ("id",)) -> list[bytes]:
    """Return the contents of both schemas of a table."""
    rows = [{"field": name, "type": "struct", "fields": columns} for name in ("before", "after")]
    return [schema(KEY_SCHEMA, [{"field": name, "type": "int32"} for name in key]), schema(VALUE_SCHEMA, rows)]


COLUMNS = [field("id", "int32", "SERIAL", length=10, scale=0), field("note", "string", "TEXT")]
