"""Records in Avro of what was JSON: of the binlog's tables, and of every type that schema records name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.records import avro_encoding as avro
from edge.records.avro_records import AvroRecords
from headrace.errors import NeedsOperator
from headrace.schema import Column, TableSchema
from tests.lake.avro_reading import read
from tests.unit.edge.mysql.events import feed, make_decoder, rotate, rows
from tests.unit.edge.mysql.test_decoder import ACCOUNTS, ANA, BUDI, NULL, transaction


def test_changes_of_the_binlog_hold_what_those_in_json_hold():
    decoder, batcher = make_decoder()
    feed(decoder, rotate(), *transaction(ACCOUNTS, rows(30, 2, ANA + NULL), rows(31, 2, ANA + BUDI), rows(32, 2, ANA)))

    keys, values, (written,) = AvroRecords().encode(batcher.keys, batcher.values)

    assert values[0] == batcher.values[0]
    assert [read(key[5:], written.key) for key in keys[1:]] == [json.loads(key) for key in batcher.keys[1:]]
    for value, plain in zip(values[1:], batcher.values[1:], strict=True):
        result, wanted = read(value[5:], written.value), json.loads(plain)
        last = result.pop("last")
        assert {name: result[name] for name in ("op", "ts_ms", "before", "after")} == {
            name: wanted[name] for name in ("op", "ts_ms", "before", "after")
        }
        assert {name: result["source"][name] for name in wanted["source"]} == wanted["source"]
        assert result["transaction"]["total_order"] == wanted["transaction"]["total_order"]
        assert last == wanted["transaction"].get("last")


@pytest.mark.parametrize("spoiled", [b"\xb1na", b'"na'])
def test_a_value_of_another_form_is_refused_with_its_place_and_not_shown(spoiled):
    decoder, batcher = make_decoder()
    feed(decoder, rotate(), *transaction(ACCOUNTS, rows(30, 2, ANA)))
    values = [value.replace(b"Ana", spoiled) for value in batcher.values]
    assert values != batcher.values
    with pytest.raises(
        NeedsOperator, match=r"^a value in the change of bank\.accounts at position [0-9a-f/]+ is not in UTF-8"
    ):
        AvroRecords().encode(batcher.keys, values)


def test_the_place_of_a_value_of_another_form_is_not_taken_from_a_row():
    """Columns may be named as the parts of a change's source."""
    value = (
        b'{"before":null,"after":{"schema":"s3cret","table":"hidden","position":"1/2/3","x":"\xb1"},'
        b'"source":{"version":"1","connector":"mysql","name":"a/b","ts_ms":1,"snapshot":"false","db":"d","schema":"bank",'
        b'"table":"acc\\"ounts","position":"4/5/6"},"op":"c"}'
    )
    with pytest.raises(
        NeedsOperator, match=r'^a value in the change of bank\.acc"ounts at position 4/5/6 is not in UTF-8'
    ):
        AvroRecords().encode([b'{"id":1}'], [value])


VALUES = [
    ("BIGINT UNSIGNED", None, (1 << 64) - 1, b"\0" + b"\xff" * 8),
    ("BIGINT", None, -(1 << 63), -(1 << 63)),
    ("TINYINT UNSIGNED", None, 255, 255),
    ("FLOAT", None, 0.5, 0.5),
    ("DOUBLE", None, 1, 1.0),
    ("float8", None, "-Infinity", float("-inf")),
    ("BLOB", None, "AP8=", b"\0\xff"),
    ("JSON", None, '{"a":1}', '{"a":1}'),
    ("ENUM", None, "é", "é"),
    ("bool", None, False, False),
    ("numeric", "org.apache.kafka.connect.data.Decimal", "/2o=", b"\xff\x6a"),
    ("date", "io.debezium.time.Date", -2147472692, -2147472692),
    # What Avro has no type for is text.
    ("anything", "of.another.tool.Form", {"a": [1]}, '{"a":[1]}'),
]


@pytest.mark.parametrize(("type_name", "form", "value", "expected"), VALUES, ids=[f"{v[0]}-{v[2]}" for v in VALUES])
def test_a_value_of_each_type(type_name, form, value, expected):
    columns = [Column(name="c", type_name=type_name, position=1, form=form)]
    schema = TableSchema(schema="s", table="t", key=[], columns=columns)
    source = {
        "version": "1", "connector": "mariadb", "name": "a/b", "ts_ms": 1, "snapshot": "false", "db": "s", "schema": "s",
        "table": "t", "server_id": 1, "gtid": None, "file": "f", "pos": 1, "row": 0, "position": "p",
    }  # fmt: skip
    announced = {"source": source, "tableChanges": [schema.change()]}
    change = {"before": None, "after": {"c": value}, "source": source, "op": "c", "transaction": None}
    records = [json.dumps(each, separators=(",", ":")).encode() for each in (announced, change)]
    _, (_, encoded), (written,) = AvroRecords().encode([None, None], records)
    assert read(encoded[5:], written.value)["after"] == {"c": expected}


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_every_long_is_read_back(number):
    assert read(avro.long(number), '"long"') == number
    assert avro.Longs()[b"%d" % number] == avro.long(number)


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1])
def test_what_is_no_long_is_refused(number):
    with pytest.raises(ValueError, match="fit"):
        avro.long(number)


@given(st.one_of(st.none(), st.text()))
def test_a_text_or_null_is_read_back(value):
    assert read(avro.optional(avro.text)(value), ["null", "string"]) == value
