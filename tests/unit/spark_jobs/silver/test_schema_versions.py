"""T9, T3: which schema was in force where, and what a table's former keys allow."""

import pytest

from headrace.schema import Column, TableSchema
from spark_jobs.silver import target_schema, types
from spark_jobs.silver.schema_versions import SchemaRecord, SchemaVersions, Span

J, L = "jakarta/bank", "london/bank"


def schema(key=("id",), **columns):
    listed = [Column(name=n, type_name=t, position=i) for i, (n, t) in enumerate(columns.items(), 1)]
    return TableSchema(schema="public", table="t", key=list(key), columns=listed)


def record(source, position, found):
    return SchemaRecord(source=source, table="public.t", position=position, value="", schema=found)


SINGLE, DOUBLE = schema(id="int8", value="float4"), schema(id="int8", value="float8")


def test_columns_of_single_precision_are_known_by_source_and_position():
    # when a source goes from single to double and back, and comes twice with the same schema
    versions = SchemaVersions.read(
        {},
        [
            record(J, "1", SINGLE),
            record(L, "1", DOUBLE),
            record(J, "2", DOUBLE),
            record(J, "3", DOUBLE),
            record(J, "4", SINGLE),
            record(J, "5", schema(id="int8", value="float4", more="text")),
        ],
        {J: "1"},
    )
    # then one span joins schemas that follow each other
    assert versions.single_precision() == {"value": [Span(J, "", "2"), Span(J, "4", None)]}
    assert [len(versions.of[source]) for source in (J, L)] == [4, 1]


def test_changes_from_one_key_to_another_are_found_and_no_others():
    keyless, first, two = (schema(key, id="int8", n="int8") for key in ((), ("id",), ("id", "n")))
    records = [record(J, str(i), each) for i, each in enumerate((keyless, first, two, first, keyless))]
    assert SchemaVersions.read({}, records, {}).key_changes(whole=False) == {J: ["2", "3"]}
    assert SchemaVersions.read({}, records, {}).key_changes(whole=True) == {J: ["1", "2", "3", "4"]}


def test_key_whose_columns_earlier_rows_lack_stops_the_table_with_the_remedy():
    with pytest.raises(types.Incompatible, match=r"its key was \(id\) and is \(ident\) now") as stopped:
        target_schema.of("public.t", [schema(("ident",), ident="int8")], [schema(id="int8")])
    assert "headrace lake rebuild STREAM public.t" in stopped.value.hint
