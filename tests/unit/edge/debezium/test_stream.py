"""From frames to batches: positions, transactions, what comes twice, what the engine would not send."""

import io
import json

import pytest

from edge.debezium.checkpoint import DebeziumCheckpoint, Marks, place_of
from edge.debezium.frames import EngineRecord, FrameReader, read_frames
from edge.debezium.rows import Rows
from edge.debezium.stream import EngineStream
from edge.postgres.envelope import Table
from edge.records.batcher import Batcher
from edge.records.column_policy import Policy
from edge.records.transaction_writer import TransactionWriter
from headrace.configuration.edge import ColumnRule, Records
from headrace.configuration.edge import Policy as PolicySection
from headrace.errors import CorruptInput, NeedsOperator
from headrace.position import Position
from tests.unit.edge.debezium import engine_frames as wire

PLACEHOLDER = "headrace-unavailable-1"


class Stream:
    """A stream over a batcher that a test reads."""

    def __init__(
        self, folder, policy=None, columns=wire.COLUMNS, key=("id",), reached=100, connector="postgres", offset="{}"
    ):
        self.batcher = Batcher(source="a/b", tail=Position.start(1))
        self.marks = Marks()
        self.rows = Rows(connector, "a/b", Policy(policy or PolicySection()), PLACEHOLDER)
        writer = TransactionWriter(
            self.batcher,
            epoch=1,
            largest=1 << 20,
            records=Records(),
            no_table=Table(source="a/b", database="", schema="", table=""),
        )
        fields = {"acknowledged": str(Position.start(1)), "confirmed_place": reached, "offset": ("k", offset)}
        checkpoint = DebeziumCheckpoint(source="a/b", stage="made", connector=connector, **fields)
        self.stream = EngineStream(checkpoint, folder, self.rows, writer, self.marks)
        for content in wire.schemas(columns, key):
            self.rows.add_schema(content)

    def take(self, *contents):
        for content in contents:
            self.stream.take(content)
            self.write()
        return self

    def write(self):
        while self.stream.is_writing:
            self.stream.write()

    @property
    def values(self):
        return [json.loads(value) for value in self.batcher.values]

    @property
    def changes(self):
        return [value for value in self.values if "op" in value]


@pytest.fixture
def stream(tmp_path):
    return Stream(tmp_path)


def test_a_transaction_is_one_by_its_end_whatever_lies_between_in_the_log(stream):
    stream.take(
        wire.begin(7, 900),
        wire.change("c", None, {"id": 1, "note": "a"}),
        wire.heartbeat(800),
        wire.change("u", None, {"id": 1, "note": "b"}),
        wire.end(7, 1000, 2),
        wire.begin(6, 700),
        wire.change("d", {"id": 1, "note": None}, None, xid=6),
        wire.end(6, 1100, 1),
    )
    assert [(each["op"], each["before"], each["after"]) for each in stream.changes] == [
        ("c", None, {"id": 1, "note": "a"}),
        ("u", None, {"id": 1, "note": "b"}),
        ("d", {"id": 1}, None),
    ]
    assert [each["source"]["position"] for each in stream.changes] == [
        str(Position(1, 999, 0)),
        str(Position(1, 999, 1)),
        str(Position(1, 1099, 0)),
    ]
    assert [each["transaction"] for each in stream.changes] == [
        {"id": "7:999", "total_order": 1},
        {"id": "7:999", "total_order": 2, "last": True},
        {"id": "6:1099", "total_order": 1, "last": True},
    ]
    assert stream.batcher.keys == [None, b'{"id":1}', b'{"id":1}', b'{"id":1}']
    assert stream.values[0]["tableChanges"][0]["table"] == {
        "primaryKeyColumnNames": ["id"],
        "columns": [
            {"name": "id", "typeName": "int4", "length": None, "scale": None, "position": 1, "optional": False},
            {"name": "note", "typeName": "text", "length": None, "scale": None, "position": 2, "optional": True},
        ],
    }
    sealed = stream.batcher.seal()
    assert (sealed.last, sealed.confirm, stream.stream.reached) == (Position(1, 1099, 0), 1100, 1100)


def test_what_was_read_in_part_or_comes_again_is_left_out(stream):
    first = [wire.begin(7, 900), wire.change("c", None, {"id": 1, "note": "a"})]
    stream.take(*first, wire.begin(7, 900), *first[1:], wire.end(7, 1000, 1))
    stream.take(*first, wire.end(7, 1000, 1), wire.heartbeat(1000))
    assert len(stream.changes) == 1
    assert stream.marks.offset_at(1000) is not None
    # The end's own number among the records, and none of what came again.
    assert (stream.marks.number_at(1000), stream.marks.number_at(1000)) == (5, 0)


def test_marks_are_those_of_durable_places(stream):
    stream.take(wire.heartbeat(200), wire.begin(7, 300), wire.end(7, 400, 0), wire.heartbeat(500))
    assert stream.marks.offset_at(150) is None
    assert json.loads(stream.marks.offset_at(450)[1])["lsn"] == 400
    assert stream.marks.number_at(300) == 1
    # A second look before the first one is durable has the same answer.
    assert json.loads(stream.marks.offset_at(450)[1])["lsn"] == 400
    assert stream.marks.number_at(450) == 3
    assert json.loads(stream.marks.offset_at(500)[1])["lsn"] == 500
    assert stream.batcher.seal() is None
    assert stream.stream.reached == 500


def test_a_large_transaction_waits_in_a_file_and_keeps_its_order(tmp_path):
    stream = Stream(tmp_path)
    stream.take(wire.begin(7, 900))
    for number in range(3000):
        stream.take(wire.change("c", None, {"id": number, "note": "n" * 4000}))
    assert stream.batcher.values == []
    stream.stream.take(wire.end(7, 1000, 3000))
    rounds = 0
    while stream.stream.is_writing:
        stream.stream.write()
        rounds += 1
    assert rounds > 2
    segments = [json.loads(value)["after"]["id"] for value in stream.batcher.values if b'"op":' in value]
    assert segments == list(range(3000 - len(segments), 3000))
    assert stream.batcher.closed[0].first == Position(1, 999, 0)
    assert stream.batcher.seal().last == Position(1, 999, 2999)


def test_a_record_above_the_limit_is_a_dead_letter_and_what_follows_goes_on(stream):
    stream.take(
        wire.begin(7, 900),
        wire.change("c", None, {"id": 1, "note": "n" * (1 << 20)}),
        wire.change("c", None, {"id": 2, "note": "n"}),
        wire.end(7, 1000, 2),
    )
    letter, change = stream.values[-2:]
    assert (letter["after"], letter["too_large"]["bytes"] > 1 << 20, change["after"]["id"]) == ({"id": 1}, True, 2)
    assert "n" * 1000 not in json.dumps(letter)


def test_a_truncate_and_an_altered_table_have_their_schema_record(stream):
    stream.take(
        wire.begin(7, 900),
        wire.change("t", None, None),
        wire.change("c", None, {"id": 1, "note": "a"}),
        wire.end(7, 1000, 2),
    )
    assert [each.get("op", "schema") for each in stream.values] == ["schema", "t", "schema", "c"]
    assert stream.batcher.keys == [None, None, None, b'{"id":1}']
    for content in wire.schemas([*wire.COLUMNS, wire.field("more", "int32", "INT4")]):
        stream.rows.add_schema(content.replace(b"\0\0\0\1{", b"\0\0\0\2{", 1))
    altered = wire.change("c", None, {"id": 2, "note": "a", "more": 5})
    stream.take(wire.begin(8, 1100), altered[:4] + b"\0\0\0\2" + altered[8:], wire.end(8, 1200, 1))
    assert [each.get("op", "schema") for each in stream.values][-2:] == ["schema", "c"]
    assert stream.changes[-1]["after"] == {"id": 2, "note": "a", "more": 5}


def test_former_schemas_are_forgotten_once_nothing_that_was_read_has_them(stream):
    stream.take(wire.begin(7, 900), wire.change("c", None, {"id": 0, "note": "a"}))
    for number in range(2, 30):
        columns = [*wire.COLUMNS, wire.field(f"more{number}", "int32", "INT4")]
        (_, content) = wire.schemas(columns)
        stream.rows.add_schema(number.to_bytes(4, "big") + content[4:])
        altered = wire.change("c", None, {"id": number, "note": "a", f"more{number}": 5})
        stream.take(altered[:4] + number.to_bytes(4, "big") + altered[8:])
    # The key's, and all of which a change waits for the end of its transaction.
    assert len(stream.rows._schemas) == 30
    stream.take(wire.end(7, 1000, 29))
    assert [each["after"]["id"] for each in stream.changes] == [0, *range(2, 30)]
    assert sorted(stream.rows._schemas) == [wire.KEY_SCHEMA, 29]


def test_an_old_row_that_debezium_filled_up_is_the_key_alone(tmp_path):
    columns = [*wire.COLUMNS, wire.field("day", "string", "DATE"), wire.field("n", "string", "NUMERIC")]
    stream = Stream(tmp_path, columns=columns)
    filled = {"id": 1, "note": "", "day": "1970-01-01Z", "n": "0.00"}
    whole = {"id": 2, "note": "a", "day": None, "n": "0"}
    stream.take(wire.begin(7, 900), wire.change("d", filled, None), wire.change("d", whole, None), wire.end(7, 1000, 2))
    assert [each["before"] for each in stream.changes] == [{"id": 1}, whole]


def test_rows_are_as_the_engine_wrote_them_and_a_key_has_one_form_however_its_row_is_read(tmp_path):
    columns = [
        wire.field("id", "string", "TEXT"),
        wire.field("note", "string", "TEXT"),
        wire.field("f", "double", "F8"),
    ]
    # As Java writes a number and a line break, which Python writes otherwise or not.
    row = '{"id":"a\\né","note":null,"f":1.0E10}'
    written = (
        f'{{"before":{row},"after":{after},"source":{{"ts_ms":1,"table":"t"}},"op":"u"}}'
        for after in (row, row.replace("null", f'"{PLACEHOLDER}"'))
    )
    stream = Stream(tmp_path, columns=columns)
    key, schemas = '{"id":"a\\né"}', (wire.KEY_SCHEMA, wire.VALUE_SCHEMA)
    changes = [wire.record(wire.TABLE, None, key, value, schemas) for value in written]
    stream.take(wire.begin(7, 900), *changes, wire.end(7, 1000, 2))
    _, passed_on, read = stream.batcher.values
    assert passed_on.startswith(f'{{"before":{row},"after":{row},"source"'.encode())
    assert b'"unchanged":["note"],' in read
    assert stream.batcher.keys[1:] == ['{"id":"a\\né"}'.encode()] * 2


def test_a_character_that_java_escapes_takes_no_more_than_its_bytes(tmp_path):
    columns = [wire.field("id", "int32", "INT4"), wire.field("note", "string", "TEXT")]
    row = '{"id":1,"note":"\\uD83D\\uDE00\\u001F"}'
    value = f'{{"before":null,"after":{row},"source":{{"ts_ms":1,"table":"t"}},"op":"c"}}'
    stream = Stream(tmp_path, columns=columns)
    change = wire.record(wire.TABLE, None, {"id": 1}, value, (wire.KEY_SCHEMA, wire.VALUE_SCHEMA))
    stream.take(wire.begin(7, 900), change, wire.end(7, 1000, 1))
    assert '"after":{"id":1,"note":"😀\\u001f"}'.encode() in stream.batcher.values[-1]


def test_tables_whose_names_kafka_does_not_distinguish_are_two_and_each_has_its_policy(tmp_path):
    columns = [wire.field("id", "int32", "INT4"), wire.field("note", "string", "TEXT")]
    policy = PolicySection(columns=[ColumnRule(columns=["public.tä.note"], action="exclude")])
    stream = Stream(tmp_path, policy=policy, columns=columns)
    changes = [
        wire.change("c", None, {"id": number, "note": "n"}, table=table) for number, table in enumerate(("tö", "tä"), 1)
    ]
    stream.take(wire.begin(7, 900), *changes, wire.end(7, 1000, 2))
    assert [(each["source"]["table"], each["after"]) for each in stream.changes] == [
        ("tö", {"id": 1, "note": "n"}),
        ("tä", {"id": 2}),
    ]


def test_a_table_in_a_schema_whose_name_begins_as_that_of_a_status_is_one(tmp_path):
    stream = Stream(tmp_path)
    change = wire.change("c", None, {"id": 1, "note": "n"}, topic=f"{wire.TRANSACTIONS}s.t")
    stream.take(wire.begin(7, 900), change, wire.end(7, 1000, 1))
    assert [each["after"]["id"] for each in stream.changes] == [1]


def test_a_key_has_the_columns_of_its_schema_alone(tmp_path):
    stream = Stream(tmp_path)
    change = wire.change("c", None, {"id": 1, "note": "n"}, key={"id": 1, "note": "n"})
    stream.take(wire.begin(7, 900), change, wire.end(7, 1000, 1))
    assert stream.batcher.keys[-1] == b'{"id":1}'


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(PLACEHOLDER, id="text"),
        pytest.param("aGVhZHJhY2UtdW5hdmFpbGFibGUtMQ==", id="bytea"),
        pytest.param([PLACEHOLDER], id="text[]"),
        pytest.param(["aGVhZHJhY2UtdW5hdmFpbGFibGUtMQ=="], id="bytea[]"),
        pytest.param([*PLACEHOLDER.encode()], id="int4[], int8[], date[]"),
        pytest.param(["d2aab224-c0de-3d49-a75e-7c5d23db9d27"], id="uuid[]"),
        pytest.param('{"headrace-unavailable-1":"headrace-unavailable-1"}', id="hstore"),
    ],
)
@pytest.mark.parametrize("op", ["u", "c"])
def test_what_the_log_does_not_carry_is_named_and_not_sent(stream, value, op):
    # An update that changes the key is a delete and an insert, whose row lacks the same.
    stream.take(wire.begin(7, 900), wire.change(op, None, {"id": 1, "note": value}), wire.end(7, 1000, 1))
    assert [(each["after"], each["unchanged"]) for each in stream.changes] == [({"id": 1}, ["note"])]


def test_the_policy_keeps_columns_and_tables_back(tmp_path):
    rules = [ColumnRule(columns=["public.t.note"], action="exclude"), ColumnRule(columns=["*.*.card"], action="mask")]
    columns = [*wire.COLUMNS, wire.field("card", "int64", "INT8")]
    stream = Stream(tmp_path, PolicySection(columns=rules), columns)
    row = {"id": 1, "note": "secret", "card": 42}
    stream.take(wire.begin(7, 900), wire.change("u", row, row), wire.end(7, 1000, 1))
    assert stream.changes[0]["after"] == stream.changes[0]["before"] == {"id": 1, "card": "****"}
    assert b"secret" not in b"".join(stream.batcher.values)
    table = stream.values[0]["tableChanges"][0]["table"]
    assert (table["excluded"], [column.get("policy") for column in table["columns"]]) == (["note"], [None, "mask"])

    left_out = Stream(tmp_path, PolicySection(exclude_tables=["public.t"]))
    left_out.take(wire.begin(7, 900), wire.change("u", row, row), wire.end(7, 1000, 1))
    assert left_out.batcher.values == []
    assert left_out.stream.reached == 1000


@pytest.mark.parametrize(
    ("contents", "error"),
    [
        ([wire.end(7, 1000, 0)], CorruptInput),
        ([wire.begin(7, 900), wire.end(8, 1000, 0)], CorruptInput),
        ([wire.begin(7, 900), wire.end(7, 1000, 3)], CorruptInput),
        ([wire.begin(7, 50), wire.end(7, 60, 0)], NeedsOperator),
        (
            [wire.begin(7, 900), wire.change("c", None, {"note": "a"}, key={"note": 1}), wire.end(7, 1000, 1)],
            CorruptInput,
        ),
        ([wire.change("c", None, {"id": 1})], NeedsOperator),
        ([wire.change("r", None, {"id": 1}, snapshot="incremental")], NeedsOperator),
        ([wire.record(wire.TRANSACTIONS, {"lsn": 1}, None, {"status": "BEGIN"})], CorruptInput),
        ([wire.record(wire.HEARTBEATS, {"file": "binlog.000001", "pos": 4})], CorruptInput),
        ([wire.record(wire.HEARTBEATS, {"lsn": -1})], CorruptInput),
        ([wire.record(wire.HEARTBEATS, {"lsn": "x"})], CorruptInput),
        ([wire.record(wire.HEARTBEATS, "[]")], CorruptInput),
        ([wire.heartbeat(200)[:-3]], CorruptInput),
        ([wire.heartbeat(200) + b"\0"], CorruptInput),
        ([b""], CorruptInput),
    ],
)
def test_what_the_engine_would_not_send_is_an_error(stream, contents, error):
    with pytest.raises(error):
        stream.take(*contents)
    assert stream.batcher.values == []


def test_frames_are_the_same_however_they_arrive():
    data = wire.hello() + wire.frame("R", wire.heartbeat(5)) + wire.frame("S", wire.schema(0, []))
    whole = list(FrameReader().feed(data))
    assert [kind for kind, _ in whole] == [*b"HRS"]
    for size in (1, 3, 7):
        reader = FrameReader()
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert [each for piece in pieces for each in reader.feed(piece)] == whole
        reader.end()
    with pytest.raises(CorruptInput):
        list(read_frames(io.BytesIO(data[:-1])))
    assert EngineRecord.parse(whole[1][1]).topic == wire.HEARTBEATS


@pytest.mark.parametrize("data", [b"\0\0\0\0x", b"\xff\xff\xff\xffR", b"\0\0\0\5XYZab", b"Exception in thread"])
def test_bytes_that_are_no_frames_are_an_error(data):
    with pytest.raises(CorruptInput):
        list(FrameReader().feed(data))


def test_places_of_postgresql_are_the_ends_of_transactions():
    assert place_of("postgres", '{"lsn":24306296,"txId":757,"ts_usec":1795691204437909}') == 24306296
    offset = '{"lsn_proc":24308032,"messageType":"UPDATE","lsn_commit":24308240,"lsn":24308032,"txId":762,"ts_usec":1}'
    assert place_of("postgres", offset) == 24308240
