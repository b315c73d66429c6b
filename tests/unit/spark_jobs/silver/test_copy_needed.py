"""L7: a change of the schema that changes rows is in no log, so what can be known of it is a warning until a copy comes."""

import json

import pytest

from headrace.schema import TableSchema
from spark_jobs.silver import held_back
from spark_jobs.silver.schema_versions import SchemaRecord, SchemaVersions

J = "jakarta/bank"


def record(position="", rewritten=None, **columns):
    listed = [{"name": n, "typeName": t, "position": i} for i, (n, t) in enumerate(columns.items(), 1)]
    change = {"table": {"primaryKeyColumnNames": ["id"], "columns": listed}}
    value = {"source": {"schema": "public", "table": "t"}, "tableChanges": [change]}
    text = json.dumps(value if rewritten is None else value | {"rewritten": rewritten})
    return SchemaRecord(source=J, table="public.t", position=position, value=text, schema=TableSchema.parse(text))


@pytest.mark.parametrize(
    ("after", "reported"),
    [
        ({"id": "int8", "b": "text"}, "b may be the former a"),
        ({"id": "int8", "a": "text", "b": "text"}, "b was added"),
        ({"id": "int8", "b": "int4"}, "b was added"),
        ({"id": "int8"}, None),
        ({"id": "int8", "a": "varchar"}, None),
    ],
)
def test_columns_that_vanish_and_appear_are_a_warning(after, reported):
    # given
    before = record(id="int8", a="text")
    # when
    versions = SchemaVersions.read({J: before.value}, [record("p2", **after)], {})
    result = held_back.copy_warnings("public.t", {}, versions, {})
    # then
    assert list(result) == ([f"{J} p2"] if reported else [])
    assert all(reported in text and "headrace edge snapshot public.t --replace" in text for text in result.values())


def test_warning_stays_until_a_truncate_of_the_source_follows():
    unchanged = SchemaVersions.read({J: record(id="int8").value}, [], {})
    known = {f"{J} p2": "why"}
    assert held_back.copy_warnings("public.t", known, unchanged, {J: "p1", "london/bank": "p3"}) == known
    assert held_back.copy_warnings("public.t", known, unchanged, {J: "p2"}) == {}


def test_edge_that_marks_rewritten_tables_is_believed():
    before = record(id="int8", a="text")
    shown = record("p2", ["enum label renamed"], id="int8", a="text")
    result = held_back.copy_warnings("public.t", {}, SchemaVersions.read({J: before.value}, [shown], {}), {})
    assert result[f"{J} p2"].startswith(f"{held_back.NEEDS_COPY}: the source rewrote its rows (enum label renamed)")
    # and one that looked and found nothing
    added = record("p2", [], id="int8", a="text", b="text")
    assert held_back.copy_warnings("public.t", {}, SchemaVersions.read({J: before.value}, [added], {}), {}) == {}


def test_table_that_was_renamed_is_new_to_the_lake_and_needs_a_copy_until_there_is_one():
    """T14: nothing of its former rows is in it. These are the bytes of an edge's record."""
    value = b'{"source":{"schema":"public","table":"t"},"tableChanges":[{"table":{"primaryKeyColumnNames":[],"columns":[]}}],'
    text = (value + b'"rewritten":["the table was called public.old"]}').decode()
    first = SchemaRecord(source=J, table="public.t", position="p2", value=text, schema=TableSchema.parse(text))

    result = held_back.copy_warnings("public.t", {}, SchemaVersions.read({}, [first], {}), {})

    assert result[f"{J} p2"].startswith(
        f"{held_back.NEEDS_COPY}: the source rewrote its rows (the table was called public.old)"
    )
    # A later load knows the record, and its warning stays until the truncate with which a copy begins.
    later = SchemaVersions.read({J: text}, [], {})
    assert held_back.copy_warnings("public.t", result, later, {}) == result
    assert held_back.copy_warnings("public.t", result, later, {J: "p3"}) == {}
