"""Every type has one text in both engines, and one value that differs is found in each."""

import json
import random
from contextlib import closing

from psycopg2.extras import execute_values

from spark_jobs.verify.compare import Difference
from tests.integration.verify.verify_types import (
    COUPLES,
    RANDOMS,
    SILVER_OF_EVERY_TYPE,
    TABLE_OF_EVERY_TYPE,
    random_row,
)


def test_a_table_of_every_type_is_equal(database, spark, verified):
    database.execute(TABLE_OF_EVERY_TYPE + COUPLES)

    result = verified(public__everything=spark.sql(SILVER_OF_EVERY_TYPE))["public.everything"]

    assert (result.equal, result.reasons, result.differences) == (True, [], [])
    assert result.rows_source == result.rows_lake == 7


#: Names that the server prints with schemas, for verify, as the log has them for a role whose path has the schema `apart`.
NAMED = """
create schema apart; create type apart.t as (a int);
create function apart.f(int, text) returns int language sql as 'select 1';
create function apart."g h"(apart.t) returns int language sql as 'select 1';
create operator apart.=#= (function = apart.f, leftarg = int, rightarg = text);
create table apart."x, y" (id int);
create table named (id int primary key, p regprocedure, q regprocedure, o regoper, b regoperator, tables regclass[],
    types regtype[], procedures regprocedure[], functions regproc[]);
insert into named values (1, 'apart.f(int, text)', 'apart."g h"(apart.t)', 'apart.=#=', 'apart.=#=(int, text)',
    array['apart."x, y"', 'named', 'pg_class']::regclass[], array['apart.t', 'int', 'double precision']::regtype[],
    array['apart.f(int, text)', 'apart."g h"(apart.t)']::regprocedure[], array['apart.f']::regproc[])
"""
NAMED_BY_PATH = r"""
select 1 as id, 'f(integer,text)' as p, '"g h"(t)' as q, '=#=' as o, '=#=(integer,text)' as b,
    '{"\\"x, y\\"",named,pg_class}' as tables, '{t,integer,"double precision"}' as types,
    '{"f(integer,text)","\\"g h\\"(t)"}' as procedures, '{f}' as functions
"""


def test_names_that_a_search_path_shortens_are_equal_wherever_they_are(database, spark, verified):
    database.execute(NAMED)
    silver = spark.sql(NAMED_BY_PATH)
    assert verified(public__named=silver)["public.named"].differences == []

    other = silver.selectExpr(*(name for name in silver.columns if name != "o"), "'=#' as o")
    assert [it.columns for it in verified(public__named=other)["public.named"].differences] == [("o",)]


def test_random_values_have_one_text_in_both_engines(database, spark, verified, tmp_path):
    chance = random.Random(20260131)
    given = [random_row(chance, number) for number in range(1000)]
    database.execute(RANDOMS)
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        execute_values(cursor, "INSERT INTO randoms VALUES %s", given)
    # As text, which is all that JSON keeps exactly.
    names = ("id", "whole", "exact", "single", "double", "words", "day", "local", "instant", "bytes")
    (tmp_path / "rows.json").write_text(
        "\n".join(json.dumps(dict(zip(names, map(as_text, row), strict=True))) for row in given), encoding="utf-8"
    )
    silver = (
        spark.read.schema(", ".join(f"{name} string" for name in names))
        .json(str(tmp_path / "rows.json"))
        .selectExpr(
            *("cast(id AS int) AS id", "cast(whole AS bigint) AS whole", "cast(exact AS decimal(38,18)) AS exact"),
            *(
                "cast(single AS float) AS single",
                "cast(double AS double) AS double",
                "words",
                "cast(day AS date) AS day",
            ),
            *(
                "cast(local AS timestamp_ntz) AS local",
                "cast(instant AS timestamp) AS instant",
                "unhex(bytes) AS bytes",
            ),
        )
    )

    result = verified(public__randoms=silver)["public.randoms"]

    assert result.differences == []
    assert (result.equal, result.rows_lake) == (True, 1000)


def as_text(value):
    return value.hex() if isinstance(value, bytes) else str(value)


#: Columns, and another value of each.
OTHERS = [
    ("whole", "-4"),
    ("exact", "12.5001BD"),
    ("free", "'1.50'"),
    ("single", "float('1.1000001')"),
    ("double", "1.1000000000000003D"),
    ("flag", "false"),
    ("words", "'naïve|~5:é😀 '"),
    ("padded", "'ab'"),
    ("day", "date'2026-02-01'"),
    ("local", "timestamp_ntz'2026-01-31 09:15:00.250001'"),
    ("instant", "timestamp'2026-01-31 07:15:00.249999'"),
    ("bytes", "X'00fe'"),
    ("document", "'{\"a\":1}'"),
    ("words", "null"),
    ("nothing", "''"),
]


def test_one_value_that_differs_is_found_in_every_type(database, spark, verified):
    # Given copies of a row, each with one other value in the lake.
    database.execute(TABLE_OF_EVERY_TYPE + COUPLES)
    silver = spark.sql(SILVER_OF_EVERY_TYPE)
    rest = [name for name in silver.columns if name != "id"]
    database.execute(
        f"INSERT INTO everything (id, {', '.join(rest)}) SELECT 100 + n, {', '.join(rest)}"
        f" FROM everything, generate_series(0, {len(OTHERS) - 1}) n WHERE id = 1"
    )
    for number, (changed, other) in enumerate(OTHERS):
        kind = silver.schema[changed].dataType.simpleString()
        values = [f"cast({other} AS {kind}) AS {name}" if name == changed else name for name in rest]
        row = spark.sql(SILVER_OF_EVERY_TYPE).where("id = 1").selectExpr(f"{100 + number}L AS id", *values)
        silver = silver.union(row)

    # When both are compared, then each is found in its column.
    result = verified(public__everything=silver)["public.everything"]
    assert not result.equal
    assert sorted(result.differences, key=lambda it: it.key["id"]) == [
        Difference(what="differs", key={"id": str(100 + number)}, columns=(changed,))
        for number, (changed, _) in enumerate(OTHERS)
    ]
