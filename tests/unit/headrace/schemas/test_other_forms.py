"""A table's schema for Kafka Connect, as JSON Schema and as SQL: types, names, what may be null."""

import json

import pytest

from headrace.errors import ConfigurationError
from headrace.schema import Column, TableSchema
from headrace.schemas import column_types
from headrace.schemas.printed import connect_key, connect_value, create_table, of_column, render_schema


def table(*columns: Column, key=("id",)) -> TableSchema:
    return TableSchema(schema="public", table="accounts", key=list(key), columns=list(columns))


ID = Column(name="id", type_name="int8", position=1, optional=False)


def column(type_name, **more) -> Column:
    return Column(name="c", type_name=type_name, position=2, **more)


def test_connects_envelope_has_debeziums_names_and_rows_whose_key_alone_is_required():
    value = connect_value(table(ID, column("text")), "postgresql", "bank-1")
    fields = {field["field"]: field for field in value["fields"]}
    assert value["name"] == "bank_1.public.accounts.Envelope"
    assert fields["source"]["name"] == "io.debezium.connector.postgresql.Source"
    assert {field["field"] for field in fields["source"]["fields"]} >= {
        "ts_ms",
        "db",
        "schema",
        "table",
        "lsn",
        "position",
    }
    assert fields["after"]["fields"] == [
        {"type": "int64", "optional": False, "field": "id"},
        {"type": "string", "optional": True, "field": "c"},
    ]
    assert connect_key(table(ID), "bank-1")["fields"] == [{"type": "int64", "optional": False, "field": "id"}]
    assert connect_key(table(ID, key=()), "bank-1") is None


@pytest.mark.parametrize(
    ("declared", "kind", "of_json", "of_sql"),
    [
        (
            column("int2"),
            {"type": "int16"},
            {"type": ["integer", "null"], "minimum": -32768, "maximum": 32767},
            "smallint",
        ),
        (column("float8"), {"type": "double"}, {"type": ["number", "string", "null"]}, "double precision"),
        (column("numeric", length=10, scale=2), {"type": "string"}, {"type": ["string", "null"]}, "numeric(10, 2)"),
        (column("varchar", length=20), {"type": "string"}, {"type": ["string", "null"]}, "varchar(20)"),
        (column("bytea"), {"type": "bytes"}, {"type": ["string", "null"], "contentEncoding": "base64"}, "bytea"),
        (column("mood"), {"type": "string"}, {"type": ["string", "null"]}, "text"),
        (column("_int4"), {"type": "string"}, {"type": ["string", "null"]}, "integer[]"),
        (column("BIGINT UNSIGNED"), {"type": "int64"}, {"type": ["integer", "null"]}, "numeric(20)"),
        # The policy makes text of a number.
        (column("int8", policy="hash"), {"type": "string"}, {"type": ["string", "null"]}, "text"),
        (
            column("_int4", form="array<int32>"),
            {"type": "array", "items": {"type": "int32", "optional": True}},
            {
                "type": ["array", "null"],
                "items": {"type": ["integer", "null"], "minimum": -(1 << 31), "maximum": (1 << 31) - 1},
            },
            "integer[]",
        ),
        (
            column("date", form="io.debezium.time.Date"),
            {"type": "int32", "name": "io.debezium.time.Date", "version": 1},
            {"type": ["integer", "null"], "minimum": -(1 << 31), "maximum": (1 << 31) - 1},
            "date",
        ),
        (
            column("numeric", length=12, scale=3, form="org.apache.kafka.connect.data.Decimal"),
            {
                "type": "bytes",
                "name": "org.apache.kafka.connect.data.Decimal",
                "version": 1,
                "parameters": {"scale": "3", "connect.decimal.precision": "12"},
            },
            {"type": ["string", "null"], "contentEncoding": "base64"},
            "numeric(12, 3)",
        ),
        (
            column("timetz", form="io.debezium.time.ZonedTime"),
            {"type": "string", "name": "io.debezium.time.ZonedTime", "version": 1},
            {"type": ["string", "null"]},
            "time with time zone",
        ),
    ],
)
def test_a_columns_type_is_that_of_its_records_and_in_sql_that_of_the_source(declared, kind, of_json, of_sql):
    assert column_types.connect_type_of(declared) == kind
    assert of_column(declared, required=False) == of_json
    assert f'"c" {of_sql},\n' in create_table(table(ID, declared))


def test_sql_quotes_names_and_has_the_key_in_key_order():
    columns = (Column(name='a "b"', type_name="int4", position=1), Column(name="Ü", type_name="text", position=2))
    assert create_table(table(*columns, key=("Ü", 'a "b"'))) == (
        'create table "public"."accounts" (\n    "a ""b""" integer not null,\n    "Ü" text not null,\n'
        '    primary key ("Ü", "a ""b""")\n);'
    )


def test_each_form_is_printed_for_values_and_keys():
    texts = {
        form: render_schema(form, table(ID), "mysql", "bank", of_key=False)
        for form in ("connect", "json-schema", "avro")
    }
    assert {form: json.loads(text)["type"] for form, text in texts.items()} == {
        "connect": "struct",
        "json-schema": "object",
        "avro": "record",
    }
    key = json.loads(render_schema("json-schema", table(ID), "mysql", "bank", of_key=True))
    assert (key["required"], key["properties"]) == (["id"], {"id": {"type": "integer"}})
    with pytest.raises(ConfigurationError, match="has no key"):
        render_schema("connect", table(ID, key=()), "mysql", "bank", of_key=True)
