"""Values of the binlog in Debezium's forms, by `[records]` decimal, time, binary and types."""

import base64
import json

import pytest

from headrace.configuration.edge import Records
from headrace.errors import ConfigurationError, NeedsOperator
from tests.unit.edge.mysql.events import Column, feed, make_decoder, mysql_gtid, query, rotate, rows, table_map, xid

COLUMNS = (
    Column("id", 3, unsigned=False), Column("n", 246, b"\x05\x02", unsigned=False), Column("d", 10), Column("s", 18, b"\x00"),
    Column("m", 18, b"\x06"), Column("t", 19, b"\x00"), Column("b", 15, b"\x09\x00", collation=63),
)  # fmt: skip
CONNECT, TIME = "org.apache.kafka.connect.data.", "io.debezium.time."


def day(year, month, number):
    return (year << 9 | month << 5 | number).to_bytes(3, "little")


def moment(year, month, number, clock=0, fraction=b""):
    return (0x8000000000 + (((year * 13 + month) << 5 | number) << 17 | clock)).to_bytes(5, "big") + fraction


AT = 9 << 12 | 15 << 6
FIRST = (
    b"\0\1\0\0\0" + b"\x80\x0c\x22" + day(2026, 1, 31) + moment(2026, 1, 31, AT) + moment(2026, 1, 31, AT, b"\0\0\1")
)
FIRST += (0x800000 - (838 << 12 | 59 << 6 | 59)).to_bytes(3, "big") + b"\2\xfb\xff"
ZEROS = b"\0\2\0\0\0" + b"\x7f\xff\xfe" + day(2026, 0, 1) + moment(0, 0, 0) + moment(2026, 2, 31, 0, b"\0\0\0")
ZEROS += (0x800000).to_bytes(3, "big") + b"\0"


def written(records, nullable=None):
    decoder, batcher = make_decoder(records=records)
    described = table_map(*COLUMNS, nullable=nullable)
    feed(decoder, rotate(), mysql_gtid(1, 200), query("BEGIN", 250), described, rows(30, 7, FIRST + ZEROS), xid(500))
    columns = json.loads(batcher.values[0])["tableChanges"][0]["table"]["columns"]
    values = [json.loads(value)["after"] for value in batcher.values[1:]]
    return {it["name"]: it.get("form") for it in columns}, [list(row.values())[1:] for row in values]


@pytest.mark.parametrize(
    ("mode", "names", "values"),
    [
        ("adaptive", ["Date", "Timestamp", "MicroTimestamp", "MicroTime"],
         [20484, 1769850900000, 1769850900000001, -3020399000000]),
        ("microseconds", ["Date", "MicroTimestamp", "MicroTimestamp", "MicroTime"],
         [20484, 1769850900000000, 1769850900000001, -3020399000000]),
        ("nanoseconds", ["Date", "NanoTimestamp", "NanoTimestamp", "NanoTime"],
         [20484, 1769850900000000000, 1769850900000001000, -3020399000000000]),
        ("connect", ["Date", "Timestamp", "Timestamp", "Time"], [20484, 1769850900000, 1769850900000, -3020399000]),
    ],
)  # fmt: skip
def test_times(mode, names, values):
    forms, (first, zeros) = written(Records(time=mode))

    prefix = CONNECT if mode == "connect" else TIME
    assert [forms[name] for name in "dsmt"] == [prefix + name for name in names]
    assert first[1:5] == values
    assert zeros[1:5] == [None, None, None, 0]


def test_what_is_no_date_is_the_first_of_1970_in_columns_that_are_not_null():
    _, (_, zeros) = written(Records(time="adaptive"), nullable=b"\0")

    assert zeros[1:5] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("mode", "form", "values"),
    [("string", None, ["12.34", "-0.01"]), ("double", "double", [12.34, -0.01]),
     ("precise", f"{CONNECT}Decimal", ["BNI=", "/w=="])],
)  # fmt: skip
def test_decimals(mode, form, values):
    forms, found = written(Records(decimal=mode))

    assert (forms["n"], [row[0] for row in found]) == (form, values)


@pytest.mark.parametrize(
    ("mode", "form", "value"),
    [("base64", None, "+/8="), ("base64-url-safe", "base64-url-safe", "-_8="), ("hex", "hex", "fbff")],
)
def test_bytes(mode, form, value):
    forms, found = written(Records(binary=mode))

    assert (forms["b"], [row[-1] for row in found]) == (form, [value, ""])


def test_a_truncate_is_left_out_where_it_is_not_wanted():
    decoder, batcher = make_decoder(records=Records(truncates=False))

    feed(decoder, rotate(), mysql_gtid(1, 200), query("truncate table accounts", 300))

    assert (batcher.values, decoder.passed) == ([], 7 << 32 | 300)


def keyed(row, records, key):
    decoder, batcher = make_decoder(records=records)
    described = table_map(*COLUMNS, key=(0, "-ndsmtb".index(key)))
    feed(decoder, rotate(), mysql_gtid(1, 200), query("BEGIN", 250), described, rows(30, 7, row), xid(500))
    return [json.loads(value)["after"][key] for value in batcher.values[1:]]


@pytest.mark.parametrize(
    ("records", "key", "setting"),
    [({"decimal": "double"}, "n", 'decimal = "double"'), ({"time": "connect"}, "m", 'time = "connect"')],
)
def test_a_form_that_rounds_is_refused_for_a_key(records, key, setting):
    with pytest.raises(ConfigurationError, match=rf"accounts\.{key}, a column of the key") as raised:
        keyed(FIRST, Records(**records), key)
    assert setting in raised.value.message


def test_a_zero_date_in_a_key_stops_the_source_where_its_form_has_none():
    for key in "dsm":
        assert keyed(FIRST, Records(time="microseconds"), key) != [0]
        with pytest.raises(NeedsOperator, match=rf"accounts\.{key}, a column of the key"):
            keyed(ZEROS, Records(time="microseconds"), key)


def test_nanoseconds_that_do_not_fit_into_64_bits_stop_the_source():
    far = FIRST.replace(moment(2026, 1, 31, AT, b"\0\0\1"), moment(9999, 12, 31, AT, b"\0\0\1"))
    with pytest.raises(NeedsOperator, match=r"accounts\.m has a time before 1678 or after 2261"):
        keyed(far, Records(time="nanoseconds"), "n")


OTHERS = (
    Column("id", 3, unsigned=False), Column("one", 16, b"\x01\x00"), Column("ten", 16, b"\x02\x01"),
    Column("y", 13, unsigned=True),
    Column("at", 17, b"\x00"), Column("g", 255, b"\x04"), Column("u", 3, unsigned=True),
)  # fmt: skip
POINT = b"\1\1\0\0\0" + b"\0" * 16


def others(at, srid=0, nullable=None, **records):
    decoder, batcher = make_decoder(records=Records(**records))
    row = (
        b"\0\1\0\0\0" + b"\1" + b"\2\1" + b"\x7e" + at + (25).to_bytes(4, "little") + srid.to_bytes(4, "little") + POINT
    )
    row += b"\xff\xff\xff\xff"
    described = table_map(*OTHERS, nullable=nullable)
    feed(decoder, rotate(), mysql_gtid(1, 200), query("BEGIN", 250), described, rows(30, 7, row), xid(500))
    columns = json.loads(batcher.values[0])["tableChanges"][0]["table"]["columns"]
    return {it["name"]: it.get("form") for it in columns}, json.loads(batcher.values[1])["after"]


def test_other_types_are_as_debezium_has_them():
    forms, row = others((1769850900).to_bytes(4, "big"), 4326, types="debezium")
    wkb = base64.b64encode(POINT).decode()
    assert row == {
        "id": 1, "one": True, "ten": "AQI=", "y": 2026, "at": "2026-01-31T09:15:00Z", "g": {"wkb": wkb, "srid": 4326},
        "u": 4294967295,
    }  # fmt: skip
    data = "io.debezium.data."
    assert forms == {
        "id": None, "one": "boolean", "ten": f"{data}Bits", "y": f"{TIME}Year", "at": f"{TIME}ZonedTimestamp",
        "g": f"{data}geometry.Geometry", "u": None,
    }  # fmt: skip


def test_a_zero_timestamp_is_null_or_the_first_of_1970():
    zero = b"\0\0\0\0"
    assert others(zero, types="debezium")[1]["at"] is None
    assert others(zero, types="debezium", nullable=b"\0")[1]["at"] == "1970-01-01T00:00:00Z"
    assert others(zero)[1]["at"] == "0000-00-00 00:00:00"


def test_a_geometry_without_an_srid_has_none():
    assert others(b"\0\0\0\1", types="debezium")[1]["g"]["srid"] is None
