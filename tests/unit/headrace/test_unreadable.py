"""Whatever bytes are in a file of the state folder, a record of Kafka's or a message, its reader raises its own errors alone.

Decoding has more ways to fail than a form that is wrong: bytes that are no text, values nested too deep, numbers beyond any.
"""

from contextlib import suppress

import pytest

from bridge.positions.last_record import position_of
from bridge.positions.transfer import read_export
from bridge.whole_topics import DeadLetterIndex, schema_in
from edge.commands import snapshot
from edge.debezium.checkpoint import place_of
from edge.mysql.replication import noted_dump_thread
from edge.postgres.checkpoint import PostgresCheckpoint
from edge.postgres.slot import Walsender
from edge.progress.checkpoint import State
from edge.progress.notes import PassedTransactions, RecordSettings
from edge.requests.service import KnownRequests
from edge.snapshot import plan, store
from headrace.errors import ReplicationError
from headrace.requests import content_of, decode_part, decode_request
from headrace.schema import TableSchema

#: What comes in place of a value, by what is wrong with it.
VALUES = {
    "no text": b'"\xff\xfe"',
    "half of a character": b'"\xed\xa0\x80"',
    "nested lists": b"[" * 100_000,
    "nested objects": b'{"a":' * 100_000,
    "a number of 5000 digits": b"9" * 5000,
    "a number beyond any": b"1e999999",
    "not a number": b"NaN",
    "half of a pair": b'"\\ud800"',
    "a zero byte": b'"\\u0000"',
    "nothing": b"",
}
#: What each reads, with a place for the value where its decoder looks.
SOURCE = b'{"source":{"name":"a/one","position":"","schema":"public","table":"t"},"op":"c",'
READERS = {
    "checkpoint": lambda folder: State(folder, PostgresCheckpoint).read("a/one"),
    "passed transactions": lambda folder: PassedTransactions(folder)._file,
    "table history": lambda folder: store.read(folder / "tables.json"),
    "settings of records": RecordSettings.read,
    "known requests": lambda folder: KnownRequests(folder)._read(),
    "thread of the server": lambda folder: noted_dump_thread(folder, None),
    "process of the server": lambda folder: Walsender(folder)._read(),
}
DECODERS = {
    "snapshot plan": lambda data: plan.parse(data, "a/one", "plan.json"),
    "list of dead letters": snapshot.parse,
    "request": decode_request,
    "part of an answer": decode_part,
    "content of an answer": lambda data: content_of(data.decode(errors="surrogateescape")),
    "schema record": TableSchema.parse,
    "exported positions": lambda data: read_export(data, "x"),
    "offset of Debezium's": lambda data: place_of("postgres", data),
    "last record": lambda data: position_of(data, "a/one"),
    "record with a schema": lambda data: schema_in(data, "public.t"),
    "dead letter": lambda data: DeadLetterIndex().add(b"{}", data, "t[0]@0"),
    "key of a dead letter": lambda data: DeadLetterIndex().add(data, SOURCE + b'"before":{"id":1},"too_large":{"bytes":1}}', ""),
}  # fmt: skip


def objects(value):
    """Yield the value alone, as a member that no decoder knows, and in place of those that some know."""
    yield value
    for name in (b"x", b"version", b"source", b"acknowledged", b"tables", b"deadline", b"arguments", b"data", b"lsn"):
        yield b'{"%b":%b}' % (name, value)
    yield b'{%b:1,"version":1}' % value
    yield b'[{"x":%b}]' % value
    for mark in (b'"x":', b'"tableChanges":[],"x":', b'"too_large":{"bytes":', b'"before":{"id":'):
        yield SOURCE + mark + value + b"}}"


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("reader", READERS)
def test_a_file_of_the_state_folder_is_read_or_refused(reader, value, tmp_path, monkeypatch):
    for data in objects(value):
        # Whatever the file is called.
        monkeypatch.setattr("pathlib.Path.read_bytes", lambda _path, data=data: data)
        with suppress(ReplicationError):
            READERS[reader](tmp_path)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("decoder", DECODERS)
def test_what_comes_by_kafka_or_a_link_is_read_or_refused(decoder, value):
    for data in objects(value):
        with suppress(ReplicationError):
            DECODERS[decoder](data)
