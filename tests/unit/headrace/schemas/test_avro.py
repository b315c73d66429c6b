"""The Avro schemas of a table's records: Debezium's names, each column's type, and what is adjusted."""

import json

import msgspec
import pytest

from headrace.schema import Column, TableSchema
from headrace.schemas import avro
from headrace.schemas.column_types import DECIMAL, avro_type_of


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
    assert avro_type_of(declared) == expected


def test_a_decimal_has_its_scale_and_precision():
    made = avro_type_of(column("numeric", length=10, scale=2, form=DECIMAL))
    assert (made["logicalType"], made["precision"], made["scale"]) == ("decimal", 10, 2)
    assert made["connect.parameters"] == {"scale": "2", "connect.decimal.precision": "10"}


INT32 = {"type": "int", "connect.version": 1}
DATA, TIME = "io.debezium.data.", "io.debezium.time."


def text_named(name, **more):
    return {"type": "string", "connect.version": 1, "connect.name": name} | more


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (column("_int2", form="array<int16>"), {"type": "array", "items": ["null", {"type": "int", "connect.type": "int16"}]}),
        (column("_uuid", form=f"array<{DATA}Uuid>"), {"type": "array", "items": ["null", text_named(f"{DATA}Uuid")]}),
        (column("hstore", form="map"), {"type": "map", "values": ["null", "string"]}),
        (column("interval", form=f"{TIME}Interval"), text_named(f"{TIME}Interval")),
        (column("YEAR", form=f"{TIME}Year"), INT32 | {"connect.name": f"{TIME}Year"}),
        (column("bytea", form="hex"), "string"),
        (column("SET", form=f"{DATA}EnumSet", enum_values=["x", "y"]),
         text_named(f"{DATA}EnumSet", **{"connect.parameters": {"allowed": "x,y"}})),
        (column("varbit", form=f"{DATA}Bits"), {"type": "bytes", "connect.version": 1, "connect.name": f"{DATA}Bits",
                                                "connect.parameters": {"length": "2147483647"}}),
        (column("UUID"), text_named(f"{DATA}Uuid")),
    ],
)  # fmt: skip
def test_a_form_of_debezium_has_the_type_that_its_converters_give_it(declared, expected):
    assert avro_type_of(declared) == expected


def test_money_has_two_digits():
    assert avro_type_of(column("money", form=DECIMAL))["scale"] == 2


def test_a_record_that_several_columns_have_is_defined_once():
    number = f"{DATA}VariableScaleDecimal"
    columns = [Column(name=name, type_name="numeric", position=1, form=number) for name in "ab"]
    columns.append(Column(name="c", type_name="_numeric", position=3, form=f"array<{number}>"))
    made = json.loads(avro.schemas(table(*columns, key=("a",)), "postgresql").value)
    rows = {
        field["name"]: field["type"][1]["fields"]
        for field in made["fields"]
        if field["name"] in {"former_key", "before"}
    }
    assert rows["former_key"][0]["type"]["connect.name"] == number
    kinds = [field["type"] for field in rows["before"]]
    assert kinds == [number, ["null", number], ["null", {"type": "array", "items": ["null", number]}]]


def test_schemas_are_the_same_whichever_way_a_registry_writes_their_names():
    declared = column("hstore", form="map"), column("point", form=f"{DATA}geometry.Point")
    ours = avro.schemas(
        table(ID, *(msgspec.structs.replace(it, name=f"c{n}") for n, it in enumerate(declared))), "postgresql"
    )
    ours = ours.with_prefix("p")
    short = json.loads(ours.value)
    for field in short["fields"]:
        if field["name"] == "after":
            field["type"][1] = "Value"
        if field["name"] in {"former_key", "before"}:
            del field["type"][1]["namespace"]
    assert avro.same(ours.value, json.dumps(short))
    short["fields"][-3]["type"][1]["fields"][1]["type"][1]["values"] = "string"
    assert not avro.same(ours.value, json.dumps(short))


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
