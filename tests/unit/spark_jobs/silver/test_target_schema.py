"""A silver table's shape holds the records of every source and of every age of the table."""

import msgspec
import pytest
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from headrace.errors import NeedsOperator
from headrace.lake.table import add_suffix, find_stored, open_name
from headrace.schema import Column, TableSchema
from spark_jobs.silver import target_schema, types
from spark_jobs.silver.types import Incompatible


def schema(key=("id",), **columns):
    given = [
        Column(name=n, type_name=t[0], length=t[1], scale=t[2], position=i)
        for i, (n, t) in enumerate({n: (*t, None, None)[:3] for n, t in columns.items()}.items(), 1)
    ]
    return TableSchema(schema="public", table="t", key=list(key), columns=given)


@pytest.mark.parametrize(
    ("declared", "stored"),
    [
        (("int2",), "smallint"),
        (("oid",), "bigint"),
        (("numeric", 10, 2), "decimal(10,2)"),
        (("numeric", 10, None), "decimal(10,0)"),
        (("numeric", 3, 5), "decimal(5,5)"),
        (("numeric", 39, 2), "string"),
        (("numeric", 3, -2), "string"),
        (("numeric",), "string"),
        (("money",), "string"),
        (("varchar", 20, None), "string"),
        (("timestamp",), "timestamp_ntz"),
        (("timestamptz",), "timestamp"),
        (("_int4",), "string"),
        (("bytea",), "binary"),
    ],
)
def test_type_is_stored_without_loss(declared, stored):
    name, length, scale = (*declared, None, None)[:3]
    column = Column(name="c", type_name=name, length=length, scale=scale, position=1)
    assert types.of(column).simpleString() == stored


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (T.ShortType(), T.LongType(), T.LongType()),
        (T.FloatType(), T.DoubleType(), T.DoubleType()),
        (T.DecimalType(5, 1), T.DecimalType(12, 3), T.DecimalType(12, 3)),
        (T.DecimalType(10, 0), T.DecimalType(5, 5), T.DecimalType(15, 5)),
        (T.DecimalType(38, 0), T.DecimalType(10, 10), None),
        (T.LongType(), T.StringType(), None),
        (T.LongType(), T.DoubleType(), None),
    ],
)
def test_wider_type_holds_both_or_there_is_none(one, other, both):
    assert types.wider(one, other) == types.wider(other, one) == both


def test_shape_has_the_columns_of_all_sources_and_ages():
    # when
    result = target_schema.of(
        "public.t",
        [schema(id=("int8",), name=("text",)), schema(id=("int4",), added=("date",))],
        [schema(id=("int4",), dropped=("bool",))],
    )
    # then
    assert {name: kind.simpleString() for name, kind in result.columns.items()} == {
        "id": "bigint",
        "name": "string",
        "added": "date",
        "dropped": "boolean",
    }
    assert result.key == ("id",)
    assert result.canonical_key


def test_key_whose_text_may_differ_for_equal_values_is_known():
    assert not target_schema.of("public.t", [schema(id=("numeric", 10, 2))]).canonical_key


def test_key_that_was_given_later_is_read_from_the_rows():
    result = target_schema.of("public.t", [schema(id=("int8",))], [schema((), id=("int8",))])
    assert result.key == ("id",)
    assert not result.canonical_key
    with pytest.raises(NeedsOperator, match="was dropped"):
        target_schema.of("public.t", [schema((), id=("int8",))], [schema(id=("int8",))])


@pytest.mark.parametrize(
    ("latest", "said"),
    [
        ([], "no schema record"),
        ([schema(id=("int8",)), schema(("id", "n"), id=("int8",), n=("int4",))], "key differs"),
        ([schema(id=("int8",)), schema(id=("text",))], "column id is bigint here and string there"),
    ],
)
def test_shape_that_cannot_be_stops_the_table(latest, said):
    with pytest.raises(NeedsOperator, match=said):
        target_schema.of("public.t", latest)


def test_column_in_a_form_that_silver_does_not_read_stops_its_table_and_says_what_to_set():
    reported = schema(id=("int8",), amount=("money",))
    reported.columns[1] = msgspec.structs.replace(reported.columns[1], form="org.apache.kafka.connect.data.Decimal")
    with pytest.raises(NeedsOperator, match="amount") as stopped:
        target_schema.of("public.t", [reported])
    assert "[records] decimal" in stopped.value.hint


@pytest.mark.parametrize(
    ("kind", "form", "is_read"),
    [
        (("numeric", 9, 2), "org.apache.kafka.connect.data.Decimal", True),
        (("numeric", 50, 2), "org.apache.kafka.connect.data.Decimal", False),
        (("numeric",), "double", False),
        (("numeric",), "io.debezium.data.VariableScaleDecimal", True),
        (("timestamp", 3), "org.apache.kafka.connect.data.Timestamp", True),
        (("timestamp",), "org.apache.kafka.connect.data.Timestamp", False),
        (("timestamp",), "io.debezium.time.MicroTimestamp", True),
        (("interval",), "io.debezium.time.MicroDuration", False),
        (("timetz",), "io.debezium.time.ZonedTime", False),
        (("timestamptz",), "io.debezium.time.ZonedTimestamp", True),
        (("bit", 1), "boolean", True),
        (("bit", 3), "io.debezium.data.Bits", False),
        (("_int4",), "array<int32>", True),
        (("_float8",), "array<float64>", False),
        (("bytea",), "hex", False),
    ],
)
def test_a_form_is_read_where_the_value_can_be_made_again(kind, form, is_read):
    reported = schema(id=("int8",), a=kind)
    reported.columns[1] = msgspec.structs.replace(reported.columns[1], form=form)
    if is_read:
        assert "a" in target_schema.of("public.t", [reported]).columns
    else:
        with pytest.raises(NeedsOperator, match=r"column a in Debezium's form"):
            target_schema.of("public.t", [reported])


def test_column_whose_form_is_a_name_alone_is_read_as_any_other():
    reported = schema(id=("int8",), code=("uuid",), pairs=("hstore",))
    reported.columns[1] = msgspec.structs.replace(reported.columns[1], form="io.debezium.data.Uuid")
    assert target_schema.of("public.t", [reported]).columns.keys() == {"id", "code", "pairs"}
    reported.columns[2] = msgspec.structs.replace(reported.columns[2], form="io.debezium.data.Json")
    with pytest.raises(NeedsOperator, match="pairs"):
        target_schema.of("public.t", [reported])


def test_t12_columns_that_sql_does_not_distinguish_have_names_that_depend_on_no_order():
    id_, source = add_suffix("Id"), add_suffix("_source")
    wanted = {"Id": ("int8",), "id": ("int8",), "_source": ("text",)}
    for names in (list(wanted), list(reversed(wanted))):
        result = target_schema.of("public.t", [schema(("Id",), **{name: wanted[name] for name in names})])
        assert result.columns.keys() == {"id", id_, source}
        assert (result.key, result.source_names) == ((id_,), {id_: "Id", source: "_source"})
    # Of several sources, and where none is in lower case.
    several = target_schema.of(
        "public.t", [schema(("k",), k=("int8",), AB=("text",)), schema(("k",), k=("int8",), Ab=("text",))]
    )
    assert several.columns.keys() == {"k", add_suffix("AB"), add_suffix("Ab")}


def test_t12_column_whose_name_in_silver_changed_needs_a_rebuild():
    def fitted(stored, *names):
        target = target_schema.of("public.t", [schema((), **dict.fromkeys(names, ("int8",)))])
        return target_schema.fit_types(target, dict.fromkeys((*stored, "_source", "_position"), T.LongType())).columns

    a = add_suffix("A")
    assert fitted(["a"], "a", "A").keys() == {"a", a}
    assert fitted(["a", a], "a").keys() == {"a"}
    assert fitted(["b"], "b", "_source").keys() == {"b", add_suffix("_source")}
    for stored, names in (
        (["A"], ["a", "A"]),
        (["a", a], ["A"]),
        (["A"], ["a"]),
        ([a, add_suffix("aA")], ["A"]),
    ):
        with pytest.raises(Incompatible, match="differs by case alone"):
            fitted(stored, *names)


def test_open_tables_have_no_names_that_parquet_does_not_take_and_a_table_keeps_the_names_that_it_has():
    columns = {"odd id": ("int8",), "Odd": ("text",), "odd": ("text",), "a;b": ("text",), "plain": ("text",)}
    mapped, of_open = (
        target_schema.of("public.t", [schema(("odd id",), **columns)], open_names=open_names)
        for open_names in (False, True)
    )
    id_, ab, cased = open_name("odd id"), open_name("a;b"), add_suffix("Odd")
    assert mapped.columns.keys() == {"odd id", cased, "odd", "a;b", "plain"}
    assert of_open.columns.keys() == {id_, cased, "odd", ab, "plain"}
    assert (of_open.key, of_open.source_names) == ((id_,), {id_: "odd id", ab: "a;b", cased: "Odd"})
    assert not any(map(target_schema.is_mapped, of_open.columns))
    # whichever names a table has
    for target, other in ((mapped, of_open), (of_open, mapped)):
        assert target_schema.as_stored(target, other.columns) == other
        assert target_schema.as_stored(target, target.columns) == target
        assert target_schema.as_stored(target, ["odd"]) == target
        assert {find_stored(name, other.columns) for name in columns} == set(other.columns)
