"""The Avro schemas of a table's records: Debezium's names, each column's type, and what is adjusted."""

import json

import pytest

from headrace.schema import Column, TableSchema
from headrace.schemas import avro
from headrace.schemas.avro_types import type_of
from headrace.schemas.connect_types import DECIMAL


def table(*columns: Column, key=("id",), schema="public", name="accounts") -> TableSchema:
    return TableSchema(schema=schema, table=name, key=list(key), columns=list(columns))


ID = Column(name="id", type_name="int8", position=1, optional=False)


def column(type_name, **more) -> Column:
    return Column(name="c", type_name=type_name, position=2, **more)


def test_names_are_debeziums_under_the_prefix_of_the_stream():
    made = avro.schemas(table(ID), "postgresql").with_prefix("bank.eu-1")
    key, value = json.loads(made.key), json.loads(made.value)
    assert (key["namespace"], key["name"]) == ("bank.eu_1.public.accounts", "Key")
    assert value["connect.name"] == "bank.eu_1.public.accounts.Envelope"
    fields = {field["name"]: field["type"] for field in value["fields"]}
    assert fields["after"] == ["null", "bank.eu_1.public.accounts.Value"]
    assert fields["before"][1]["connect.name"] == "bank.eu_1.public.accounts.Value"
    assert fields["source"]["connect.name"] == "io.debezium.connector.postgresql.Source"
    assert fields["transaction"][1]["connect.name"] == "event.block"
    assert avro.PREFIX not in made.value + made.key


def test_a_table_without_a_key_has_no_schema_of_keys():
    assert avro.schemas(table(ID, key=()), "postgresql").key is None


def test_a_column_of_the_key_is_required_and_every_other_one_may_be_null():
    schema = table(ID, column("text", optional=False))
    fields = {field["name"]: field["type"] for field in avro.envelope(schema, "mysql")["fields"]}
    assert [field["type"] for field in fields["before"][1]["fields"]] == ["long", ["null", "string"]]
    assert [field["type"] for field in fields["former_key"][1]["fields"]] == ["long"]


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (column("int2"), {"type": "int", "connect.type": "int16"}),
        (column("numeric", length=10, scale=2), "string"),
        (column("float4"), "float"),
        (column("bytea"), "bytes"),
        (column("date"), "string"),
        (column("BIGINT"), "long"),
        (column("LONGBLOB"), "bytes"),
        (column("numeric", form="double"), "double"),
        (column("mood"), "string"),
        # The policy makes text of a number.
        (column("int8", policy="hash"), "string"),
    ],
)
def test_a_column_has_the_type_that_its_values_have_in_records(declared, expected):
    assert type_of(declared) == expected


def test_a_decimal_has_its_scale_and_precision():
    made = type_of(column("numeric", length=10, scale=2, form=DECIMAL))
    assert (made["logicalType"], made["precision"], made["scale"]) == ("decimal", 10, 2)
    assert made["connect.parameters"] == {"scale": "2", "connect.decimal.precision": "10"}


def test_names_that_avro_does_not_take_are_adjusted_and_stay_apart():
    schema = table(
        *(Column(name=name, type_name="text", position=1) for name in ("a-b", "a_b", "größe", "1st")),
        key=(),
        name="my-table",
    )
    named = [field["name"] for _, field in avro.fields(schema, of_key=False)]
    assert named == ["a_b", "a_b_2", "gr__e", "_1st"]
    assert avro.fields(schema, of_key=False)[0][1]["headrace.column"] == "a-b"
    assert avro.envelope(schema, "postgresql", "p")["namespace"] == "p.public.my_table"
