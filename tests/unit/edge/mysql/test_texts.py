"""Texts in the character sets of servers: bytes that are no characters, and characters that Python's codecs have otherwise."""

import struct

import pytest

from edge.mysql.column_text import json_text
from headrace.configuration.edge import ColumnRule, Policy
from tests.unit.edge.mysql.events import (
    Column,
    feed,
    make_decoder,
    mysql_gtid,
    query,
    rotate,
    rows,
    table_map,
    xid,
)
from tests.unit.edge.mysql.test_decoder import ID, changes

CP1251, UTF8, SJIS, CP866, SWE7 = 51, 45, 13, 36, 99


def text(name, collation):
    return Column(name, 15, b"\x28\x00", collation=collation)


def inserted(columns, *images, **options):
    """Return the rows of an insert, and the warnings for the status."""
    warnings = {}
    decoder, batcher = make_decoder(warn=warnings.__setitem__, **options)
    body = b"".join(b"\0" + number.to_bytes(4, "little") + image for number, image in enumerate(images))
    feed(
        decoder,
        rotate(),
        mysql_gtid(1, 200),
        query("BEGIN", 250),
        table_map(*columns),
        rows(30, len(columns), body),
        xid(500),
    )
    return [change["after"] for change in changes(batcher)], warnings


def short(*values):
    return b"".join(bytes([len(value)]) + value for value in values)


def test_bytes_that_are_no_characters_are_replaced_and_reported(caplog):
    """M2: cp1251's 0x98, which is in every UTF-8 `И`, and lone surrogates stopped the source for good."""
    columns = [ID, text("note", CP1251), text("name", UTF8), text("other", UTF8)]
    images = [short(b"\xd0\x98", b'\xed\xa0\x80"', "é\n".encode()), short(b"\xe6", b"Ana", b"Budi")]

    found, warnings = inserted(columns, *images)

    assert [list(row.values()) for row in found] == [
        [0, "\u0420\ufffd", '\ufffd\ufffd\ufffd"', "é\n"],
        [1, "ж", "Ana", "Budi"],
    ]
    assert list(warnings) == ["text of bank.accounts.note", "text of bank.accounts.name"]
    assert caplog.text.count("records have U+FFFD in their place") == 2


def test_bytes_that_are_no_characters_in_a_table_with_many_patterns_of_nulls(monkeypatch):
    """M2: where one function looks at every null."""
    monkeypatch.setattr("edge.mysql.rows_compiled._MOST_PATTERNS", 0)
    found, _ = inserted([ID, text("name", UTF8)], short(b"a\xff"), short(b"b"))

    assert [row["name"] for row in found] == ["a\ufffd", "b"]


@pytest.mark.parametrize("collation", [CP1251, SWE7])
def test_a_column_that_is_left_out_is_not_decoded(collation):
    """M2: leaving out the column did not help."""
    rule = ColumnRule(columns=["bank.accounts.note"], action="exclude")
    found, warnings = inserted(
        [ID, text("note", collation), text("name", UTF8)], short(b"\x98", b"Ana"), policy=Policy(columns=[rule])
    )

    assert (found, warnings) == ([{"id": 0, "name": "Ana"}], {})


@pytest.mark.parametrize(("action", "hidden"), [("mask", "***"), ("truncate", "a\ufffd")])
@pytest.mark.parametrize("collation", [CP1251, UTF8])
def test_bytes_that_are_no_characters_are_hidden_like_others(action, hidden, collation):
    more = {"characters": 2} if action == "truncate" else {"mask": "***"}
    rule = ColumnRule(columns=["bank.accounts.note"], action=action, **more)
    found, _ = inserted([ID, text("note", collation)], short(b"a\x98c"), policy=Policy(columns=[rule]))

    assert found == [{"id": 0, "note": hidden}]


def test_characters_are_those_of_the_server():
    """N7: any backslash that a UTF-8 client wrote into a column in sjis was U+FF3C in the lake; others are its siblings."""
    found, _ = inserted([ID, text("a", SJIS), text("b", CP866)], short(b"C:\x81\x5fa\x83\x65", b"\xfc\xfd\xa0"))

    assert found == [{"id": 0, "a": "C:\\aテ", "b": "ⁿ²а"}]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1e-05, "0.00001"), (1.23456789012e-05, "0.0000123456789012"), (-5e-07, "-0.0000005"),
        (1e-15, "0.000000000000001"), (2589546667085065.5, "2589546667085065.5"),
        (1e-16, "1e-16"), (-2.5e-300, "-2.5e-300"), (1e14, "100000000000000.0"), (999999999999999.9, "999999999999999.9"),
        (1e15, "1e15"), (1.5e15, "1.5e15"), (1234567890123456.0, "1.234567890123456e15"), (1e308, "1e308"), (0.0001, "0.0001"),
        (-0.0, "-0.0"), (3.0, "3.0"),
    ],
)  # fmt: skip
def test_doubles_in_json_are_printed_as_the_server_prints_them(number, text):
    """M13: by the rule of the server's `my_gcvt`."""
    assert json_text(b"\x0b" + struct.pack("<d", number)) == text
