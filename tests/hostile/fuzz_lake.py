"""What the lake reads in Avro: records of an edge's schema and schemas of a registry, both as a sender decides them."""

import json
import random
from collections.abc import Callable
from typing import Any

import msgspec

from headrace.schemas.avro_json.envelope import Reader, reader_of
from tests.hostile.spoiling import FaultError, json_of, spoil, spoil_bytes
from tests.unit.headrace.schemas.test_avro_json import CHANGES, NO_NAME, OF_POSTGRESQL, column, written

_UNKNOWN = "unknown"
_COLUMNS = [
    column("int8", name="id"), column("text", name="a b", position=2), column("text", name="c", position=3),
]  # fmt: skip


def _made(source: dict[str, Any]) -> tuple[list[bytes], list[bytes], dict[int, str]]:
    changes = [change | {"source": source, "ts_ms": 5, "transaction": None} for change in CHANGES]
    keys, values, _, records = written(_COLUMNS, *changes, key=["id"], source=source)
    return keys, values, records._schemas


_GOOD = [_made(OF_POSTGRESQL), _made(NO_NAME)]


def avro_input(chance: random.Random) -> bytes:
    """Return some records and their schemas: spoiled behind the id, or in the schemas' values or texts."""
    keys, values, schemas = chance.choice(_GOOD)
    records = [list(pair) for pair in zip(keys, values, strict=True)]
    texts = dict(schemas)
    if chance.random() < 0.5:
        pair = chance.choice(records)
        which = chance.randrange(2)
        pair[which] = pair[which][:5] + spoil_bytes(pair[which][5:], chance)
    else:
        number = chance.choice(list(texts))
        spoiled = json_of(spoil(json.loads(texts[number]), chance)).decode(errors="replace")
        texts[number] = (
            spoiled if chance.random() < 0.7 else spoil_bytes(texts[number].encode(), chance).decode(errors="replace")
        )
    return msgspec.msgpack.encode((texts, records))


def feed_avro(data: bytes) -> None:
    """S4: a record becomes JSON or stays as it is, and the good ones behind it are read as ever."""
    texts, records = msgspec.msgpack.decode(data, strict=False)
    reader = Reader(texts, None, _UNKNOWN)
    for number, (key, value) in enumerate(records):
        result = reader("t", 0, number, key, value)
        if result == (key, value):
            continue
        for each in result:
            json.loads(each)
    for text in texts.values():
        try:
            reader_of(text)
        except ValueError:
            continue
    if texts in [schemas for _, _, schemas in _GOOD]:
        keys, values, _ = next(good for good in _GOOD if good[2] == texts)
        if any(reader("t", 0, 0, key, value) == (key, value) for key, value in zip(keys, values, strict=True)):
            raise FaultError("a good record is refused behind a bad one")


TARGETS: dict[str, tuple[Callable[[random.Random], bytes], Callable[[bytes], None]]] = {"avro": (avro_input, feed_avro)}
