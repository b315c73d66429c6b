"""Chunks: the statements that read them, and the rows that come."""

import pytest

from edge.mysql.column_codec import Place, code
from edge.mysql.connection import _ends
from edge.mysql.snapshot_rows import KeyColumn, Rows, field, row_texts, selected, taken
from headrace.errors import NeedsOperator
from tests.unit.edge.mysql.chunks import ID, NOTE, packet, table

# Statements.


def test_a_chunk_is_read_in_the_order_of_its_keys_own_index():
    both = table("note", "id")

    first = both.select_after("n > 1 -- or more", None, 10)
    last = both.key_of([b"7", b'a"'])
    next_ = both.select_after(None, last, 10)

    assert first == (
        "select `id`, `note` from `bank`.`accounts` force index (`PRIMARY`) where (n > 1 -- or more\n)"
        " order by `note`, `id` limit 10"
    )
    assert (
        "(`note` >= _utf8mb4 x'6122' and (`note` > _utf8mb4 x'6122' or (`note` = _utf8mb4 x'6122' and `id` > 7))\n)"
        in next_
    )


@pytest.mark.parametrize(
    ("kind", "charset", "selected_", "kept", "literal"),
    [
        ("int", None, b"-5", "-5", "-5"),
        ("double", None, b"0.5", "0.5", "0.5e0"),
        ("float", None, b"1e-30", "1e-30", "1e-30"),
        ("varchar", "latin1", b"a'\\", "61275c", "_latin1 x'61275c'"),
        ("varbinary", None, b"\0\xff", "00ff", "x'00ff'"),
        ("datetime", None, b"2026-01-31 09:15:00", "2026-01-31 09:15:00", "'2026-01-31 09:15:00'"),
        ("inet4", None, b"\x0a\0\0\x01", "10.0.0.1", "'10.0.0.1'"),
        ("enum", "utf8mb4", b"3", "3", "3"),
    ],
)
def test_a_key_is_kept_as_text_and_goes_back_as_a_literal(kind, charset, selected_, kept, literal):
    column = KeyColumn("`k`", kind, charset, "")

    assert column.text(selected_) == kept
    assert column.literal(kept) == literal


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        ("int", "1 or 1"),
        ("varchar", "'; drop table t"),
        ("varchar", "612"),
        ("date", "' or '1"),
        ("int", ""),
        ("uuid", ""),
    ],
)
def test_a_plan_that_was_tampered_with_runs_no_sql_of_others(kind, kept):
    with pytest.raises(NeedsOperator, match="cannot have"):
        KeyColumn("`k`", kind, None, "").literal(kept)


@pytest.mark.parametrize(
    "other",
    [
        table("id"),
        table("id", "note"),
        table("note", "id", columns=(ID, NOTE._replace(collation="utf8mb4_general_ci"))),
    ],
    ids=["fewer", "other order", "other collation"],
)
def test_a_table_whose_key_was_altered_is_not_gone_on_with(other):
    last = table("note", "id").key_of([b"7", b"a"])

    with pytest.raises(NeedsOperator, match=r"the key of bank\.accounts was altered"):
        other.select_after(None, last, 10)


def test_columns_are_selected_in_the_form_that_their_records_need():
    def kind(data_type, column_type, **rest):
        return selected(ID._replace(name="a`b", data_type=data_type, column_type=column_type, **rest))

    assert kind("int", "int(8) unsigned zerofill") == "`a``b` + 0"
    assert kind("decimal", "decimal(8,2) unsigned zerofill", precision=8, scale=2) == "cast(`a``b` as decimal(8, 2))"
    assert kind("float", "float(7,2)") == "`a``b` * 1e0"
    assert kind("uuid", "uuid") == "cast(`a``b` as binary(16))"
    assert kind("text", "text") == "`a``b`"


def test_members_of_the_catalog_are_those_of_the_log():
    printed = r"enum('a','it''s','b\\c','x,y','é\"','\n','')"
    members = field(ID._replace(data_type="enum", column_type=printed, charset="latin1"), "t.e").members
    assert [it.decode() for it in members] == ["a", "it's", r"b\c", "x,y", 'é"', "\n", ""]


@pytest.mark.parametrize(
    ("mariadb", "name", "record"), [(True, "VARBINARY", b'"AACAPw=="'), (False, "VECTOR", b'"[1]"')]
)
def test_a_vector_is_copied_in_the_form_that_the_log_has(mariadb, name, record):
    """N6: MySQL's were base64 in copies and text in the stream, and the lake stopped their table."""
    column = ID._replace(name="v", data_type="vector", column_type="vector(1)", octets=4).as_logged(mariadb=mariadb)
    where = Place("bank.t.v")
    known = field(column, where.name)
    codec = taken(code(known, lambda _: "binary", column.data_type, where), known, column, where.name)
    _, row = Rows(["v"], [codec], [0]).read(packet(b"\0\0\x80\x3f"))

    assert codec.type_name == name
    assert row == b'{"v":%b}' % record


def test_m2_a_row_of_a_table_without_a_key_is_read_carefully_as_well():
    column = ID._replace(name="v", data_type="vector", column_type="vector(1)", octets=4).as_logged(mariadb=False)
    where = Place("bank.t.v")
    known = field(column, where.name)
    codec = taken(code(known, lambda _: "binary", column.data_type, where), known, column, where.name)
    rows = Rows(["v"], [codec], [])
    assert rows.read_carefully(packet(b"\0\0\x80\x3f"))[0::2] == (None, None)
    key, row, lacks = rows.read_carefully(packet(b"\0\0\x80"))
    assert (key, row, lacks.column, lacks.in_key) == (None, b'{"v":null}', "v", False)


def test_a_type_that_is_not_known_is_refused_by_its_columns_name():
    with pytest.raises(NeedsOperator, match=r"bank\.t\.x is of a type"):
        field(ID._replace(name="x", data_type="xmltype"), "bank.t.x")


# Packets.


def test_a_packet_is_taken_apart_whatever_the_lengths():
    values = [b"1", None, b"", b"x" * 250, b"y" * 251, b"z" * 60_000]

    assert row_texts(packet(*values)) == values


def test_the_end_of_an_answer_is_not_taken_for_a_row():
    assert _ends(b"\xfe\0\0\2\0")
    assert not _ends(b"\xfe" + (1 << 24).to_bytes(8, "little") + b"x" * 20)
