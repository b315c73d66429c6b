"""The truth's reader: lines of test_decoding, as the server prints them."""

import pytest

from tests.history.decoding import lsn, transactions
from tests.history.transactions import Change, Number, Transaction, same, value

COMMIT = "COMMIT 761 (at 2026-01-31 09:15:00.2999+00)"


def read(*lines):
    (transaction,) = transactions([("0/10", "BEGIN 761"), *(("0/20", line) for line in lines), ("1/0", COMMIT)])
    return transaction


def test_insert_carries_every_column():
    result = read(
        "table public.accounts: INSERT: id[integer]:1 name[character]:'it''s : new' note[text]:null ok[boolean]:true"
    )

    row = {"id": Number("1"), "name": "it's : new", "note": None, "ok": True}
    assert result == Transaction(761, 1769850900299, 0x20, 1 << 32, (Change("public.accounts", "c", None, row),))


def test_update_of_a_key_carries_the_old_one():
    result = read("table public.a: UPDATE: old-key: id[integer]:1 new-tuple: id[integer]:2 x[text]:'a\nb'")

    assert result.changes == (Change("public.a", "u", {"id": Number("1")}, {"id": Number("2"), "x": "a\nb"}),)


def test_column_that_the_log_did_not_carry_is_named():
    result = read("table public.a: UPDATE: id[integer]:1 x[text]:unchanged-toast-datum")

    assert result.changes == (Change("public.a", "u", None, {"id": Number("1")}, ("x",)),)


def test_whole_old_row_fills_what_the_log_did_not_carry():
    result = read(
        "table public.a: UPDATE: old-key: id[integer]:1 x[text]:'long' new-tuple: id[integer]:1 x[text]:unchanged-toast-datum"
    )

    row = {"id": Number("1"), "x": "long"}
    assert result.changes == (Change("public.a", "u", row, row),)


def test_delete_carries_the_old_row():
    result = read('table "My Schema"."t,x": DELETE: "a b"[character varying]:\'1\' c[integer[]]:\'{1,2}\'')

    assert result.changes == (Change("My Schema.t,x", "d", {"a b": "1", "c": "{1,2}"}, None),)


def test_truncate_is_one_change_for_each_table():
    result = read("table public.a, public.b: TRUNCATE: restart_seqs cascade")

    assert result.changes == (Change("public.a", "t", None, None), Change("public.b", "t", None, None))


@pytest.mark.parametrize(
    "line", ["nonsense", "table public.a: INSERT: id[integer]", "table public.a: INSERT: x[text]:'open"]
)
def test_line_that_is_not_understood_is_an_error(line):
    with pytest.raises(ValueError, match="test_decoding"):
        read(line)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("numeric", "12.50", "12.50"),
        ("double precision", "NaN", "NaN"),
        ("real", "1e+20", Number("1e+20")),
        ("timestamp without time zone", "2026-01-31 09:15:00.25", "2026-01-31T09:15:00.25"),
        ("timestamp with time zone", "2026-01-31 09:15:00+00", "2026-01-31T09:15:00Z"),
        ("timestamp with time zone", "infinity", "infinity"),
        ("bytea", "\\x00ff", "AP8="),
        ("boolean", "false", False),
        ("jsonb", '{"a": 1}', '{"a": 1}'),
    ],
)
def test_value_is_as_the_record_has_it(kind, text, expected):
    assert value(kind, text) == expected


def test_integers_are_the_same_by_text_and_fractions_by_value():
    assert same(Number("1e+20"), Number("100000000000000000000.0"))
    assert not same(Number("9007199254740993"), Number("9007199254740992"))
    assert not same(Number("1"), "1")
    assert not same(True, Number("1"))


def test_lsn_is_a_number():
    assert lsn("16/B374D848") == 0x16B374D848
