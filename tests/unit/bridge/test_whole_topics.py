"""Which dead letters are open, by what follows them in the source's order; and which schema of a table is the newest."""

import json

import pytest

from bridge.whole_topics import DeadLetterIndex, SourceSchema, schema_in, shared_schema
from headrace.errors import ConfigurationError, NeedsOperator
from headrace.schema import Column, TableSchema

LARGE = {"too_large": {"bytes": 99, "sha256": "ab"}}


def record(commit, op, number, *, before=None, table="documents", **more):
    source = {"name": "jakarta/bank", "position": f"00000001/{commit:016x}/00000000", "schema": "public"}
    after = None if op in "dt" else {"id": number}
    value = {"before": before, "after": after} | more
    value |= {"source": source | {"table": table, "ts_ms": 1}, "op": op}
    key = None if number is None else json.dumps({"id": number}, separators=(",", ":")).encode()
    return key, json.dumps(value, separators=(",", ":")).encode()


def letter(commit, op="c", number=7, **more):
    return record(commit, op, number, unchanged=["body"], **LARGE, **more)


def states(*records):
    letters = DeadLetterIndex()
    for number, (key, value) in enumerate(records):
        letters.add(key, value, f"bank[0]@{number}")
    return [each["state"] for each in letters.rows()]


@pytest.mark.parametrize(
    "after",
    [
        [],
        [record(20, "c", 8)],
        [record(20, "u", 7, unchanged=["body"])],
        [record(20, "r", 7, table="others")],
        [record(20, "t", None, table="others")],
        [record(20, "u", 8, before={"name": "a"})],
        [(b'{"id":7}', None)],
        [(None, b'{"tableChanges":[],"op":"t"}')],
        [(b'{"id":7}', b'{"status":"END"}')],
    ],
    ids=[
        "nothing",
        "another key",
        "not all",
        "another table",
        "another truncate",
        "an old row without its key",
        "tombstone",
        "schema",
        "end",
    ],
)
def test_a_letter_is_open_while_nothing_behind_it_brings_the_row_or_takes_it(after):
    assert states(letter(10), *after) == ["open"]


@pytest.mark.parametrize(
    "after",
    [
        record(20, "r", 7),
        record(20, "u", 7),
        record(20, "d", 7, before={"id": 7}),
        record(20, "t", None),
        record(20, "u", 9, before={"id": 7}),
        record(20, "u", 9, before={"body": "x", "id": 7}),
    ],
    ids=["copied", "updated", "deleted", "truncated", "moved", "moved, the old row whole"],
)
def test_a_letter_is_replaced_by_a_later_record_whichever_is_read_first(after):
    assert states(letter(10), after) == ["replaced"]
    # A record from before it does not.
    assert states(letter(30), after) == ["open"]


def test_a_truncate_that_is_read_first_counts_by_its_position():
    assert states(record(20, "t", None), letter(10), letter(30, number=8)) == ["replaced", "open"]


def test_letters_of_one_row_are_all_open_until_it_comes_and_one_of_a_delete_never_is():
    assert states(letter(10), letter(11, "u")) == ["open", "open"]
    assert states(letter(10), letter(11, "u"), record(12, "r", 7)) == ["replaced", "replaced"]
    assert states(letter(10), letter(11, "u", number=9, before={"id": 7})) == ["replaced", "open"]
    assert states(letter(10, "d", before={"id": 7})) == ["replaced"]


def test_a_row_without_a_key_stays_open_until_its_table_is_emptied():
    assert states(letter(10, number=None)) == ["open"]
    assert states(letter(10, number=None), record(20, "t", None)) == ["replaced"]


def test_what_only_talks_of_such_things_is_none():
    assert states((b'{"id":1}', b'{"note":"x","too_large":{"bytes":1,"sha256":"x"}}')) == []


def table(*names):
    columns = [Column(name=name, type_name="int4", position=at) for at, name in enumerate(names, 1)]
    return TableSchema(schema="public", table="accounts", key=["id"], columns=columns)


def schema_record(schema, **more):
    source = {"connector": "mariadb", "schema": schema.schema, "table": schema.table}
    return json.dumps({"source": source, "tableChanges": [schema.change()]} | more, separators=(",", ":")).encode()


def test_a_schema_record_of_the_table_is_found_and_nothing_else():
    schema = table("id", "note")
    assert schema_in(schema_record(schema), "public.accounts") == (schema, "mariadb")
    assert schema_in(schema_record(schema), "public.other") is None
    assert schema_in(None, "public.accounts") is None
    # A row with the word in a text.
    source = {"connector": "mariadb", "schema": "public", "table": "accounts"}
    change = {"source": source, "after": {"note": '"tableChanges"'}, "op": "c"}
    assert schema_in(json.dumps(change).encode(), "public.accounts") is None
    assert schema_in(b'not JSON, "tableChanges"', "public.accounts") is None


def test_sources_have_to_agree():
    first, other = (SourceSchema(table("id", *more), "mariadb", "bank") for more in ((), ("note",)))
    assert shared_schema({"a/b": first, "c/d": first}, "public.accounts") == first
    with pytest.raises(ConfigurationError, match=r"not the same in all sources: a/b, c/d"):
        shared_schema({"c/d": first, "a/b": other}, "public.accounts")
    with pytest.raises(NeedsOperator, match="no schema record"):
        shared_schema({}, "public.accounts")
