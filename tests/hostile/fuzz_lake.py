"""What the lake reads of a sender: records in Avro and their schemas of a registry, and schema records, of which silver makes
columns.
"""

import json
import random
from collections.abc import Callable
from typing import Any

import msgspec

from headrace.schema import Column, TableSchema, copy_mark
from headrace.schemas.avro_json.envelope import Reader, reader_of
from spark_jobs.silver import changes, target_schema
from spark_jobs.silver.schema_versions import SchemaRecord, SchemaVersions
from spark_jobs.state import schema_texts
from tests.hostile.spoiling import FaultError, expected, json_of, spoil, spoil_bytes
from tests.unit.headrace.schemas.test_avro_json import CHANGES, NO_NAME, OF_POSTGRESQL, column, written

_UNKNOWN = "unknown"
SOURCE = "a/one"
_COLUMNS = [
    column("int8", name="id"), column("text", name="a b", position=2), column("text", name="c", position=3),
]  # fmt: skip


def _made(source: dict[str, Any]) -> tuple[list[bytes], list[bytes], dict[int, str]]:
    records = [change | {"source": source, "ts_ms": 5, "transaction": None} for change in CHANGES]
    keys, values, _, made = written(_COLUMNS, *records, key=["id"], source=source)
    return keys, values, made._schemas


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


# Schema records.

_SCHEMAS = [
    TableSchema(
        schema="public", table="t", key=["id"], excluded=["secret"], rewritten=["a column was added"],
        columns=[
            Column(name="id", type_name="int8", position=1, optional=False),
            Column(name="ID", type_name="text", position=2, policy="hash"),
            Column(name="a b", type_name="numeric", length=9, scale=2, position=3),
            Column(name="_source", type_name="_int4", position=4, form="array<int32>"),
            Column(name="t", type_name="timestamp", length=3, position=5, form="io.debezium.time.Timestamp"),
        ],
    ),
    TableSchema(
        schema="bank", table="t", key=["id", "part"],
        columns=[
            Column(name="id", type_name="BIGINT UNSIGNED", position=1, optional=False),
            Column(name="part", type_name="ENUM", position=2, enum_values=["a", "b"], form="io.debezium.data.Enum"),
            Column(name="f", type_name="FLOAT", position=3),
            Column(name="b", type_name="BIT", length=1, position=4, form="boolean"),
            Column(name="n", type_name="DECIMAL", length=38, scale=3, position=5, form="org.apache.kafka.connect.data.Decimal"),
        ],
    ),
]  # fmt: skip


def schema_input(chance: random.Random) -> bytes:
    """Return schema records of one table as bronze has them, by position: those of a range, and one of before."""
    schema = chance.choice(_SCHEMAS)
    record = {"source": {"schema": schema.schema, "table": schema.table}, "tableChanges": [schema.change()]}
    record |= {"rewritten": schema.rewritten} if schema.rewritten is not None else {}
    texts = [json_of(record)] * chance.randint(1, 3)
    for _ in range(chance.randint(1, 2)):
        which = chance.randrange(len(texts))
        texts[which] = spoil_bytes(texts[which], chance) if chance.random() < 0.2 else json_of(spoil(record, chance))
    return msgspec.msgpack.encode([text.decode(errors="replace") for text in texts])


def feed_schema(data: bytes) -> None:
    """A schema record is kept; of those that are some, silver has columns and how to read them, or the table is stopped."""
    texts = msgspec.msgpack.decode(data)
    known = []
    for number, text in enumerate(texts):
        schema_texts.digests({SOURCE: text})
        if (schema := expected(lambda text=text: TableSchema.parse(text))) is not None:
            mark = expected(lambda text=text: copy_mark(text))
            source = SOURCE if number < 2 else "a/two"
            known.append(
                SchemaRecord(source=source, table="t", position=str(number), value=text, schema=schema, mark=mark)
            )
            _ = schema.treated
    versions = SchemaVersions.read({}, known, {SOURCE: "0"})
    versions.key_changes(whole=True)
    versions.single_precision()
    versions.forms()
    for open_names in (False, True):
        target = expected(
            lambda names=open_names: target_schema.of("t", versions.latest(), versions.earlier(), open_names=names)
        )
        if target is None:
            continue
        structure = changes._structure(target)
        changes._at_source(structure, target).json()
        if len({target_schema.fold(name) for name in target.columns}) != len(target.columns):
            raise FaultError("two columns that SQL does not distinguish")
        stored = dict(reversed(target.columns.items()))
        expected(lambda target=target, stored=stored: target_schema.fit_types(target, stored))


Target = tuple[Callable[[random.Random], bytes], Callable[[bytes], None]]
TARGETS: dict[str, Target] = {
    "avro": (avro_input, feed_avro),
    "schema": (schema_input, feed_schema),
}
