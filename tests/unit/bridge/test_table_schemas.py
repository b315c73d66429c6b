"""Which schema of a table is the newest in Kafka, and that of all sources."""

import json

import pytest

from bridge.table_schemas import SourceSchema, schema_in, shared_schema
from headrace.errors import ConfigurationError, NeedsOperator
from headrace.schema import Column, TableSchema


def table(*names):
    columns = [Column(name=name, type_name="int4", position=at) for at, name in enumerate(names, 1)]
    return TableSchema(schema="public", table="accounts", key=["id"], columns=columns)


def record(schema, **more):
    source = {"connector": "mariadb", "schema": schema.schema, "table": schema.table}
    return json.dumps({"source": source, "tableChanges": [schema.change()]} | more, separators=(",", ":")).encode()


def test_a_schema_record_of_the_table_is_found_and_nothing_else():
    schema = table("id", "note")
    assert schema_in(record(schema), "public.accounts") == (schema, "mariadb")
    assert schema_in(record(schema), "public.other") is None
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
