"""Every value of docs/records.md, on both ways through a row decoder: the generated one and column by column."""

import base64

import pytest

from headrace.errors import CorruptInput
from tests.unit.edge.postgres.messages import Log, tables_row

VALUES = [
    ("bool", 16, "t", True),
    ("bool", 16, "f", False),
    ("int2", 21, "-32768", -32768),
    ("int4", 23, "2147483647", 2147483647),
    ("int8", 20, "-9223372036854775808", -9223372036854775808),
    ("oid", 26, "4294967295", 4294967295),
    ("float4", 700, "0.1", 0.1),
    ("float4", 700, "-0", -0.0),
    ("float8", 701, "-0", -0.0),
    ("float8", 701, "0", 0),
    ("float8", 701, "-10", -10),
    ("float8", 701, "1.7976931348623157e+308", 1.7976931348623157e308),
    ("float8", 701, "5e-324", 5e-324),
    ("float8", 701, "NaN", "NaN"),
    ("float8", 701, "Infinity", "Infinity"),
    ("float8", 701, "-Infinity", "-Infinity"),
    ("numeric", 1700, "12.50", "12.50"),
    ("numeric", 1700, "-0.000000000000000000001", "-0.000000000000000000001"),
    ("numeric", 1700, "NaN", "NaN"),
    ("numeric", 1700, "-Infinity", "-Infinity"),
    ("money", 790, "-$1,234.50", "-$1,234.50"),
    ("date", 1082, "2026-01-31", "2026-01-31"),
    ("date", 1082, "0044-03-15 BC", "0044-03-15 BC"),
    ("date", 1082, "infinity", "infinity"),
    ("time", 1083, "09:15:00.25", "09:15:00.25"),
    ("timetz", 1266, "09:15:00.25+07", "09:15:00.25+07"),
    ("timestamp", 1114, "2026-01-31 09:15:00.25", "2026-01-31T09:15:00.25"),
    ("timestamp", 1114, "2026-01-31 09:15:00", "2026-01-31T09:15:00"),
    ("timestamp", 1114, "12026-01-31 09:15:00", "12026-01-31T09:15:00"),
    ("timestamp", 1114, "0044-03-15 00:00:00 BC", "0044-03-15 00:00:00 BC"),
    ("timestamp", 1114, "infinity", "infinity"),
    ("timestamp", 1114, "-infinity", "-infinity"),
    ("timestamptz", 1184, "2026-01-31 09:15:00.25+00", "2026-01-31T09:15:00.25Z"),
    ("timestamptz", 1184, "12026-01-31 09:15:00+00", "12026-01-31T09:15:00Z"),
    ("timestamptz", 1184, "0044-03-15 00:00:00+00 BC", "0044-03-15 00:00:00+00 BC"),
    ("timestamptz", 1184, "infinity", "infinity"),
    ("timestamptz", 1184, "-infinity", "-infinity"),
    ("interval", 1186, "1 day 02:03:04", "1 day 02:03:04"),
    ("bytea", 17, "\\x", ""),
    ("bytea", 17, "\\x00ff22", base64.b64encode(b"\x00\xff\x22").decode()),
    ("uuid", 2950, "0b5c5f5e-3f0f-4a4e-9d33-57cc4a2c6a0e", "0b5c5f5e-3f0f-4a4e-9d33-57cc4a2c6a0e"),
    ("inet", 869, "2001:db8::1/64", "2001:db8::1/64"),
    ("bit", 1560, "0101", "0101"),
    ("json", 114, '{"a": "b\\n"}', '{"a": "b\\n"}'),
    ("jsonb", 3802, '{"a": [1, null]}', '{"a": [1, null]}'),
    ("array", 1009, '{"a b",NULL,"c\\"d"}', '{"a b",NULL,"c\\"d"}'),
    ("range", 3912, "[2026-01-01,2026-02-01)", "[2026-01-01,2026-02-01)"),
    ("enum or domain", 50001, "glad", "glad"),
    ("xml", 142, '<a b="c">d</a>', '<a b="c">d</a>'),
    ("bpchar", 1042, "ab   ", "ab   "),
    ("varchar", 1043, "", ""),
    ("text", 25, "null", "null"),
    ("text", 25, "n", "n"),
    ("text", 25, "t\tb\nr\rf\fb\b\x01\x1f", "t\tb\nr\rf\fb\b\x01\x1f"),
    ("text", 25, 'say "hello"', 'say "hello"'),
    ("text", 25, "C:\\temp", "C:\\temp"),
    ("text", 25, "del\x7f", "del\x7f"),
    ("text", 25, "Größe 漢字 🌊 \u2028", "Größe 漢字 🌊 \u2028"),
    ("text", 25, "100% %b %s", "100% %b %s"),
    ("text", 25, "x" * 255, "x" * 255),
    ("text", 25, "x" * 256, "x" * 256),
    ("text", 25, "x" * 70_000, "x" * 70_000),
]


@pytest.mark.parametrize(("oid", "text", "expected"), [case[1:] for case in VALUES], ids=[case[0] for case in VALUES])
def test_a_value_is_the_same_alone_and_among_others(oid, text, expected):
    (alone,) = decoded([oid], text)
    assert alone == expected
    assert type(alone) is type(expected)
    assert decoded([25, oid, 25], "a", text, "b") == ["a", expected, "b"]
    assert decoded([oid, oid, 20], text, text, 7) == [expected, expected, 7]
    assert decoded([oid, 25], text, 'a "b"') == [expected, 'a "b"']


@pytest.mark.parametrize("oid", sorted({case[1] for case in VALUES}))
def test_a_null_is_null_in_every_type(oid):
    assert decoded([oid], None) == [None]
    assert decoded([25, oid, 20], "a", None, 7) == ["a", None, 7]
    assert decoded([25, oid, oid], None, None, None) == [None, None, None]
    assert decoded([25, oid, 25], None, None, 'a "b"') == [None, None, 'a "b"']


def test_a_timestamp_without_a_date_is_not_cut_where_the_next_column_happens_to_have_a_space():
    # given infinity ahead of a column whose length holds the byte of a space just where a date would end
    long = "x" * 0x200000
    # then
    assert decoded([1114, 25], "infinity", long) == ["infinity", long]


@pytest.mark.parametrize("oid", [25, 1043, 114, 50001])
@pytest.mark.parametrize("value", [b"\xff", b"a\xc3", b"\xed\xa0\x80"], ids=["no lead", "cut short", "surrogate"])
def test_bytes_that_are_no_text_are_refused(oid, value):
    for oids, values in (([oid], [value]), ([25, oid, 25], [None, value, "b"]), ([25, oid], ['a "b"', value])):
        with pytest.raises(CorruptInput):
            decoded(oids, *values)


@pytest.mark.parametrize("value", ["\0", "a\0b", '"\0"', "\0\0"])
def test_a_character_that_the_server_never_sends_is_not_taken_for_a_null(value):
    for oids, values in (([25], [value]), ([25, 25, 25], [None, value, "b"]), ([25, 1082, 25], [value, None, "b"])):
        try:
            result = decoded(oids, *values)
        except CorruptInput:
            continue
        assert result == values


def test_half_a_hexadecimal_byte_is_refused():
    for value in ("\\x0", "\\xzz", "00"):
        with pytest.raises(CorruptInput):
            decoded([17], value)


def decoded(oids, *values):
    """The row as it is decoded from every kind of message that can hold it; they must agree."""
    log = Log()
    log.transaction(*tables_row(oids, values))
    inserted, updated, replaced, filled, deleted = log.changes()
    row = {name: value for name, value in inserted.value["after"].items() if name != "rest"}
    assert inserted.value["after"] == updated.value["after"] == replaced.value["after"] == row | {"rest": "x"}
    assert replaced.value["before"] == filled.value["before"] == deleted.value["before"] == row | {"rest": "x"}
    assert filled.value["after"] == row | {"rest": "x"}
    assert "unchanged" not in filled.value
    return list(row.values())
