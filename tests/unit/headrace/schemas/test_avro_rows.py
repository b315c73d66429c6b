"""Rows in Avro: every value comes back, damaged records are refused, names of columns are only names."""

import json
import math

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.schemas.avro_json.envelope import Records
from tests.unit.headrace.schemas.test_avro_json import NO_NAME, OF_POSTGRESQL, column, written

COLUMNS = [
    *(column("int8", name="id"), column("text", name="part", position=2), column("float8", name="f8", position=3)),
    *(column("text", name="note", position=4), column("bool", name="flag", position=5)),
    *(column("bytea", name="data", position=6), column("float4", name="f4", position=7)),
    *(column("int8", name="number", position=8), column("any", "array<string>", name="words", position=9)),
]
TEXTS = st.text() | st.text(alphabet='"\\\x00\x1f\x7f é€🙂ÿ', max_size=5) | st.text(min_size=60, max_size=70)
INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
ROWS = st.fixed_dictionaries(
    {"id": INTEGERS, "part": TEXTS},
    optional={
        "f8": st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["NaN", "-Infinity"]),
        "note": st.none() | TEXTS, "flag": st.none() | st.booleans(), "data": st.none() | st.just("AP8="),
        "f4": st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False), "number": st.none() | INTEGERS,
        "words": st.none() | st.lists(st.none() | TEXTS),
    },
)  # fmt: skip


def outcome(read, data):
    """What reading gives: the record, or that it is refused."""
    try:
        return read(data)
    except ValueError:
        return None


def changes(*rows):
    values = [{"before": None, "after": row, "op": "c"} for row in rows]
    values += [{"before": {"id": row["id"], "part": row["part"]}, "after": None, "op": "d"} for row in rows]
    values += [{"before": row, "after": rows[0], "op": "u"} for row in rows]
    return [each | {"source": OF_POSTGRESQL, "ts_ms": 5, "transaction": None} for each in values]


@settings(max_examples=50)
@given(st.lists(ROWS, min_size=1, max_size=3))
@example([{"id": 0, "part": ""}])
@example([{"id": -1, "part": "ÿÿ", "note": None}, {"id": 64, "part": '"\n', "note": "ÿÿ"}])
def test_every_row_and_key_is_read(rows):
    keys, values, _, records = written(COLUMNS, *changes(*rows), key=["id", "part"], source=OF_POSTGRESQL)
    assert json.loads(records.key(keys[0])) == {name: rows[0][name] for name in ("id", "part")}
    result = [records.value(value) for value in values]
    row = dict.fromkeys(each.name for each in COLUMNS) | rows[0]
    # a text of single precision may be a shorter one than it was made of
    assert json.loads(result[0])["after"] | {"f4": None} == row | {"f4": None}


@settings(max_examples=50)
@given(ROWS, st.data())
def test_a_damaged_record_is_refused_or_read_and_changes_nothing_for_others(row, data):
    _, (value, *_), _, records = written(COLUMNS, *changes(row), key=["id", "part"], source=OF_POSTGRESQL)
    intact = records.value(value)
    damaged = bytearray(value)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(5, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(5, len(value)))])
    for wrong in (bytes(damaged), cut):
        # anything but a ValueError would end the load
        outcome(records.value, wrong)
    assert records.value(value) == intact


HOSTILE = [
    '"+__import__("sys").exit(7)+"',
    "{__import__('sys').exit(7)}",
    '}{"""\n    raise SystemExit(7)\n',
    "\\N{BULLET}{c0}{v0}\\",
    "'\x00\x1f é🙂",
    "if",
]


def test_names_of_columns_are_never_code():
    columns = [column("text", name=name, position=at) for at, name in enumerate(HOSTILE, 1)]
    row = dict.fromkeys(HOSTILE, "x") | {HOSTILE[1]: None}
    change = {"before": None, "after": row, "source": NO_NAME, "op": "c", "ts_ms": 5, "transaction": None}
    keys, values, _, records = written(columns, change, key=[HOSTILE[0], HOSTILE[2]])
    assert json.loads(records.value(values[0]))["after"] == row
    assert json.loads(records.key(keys[0])) == {name: row[name] for name in (HOSTILE[0], HOSTILE[2])}


def test_a_table_of_as_many_columns_as_postgresql_has():
    width = 1600
    columns = [column("text", name=f"c{at}", position=at) for at in range(1, width + 1)]
    row = {each.name: f"x{each.position}" if each.position % 3 else None for each in columns}
    change = {"before": None, "after": row, "source": NO_NAME, "op": "c", "ts_ms": 5, "transaction": None}
    _, values, _, records = written(columns, change)
    assert json.loads(records.value(values[0]))["after"] == row


def test_numbers_are_written_as_json_has_them():
    numbers = [0.1, -0.0, 1e300, 5e-324, 1e16, 123456789.0, math.pi]
    result = [
        {"before": None, "after": {"c": number}, "source": NO_NAME, "op": "c", "ts_ms": 5, "transaction": None}
        for number in numbers
    ]
    _, values, _, records = written([column("float8")], *result)
    texts = [records.value(value).partition(b'"c":')[2].partition(b"}")[0].decode() for value in values]
    assert texts == [repr(number) for number in numbers]


WHERE = st.fixed_dictionaries(
    {
        "ts_ms": st.integers(0, 2),
        "txId": st.none() | st.integers(0, 300),
        "position": st.sampled_from(["00000001/0000000000000000/00000000", "x" * 34, 'é"', "y" * 70]),
    },
    optional={"ts_us": st.just(7), "sequence": st.text(max_size=2), "snapshot": st.sampled_from(["false", "true"])},
)
PLACES = st.none() | st.fixed_dictionaries(
    {"id": st.sampled_from(["7", "8:1", '"é']), "total_order": st.integers(1, 200)},
    optional={"data_collection_order": st.just(3), "last": st.just(True)},
)


@settings(max_examples=50)
@given(st.lists(st.tuples(WHERE, PLACES, st.integers(0, 1)), min_size=1, max_size=6), st.data())
def test_what_was_read_before_makes_no_difference(all_of_them, data):
    result = [
        {
            "before": None,
            "after": {"c": "x"},
            "source": OF_POSTGRESQL | where,
            "op": "c",
            "ts_ms": ts,
            "transaction": place,
        }
        for where, place, ts in all_of_them
    ]
    _, values, plain, records = written([column("text")], *result, source=OF_POSTGRESQL)
    for value, text in zip(values, plain, strict=True):
        # a record in between that is cut anywhere
        outcome(records.value, value[: data.draw(st.integers(5, len(value)))])
        assert records.value(value) == Records(records._schemas).value(value)
        given_one, read = json.loads(text), json.loads(records.value(value))
        assert read["transaction"] == given_one["transaction"]
        assert [read["source"][name] for name in ("ts_ms", "txId", "position")] == [
            given_one["source"][name] for name in ("ts_ms", "txId", "position")
        ]
