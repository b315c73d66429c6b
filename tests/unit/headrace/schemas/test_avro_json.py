"""Records in Avro become the JSON that the edge would have written."""

import json
import subprocess
import sys
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.records.avro_records import AvroRecords
from headrace.schema import Column, TableSchema
from headrace.schemas.avro_json.envelope import Reader, Records, UnknownSchema, reader_of
from headrace.schemas.avro_json.values import read_long
from tests.unit.edge.mysql.events import feed, make_decoder, rotate, rows
from tests.unit.edge.mysql.test_decoder import ACCOUNTS, ANA, BUDI, NULL, transaction

NO_NAME = {"version": "1", "connector": "mariadb", "name": "a/b", "ts_ms": 1, "snapshot": "false", "db": "s", "schema": "s.x",
           "table": "t t", "server_id": 1, "gtid": None, "file": "f", "pos": 1, "row": 0, "position": "p"}  # fmt: skip
OF_POSTGRESQL = {"version": "1", "connector": "postgresql", "name": "a/b", "ts_ms": 1, "snapshot": "incremental", "db": "s",
                 "schema": "public", "table": "9t", "txId": 3, "lsn": None, "position": "p"}  # fmt: skip


def written(columns, *changes, key=(), source=NO_NAME):
    """Return keys and values of changes in Avro, and what reads them with an id for each schema."""
    schema = TableSchema(schema=source["schema"], table=source["table"], key=list(key), columns=columns)
    announced = {"source": source, "tableChanges": [schema.change()]}
    plain = [json.dumps(each, separators=(",", ":"), ensure_ascii=False).encode() for each in (announced, *changes)]
    rows = [change.get("after") or change.get("before") or {} for change in changes]
    keys = [json.dumps({name: row[name] for name in key}).encode() if key else None for row in rows]
    keys, values, (made,) = AvroRecords().encode([None, *keys], plain)
    schemas = {1000: made.value} | ({1001: made.key} if made.key else {})
    ids = [b"\0" + number.to_bytes(4, "big") for number in (1001, 1000)]
    return (
        [key and ids[0] + key[5:] for key in keys[1:]],
        [ids[1] + value[5:] for value in values[1:]],
        plain[1:],
        Records(schemas),
    )


def column(type_name, form=None, *, name="c", position=1, scale=None, policy=None):
    return Column(name=name, type_name=type_name, position=position, form=form, scale=scale, policy=policy)


VALUES = [
    ("BIGINT UNSIGNED", None, (1 << 64) - 1),
    ("BIGINT UNSIGNED", None, 0),
    ("BIGINT", None, -(1 << 63)),
    ("int8", None, (1 << 63) - 1),
    ("TINYINT", None, -1),
    ("YEAR", None, 2026),
    ("bool", None, False),
    ("bool", None, True),
    ("float4", None, 0.1),
    ("float4", None, 3.4028235e38),
    ("FLOAT", None, "NaN"),
    ("float8", None, "-Infinity"),
    ("float8", None, 0.1),
    ("DOUBLE", None, 1e300),
    ("DOUBLE", None, -0.0),
    ("bytea", None, "AP8="),
    ("BLOB", None, ""),
    ("JSON", None, '{"a":"\\u00e9\\n"}'),
    ("text", None, 'a "b" \\ \n\t é 🙂 \x7f'),
    ("timestamptz", None, "2026-01-31T09:15:00.25Z"),
    ("numeric", None, "12.50"),
    ("numeric", "org.apache.kafka.connect.data.Decimal", "/2o="),
    ("numeric", "io.debezium.data.VariableScaleDecimal", {"scale": 2, "value": "BOI="}),
    ("numeric", "double", 12.5),
    ("date", "io.debezium.time.Date", -2147472692),
    ("timestamp", "io.debezium.time.MicroTimestamp", 1),
    ("anything", None, None),
]


@pytest.mark.parametrize(("type_name", "form", "value"), VALUES, ids=[f"{v[0]}-{v[1]}-{v[2]!r:.20}" for v in VALUES])
def test_a_value_of_each_type_is_as_in_json(type_name, form, value):
    change = {"before": None, "after": {"c": value}, "source": NO_NAME, "op": "c", "ts_ms": 5,
              "transaction": {"id": "7", "total_order": 2, "last": True}}  # fmt: skip
    _, values, plain, records = written([column(type_name, form, scale=2 if form else None)], change)
    assert json.loads(records.value(values[0])) == json.loads(plain[0])


@given(
    st.lists(st.none() | st.text()), st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)),
    st.dictionaries(st.text(), st.none() | st.text()), st.integers(0, 1 << 62), st.binary(),
)  # fmt: skip
def test_arrays_maps_and_structures_are_as_in_json(texts, numbers, pairs, whole, data):
    row = {
        "texts": texts,
        "numbers": numbers,
        "pairs": pairs,
        "decimals": [{"scale": 2, "value": b64encode(data).decode()}, None],
        "points": {"x": whole / 3, "y": -0.0, "wkb": None, "srid": whole & 0xFFFF},
    }
    forms = {
        "texts": "array<string>",
        "numbers": "array<float64>",
        "pairs": "map",
        "decimals": "array<io.debezium.data.VariableScaleDecimal>",
        "points": "io.debezium.data.geometry.Point",
    }
    columns = [column("any", form, name=name, position=at) for at, (name, form) in enumerate(forms.items(), 1)]
    change = {"before": None, "after": row, "source": NO_NAME, "op": "c", "ts_ms": 5, "transaction": None}
    _, values, plain, records = written(columns, change)
    assert json.loads(records.value(values[0])) == json.loads(plain[0])


CHANGES = [
    {"before": None, "after": {"id": 1, "a b": "x", "c": None}, "op": "c"},
    {"before": {"id": 1}, "after": {"id": 2, "a b": "x"}, "op": "u", "unchanged": ["c"]},
    {"before": {"id": 1, "a b": "x", "c": None}, "after": None, "op": "d"},
    {
        "before": None,
        "after": {"id": 2},
        "op": "u",
        "unchanged": ["a b", "c"],
        "too_large": {"bytes": 9, "sha256": "00"},
    },
    {"before": None, "after": {"id": 2, "a b": "x", "c": "y"}, "op": "c", "former_key": {"id": 1}},
    {"before": None, "after": {"id": 2, "a b": "x", "c": "y"}, "op": "r"},
]


@pytest.mark.parametrize("change", CHANGES, ids=[f"{c['op']}-{'-'.join(list(c)[3:])}" for c in CHANGES])
@pytest.mark.parametrize("source", [NO_NAME, OF_POSTGRESQL], ids=["mariadb", "postgresql"])
def test_a_record_of_each_form_is_as_in_json(change, source):
    columns = [column("int8", name="id"), column("text", name="a b", position=2), column("text", name="c", position=3)]
    whole = {name: change[name] for name in ("before", "after")} | {
        name: change[name] for name in ("former_key", "unchanged", "too_large") if name in change
    } | {"source": source, "op": change["op"], "ts_ms": 5,
         "transaction": {"id": "7:8", "total_order": 1, "data_collection_order": 1}}  # fmt: skip
    keys, values, (plain,), records = written(columns, whole, key=["id"], source=source)
    # Also the order of fields: bronze finds the envelope at the record's end, and the key at its beginning.
    assert records.value(values[0]) == plain
    row = change["after"] or change["before"]
    assert json.loads(records.key(keys[0])) == {"id": row["id"]}


def test_changes_of_the_binlog_are_as_in_json():
    decoder, batcher = make_decoder()
    feed(decoder, rotate(), *transaction(ACCOUNTS, rows(30, 2, ANA + NULL), rows(31, 2, ANA + BUDI), rows(32, 2, ANA)))
    keys, values, (schemas,) = AvroRecords().encode(batcher.keys, batcher.values)
    number = int.from_bytes(values[1][1:5], "big")
    of_keys, of_values = Records({number: schemas.key}), Records({number: schemas.value})
    assert [of_keys.key(key) for key in keys] == list(batcher.keys)
    assert [json.loads(of_values.value(value)) for value in values] == [json.loads(value) for value in batcher.values]


def test_what_is_json_stays_as_it_is():
    assert Records({}).value(b'{"a":1}') == b'{"a":1}'
    assert Records({}).key(None) is None
    assert Records({}).value(None) is None


def test_a_schema_that_is_not_known_is_reported():
    with pytest.raises(UnknownSchema, match="77"):
        Records({}).value(b"\0\0\0\0\x4d\0")


def test_a_record_that_is_not_of_its_schema_is_refused_without_its_values():
    change = {"before": None, "after": {"c": "secret"}, "source": NO_NAME, "op": "c", "ts_ms": 5, "transaction": None}
    _, (value,), _, records = written([column("text")], change)
    for wrong in (value[:-3], value + b"\0", value[:20]):
        with pytest.raises(ValueError) as caught:
            records.value(wrong)
        assert "secret" not in str(caught.value)


def test_an_id_that_a_registry_gave_to_another_table_is_refused():
    change = {"before": None, "after": {"c": "x"}, "source": NO_NAME, "op": "c", "ts_ms": 5, "transaction": None}
    _, (value,), _, _ = written([column("text")], change)
    other = {**NO_NAME, "table": "u"}
    _, _, _, records = written([column("text")], {**change, "source": other}, source=other)
    with pytest.raises(ValueError, match="another table"):
        records.value(value)


def test_spark_executors_need_nothing_but_the_standard_library():
    code = (
        "import sys, headrace.schemas.avro_json.envelope\n"
        "print([n for n in ('msgspec', 'pyspark', 'edge') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


#: Schemas that a registry may hold, and no edge writes.
NO_SCHEMAS = {
    "no JSON": "x", "a text": '"string"', "a list": "[]", "nothing": "{}", "null": "null",
    "an envelope without fields": '{"name":"Envelope","fields":[]}',
    "fields are texts": '{"name":"Key","fields":["a"]}',
    "a type that is unknown": '{"name":"Key","fields":[{"name":"a","type":"x"}]}',
    "nested": '{"name":"Key","fields":[{"name":"a","type":' + '{"type":"array","items":' * 5000 + '"int"' + "}" * 5000 + "}]}",
    # S7: of what takes no byte, six bytes hold 2 ** 40, and a schema of some lines any number.
    "of no size": '{"name":"Key","fields":[{"name":"a","type":{"type":"array","items":'
    '{"type":"record","name":"n","fields":[]}}}]}',
}  # fmt: skip


@pytest.mark.parametrize("name", NO_SCHEMAS)
def test_s4_a_schema_that_no_edge_writes_is_an_error_of_its_records_alone(name):
    with pytest.raises(ValueError, match="was not written by an edge"):
        reader_of(NO_SCHEMAS[name])
    data = b"\0\0\0\0\1\x80\x80\x80\x80\x80\x40"
    with pytest.raises(ValueError, match="not of its schema"):
        Reader({1: NO_SCHEMAS[name]}, "not of its schema", "unknown")("t", 0, 1, data, None)
    reader = Reader({1: NO_SCHEMAS[name]}, None, "unknown")
    assert reader("t", 0, 1, None, data) == (None, data)
    assert reader("t", 0, 2, b"{}", None) == (b"{}", None)
    with pytest.raises(ValueError, match="unknown"):
        reader("t", 0, 3, None, b"\0\0\0\0\2x")


def test_s7_a_number_without_end_is_refused_at_its_eleventh_byte():
    """Each byte more costs as much as all before it: a record of some megabytes took hours."""
    with pytest.raises(ValueError, match="longer than any"):
        read_long(b"\xff" * (16 << 20), 0)
    assert read_long(b"\xff" * 9 + b"\1", 0) == (-(1 << 63), 10)


def test_s3_what_is_in_the_operation_forges_no_other_member():
    """Found by fuzzing: it was put between quotes as it came, and could name another source."""
    change = {"before": None, "after": {"c": 1}, "source": NO_NAME, "op": "c", "ts_ms": 5, "transaction": None}
    _, (value,), _, records = written([column("int8")], change)
    forged = 'u","source":{"name":"london/bank"},"x":"'
    assert value[5:7] == b"\2c"
    hostile = value[:5] + bytes([2 * len(forged)]) + forged.encode() + value[7:]
    result = json.loads(records.value(hostile), object_pairs_hook=lambda pairs: pairs)
    names = [name for name, _ in result]
    assert len(set(names)) == len(names)
    assert dict(result)["op"] == forged
