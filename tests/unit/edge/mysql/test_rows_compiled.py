"""What is compiled makes the bytes of the functions in Python, or leaves the event to them."""

import gc
import itertools
import math
import random
import struct
import sys
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.mysql import rows_compiled, values
from edge.mysql.column_codec import for_key, treated, without_zero_dates
from edge.mysql.rows import Table
from edge.mysql.table_map import Field
from tests.unit.edge.mysql.row_cases import (
    EXCLUDED,
    KNOWN,
    Case,
    a_codec,
    a_value,
    cases,
    changes,
    decode_in_c,
    outcome,
    table_of,
)

if rows_compiled.module is None:
    pytest.skip("this machine has no C compiler", allow_module_level=True)


def of_text(collation: int) -> Table:
    field = Field(name="note", type=values.VARCHAR, meta=300, collation=collation)
    return table_of([field], ["note"], [a_codec(field)])


def inserted(table: Table, *texts: bytes) -> Case:
    """Return an insert of rows of a table of one text."""
    return Case(table, rows_compiled.INSERT, b"".join(b"\0" + len(text).to_bytes(2, "little") + text for text in texts))


@given(st.randoms(use_true_random=False))
@settings(max_examples=150)
def test_random_events_of_random_tables(chance):
    for case in cases(chance):
        made = decode_in_c(case)
        assert made is None or made == outcome(case)
        apart = changes(case, in_c=True)
        assert (apart is None) is (made is None)
        assert made is None or apart == changes(case, in_c=False)


@pytest.mark.parametrize("kind", KNOWN)
def test_ordinary_values_of_every_type_do_not_pass_through_python(kind):
    chance = random.Random(kind)
    sizes = {values.SET: 1, values.ENUM: 1, values.GEOMETRY: 4, values.BLOB: 2, values.VARCHAR: 40, values.STRING: 40}
    meta = {
        values.NEWDECIMAL: 12 << 8 | 2,
        values.BIT: 1 << 8 | 2,
        values.DATETIME2: 3,
        values.TIMESTAMP2: 6,
        values.TIME2: 1,
    }
    members = (b"a", b"", b'q"') if kind in {values.ENUM, values.SET} else ()
    field = Field(name="c", type=kind, meta=meta.get(kind, sizes.get(kind, 0)), collation=1, members=members)
    codec = a_codec(field)
    table = table_of([field], [], [codec])
    for _ in range(50):
        case = Case(table, rows_compiled.INSERT, b"\0" + a_value(chance, field, codec, 0))
        assert decode_in_c(case) == outcome(case)


def test_every_kind_of_event_with_keys_and_nulls():
    fields = [Field(name=name, type=values.LONG) for name in ("b", "a", "c")]
    table = table_of(fields, ["a", "b"], list(map(a_codec, fields)))
    image = b"\4" + bytes([1, 0, 0, 0, 2, 0, 0, 0])
    for kind, before in ((0, b"null"), (1, b'{"b":1,"a":2,"c":null}'), (2, b'{"b":1,"a":2,"c":null}')):
        case = Case(table, kind, image * 4)
        made = decode_in_c(case)
        assert made == outcome(case)
        assert made[0][0] == b'{"a":2,"b":1}'
        assert made[1][0].startswith(b'{"before":%b,"after":' % before)


@pytest.mark.parametrize("first", [0, 255, 1 << 32, (1 << 40) + 5])
def test_ordinals(first):
    case = inserted(of_text(1), b"a", b"b")
    assert decode_in_c(case, first) == outcome(case, first)


@pytest.mark.parametrize("collation", [1, 2, 3, 6, 7, 63])
def test_every_byte_and_border_of_utf_8_in_every_character_set(collation):
    table = of_text(collation)
    edges = [*bytes.fromhex("00 1F 22 5C 7F 80 9F A0 BF C1 C2 DF E0 ED EF F0 F4 F5 FF")]
    texts = [bytes([byte]) for byte in range(256)] + [bytes(each) for each in itertools.product(edges, repeat=2)]
    made = 0
    for text in texts:
        # Also where eight bytes are looked at together.
        for one in (text, b"1234567" + text + b"12345678"):
            case = inserted(table, one)
            in_c = decode_in_c(case)
            made += in_c is not None
            assert in_c is None or in_c == outcome(case), one
    assert made > 256


@given(st.floats(width=32) | st.integers(-(10**9), 10**9).map(float), st.floats() | st.integers().map(float))
@settings(max_examples=500)
def test_numbers_with_a_point(single, double):
    fields = [Field(name="f", type=values.FLOAT), Field(name="d", type=values.DOUBLE)]
    table = table_of(fields, [], list(map(a_codec, fields)))
    made = decode_in_c(case := Case(table, rows_compiled.INSERT, b"\0" + struct.pack("<fd", single, double)))
    assert made == outcome(case) or (made is None and not math.isfinite(single + double))


@given(st.integers(0, 2**32 - 1))
def test_moments(seconds):
    field = Field(name="at", type=values.TIMESTAMP2)
    case = Case(table_of([field], [], [a_codec(field)]), rows_compiled.INSERT, b"\0" + seconds.to_bytes(4, "big"))
    assert decode_in_c(case) == outcome(case)


def test_an_event_cut_at_every_place_is_left_to_python():
    case = inserted(of_text(1), b"four", b"more")
    for end in range(1, len(case.images)):
        cut = case._replace(images=case.images[:end])
        assert (decode_in_c(cut) is None) is isinstance(outcome(cut)[0], type)


@pytest.mark.parametrize("size", [255, 65_535])
def test_large_texts(size):
    table = of_text(1)
    for text in ("x" * size, "ü" * (size // 2), '"' * size, "\1" * size):
        case = inserted(table, text.encode(), b"a", text.encode())
        assert decode_in_c(case) == outcome(case)


def test_a_column_that_c_does_not_know_or_with_a_form_of_its_own_leaves_the_table_to_python():
    field, date = Field(name="id", type=values.LONG), Field(name="d", type=values.DATE)
    json, sjis = Field(name="j", type=values.JSON, meta=4), Field(name="s", type=values.VARCHAR, meta=9, collation=4)
    for other in (a_codec(json), a_codec(sjis), without_zero_dates(a_codec(date))):
        assert table_of([field, json], [], [a_codec(field), other]).in_c is None
        # Where it ends is known.
        assert table_of([field, json], [], [a_codec(field), treated(other, EXCLUDED)]).in_c is not None
    assert table_of([field, date], [], [a_codec(field), a_codec(date)]).in_c is not None


def test_a_wrong_value_of_an_enum_with_an_empty_member_is_refused_in_a_key():
    field = Field(name="e", type=values.ENUM, meta=1, members=(b"", b"a"), collation=1)
    table = table_of([field], ["e"], [for_key(a_codec(field))])
    assert decode_in_c(Case(table, rows_compiled.INSERT, b"\0\1")) is not None
    assert decode_in_c(Case(table, rows_compiled.INSERT, b"\0\0")) is None


def test_descriptions_that_are_none_are_refused():
    make = rows_compiled.module.Images
    good = [b"i\0\4\0\0\0\0\0", (b'"a":',), ((),), (0,)]
    make(*good)
    wrong = [
        (0, b""),
        (0, good[0] * 2),
        (1, ()),
        (1, ("a",)),
        (2, ()),
        (2, (1,)),
        (2, (("a",),)),
        (3, (1,)),
        (3, (-1,)),
    ]
    wrong += [(3, ("a",)), (0, b"-" + good[0][1:]), (0, b"?" + good[0][1:]), (0, b"i\1" + good[0][2:])]
    wrong += [(0, b"i\0\x09" + bytes(5)), (0, b"i\0\0" + bytes(5)), (0, b"l\1\1" + bytes(5)), (0, b"d\0\4\0\1\0\2\0")]
    for at, part in wrong:
        with pytest.raises((ValueError, TypeError)):
            make(*good[:at], part, *good[at + 1 :])
    with pytest.raises(TypeError):
        make(*good, a=1)


def test_places_outside_of_the_event_are_left_to_python():
    images = of_text(1).in_c
    for kind, start, end in ((3, 0, 4), (-1, 0, 4), (0, -1, 4), (0, 0, 5), (0, 4, 3)):
        assert images.decode(kind, b"\0\1\0a", start, end, 0, b"", b"", b"") is None
        assert images.changes(kind, b"\0\1\0a", start, end) is None


def test_nothing_is_left_of_a_table_that_is_gone():
    table, event = of_text(1), bytes(bytearray(b"\0\1\0a"))
    before = sys.getrefcount(event)
    for _ in range(100):
        table.in_c.decode(0, event, 0, 4, 0, b"", b"", b"")
        table.in_c.decode(0, event, 0, 3, 0, b"", b"", b"")
        table.in_c.changes(0, event, 0, 4)
        table.in_c.changes(0, event, 0, 3)
    assert sys.getrefcount(event) == before
    gone = weakref.ref(table)
    names = table.in_c
    del table
    gc.collect()
    assert gone() is None
    assert sys.getrefcount(names) == 2


def test_a_seed_has_all_outcomes():
    """Random cases are of use only where many are decoded in C, and many are not."""
    outcomes = [decode_in_c(case) for seed in range(60) for case in cases(random.Random(seed))]
    assert 30 < outcomes.count(None) < len(outcomes) - 60
