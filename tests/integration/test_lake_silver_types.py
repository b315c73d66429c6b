"""Silver's columns: every type whole, columns that come and widen, and values that a type cannot hold."""

from decimal import Decimal

from spark_jobs.query import published_tables


def test_new_and_wider_columns_appear_and_a_narrower_one_stops_its_table(spark, feed, lake_file, loaded):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    narrow = {"id": ("int4", None, None), "amount": ("numeric", 5, 1), "note": ("int4", None, None)}
    source.commit(source.schema(narrow), source.insert(id=1, amount="1.5", note=1))
    loaded(lake)
    # when
    wide = {
        "id": ("int8", None, None),
        "amount": ("numeric", 12, 3),
        "note": ("int4", None, None),
        "added on": ("date", None, None),
    }
    source.commit(
        source.schema(wide), source.insert(id=2**40, amount="123456789.125", note=2, **{"added on": "2026-01-31"})
    )
    loaded(lake)
    # then
    frame = published_tables.frame(spark, lake, "bank", "public.accounts")
    found = sorted(tuple(row) for row in frame.selectExpr("id", "amount", "cast(`added on` as string)").collect())
    assert found == [(1, Decimal("1.500"), None), (2**40, Decimal("123456789.125"), "2026-01-31")]
    # and when a type changes into something else
    source.commit(
        source.schema(wide | {"note": ("text", None, None)}),
        source.insert(id=3, amount="1", note="n", **{"added on": None}),
    )
    report = loaded(lake)
    assert "column note" in report.problems["public.accounts"]
    assert published_tables.frame(spark, lake, "bank", "public.accounts").count() == 2


TYPES = {
    "id": ("int8", "1", "1"),
    "small": ("int2", -32768, "-32768"),
    "oid": ("oid", 4294967295, "4294967295"),
    "real": ("float4", 1.1, "1.1"),
    "double": ("float8", "-Infinity", "-Infinity"),
    "nan": ("float8", "NaN", "NaN"),
    "exact": (
        "numeric",
        "12345678901234567890123456789012345678.123456789",
        "12345678901234567890123456789012345678.123456789",
    ),
    "odd": ("numeric", "NaN", "NaN"),
    "flag": ("bool", True, "true"),
    "day": ("date", "2026-01-31", "2026-01-31"),
    "forever": ("date", "infinity", "+5881580-07-11"),
    "ancient": ("date", "0044-03-15 BC", "-0043-03-15"),
    "local": ("timestamp", "2026-01-31T09:15:00.25", "2026-01-31 09:15:00.25"),
    "at": ("timestamptz", "2026-01-31T09:15:00.123456Z", "2026-01-31 09:15:00.123456"),
    "never": ("timestamptz", "infinity", "+294247-01-10 04:00:54.775807"),
    "first_year": ("timestamp", "0001-02-03 04:05:06 BC", "0000-02-03 04:05:06"),
    "bytes": ("bytea", "AP8=", "00FF"),
    "uuid": ("uuid", "6f1c1f4e-0000-4000-8000-000000000000", "6f1c1f4e-0000-4000-8000-000000000000"),
    "list": ("_int4", "{1,2}", "{1,2}"),
    "json": ("jsonb", '{"a": "\\"after\\":{ \\"source\\":{"}', '{"a": "\\"after\\":{ \\"source\\":{"}'),
    "time": ("time", "09:15:00.25", "09:15:00.25"),
    "nothing": ("text", None, None),
    "empty": ("text", "", ""),
}


def test_every_type_arrives_whole(spark, feed, lake_file, loaded):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    columns = {name: (kind, None, None) for name, (kind, _, _) in TYPES.items()}
    columns |= {"fixed": ("numeric", 38, 10)}
    given = {name: value for name, (_, value, _) in TYPES.items()} | {"id": 1, "fixed": "-1.0000000001"}
    source.commit(source.schema(columns), source.insert(**given))
    # when
    report = loaded(lake)
    # then
    assert report.problems == {}
    frame = published_tables.frame(spark, lake, "bank", "public.accounts")
    text = [f"hex({n})" if n == "bytes" else f"cast({n} as string)" for n in TYPES]
    (row,) = frame.selectExpr(*text, "fixed").collect()
    assert dict(zip(TYPES, row, strict=False)) == {name: shown for name, (_, _, shown) in TYPES.items()}
    assert row["fixed"] == Decimal("-1.0000000001")


def test_value_that_its_type_cannot_hold_stops_its_table_and_is_not_repeated(spark, feed, lake_file, loaded):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1000000000.00"))
    source.commit(
        source.schema(table="public.other"), source.insert("public.other", id=1, name={"x": 1}, balance="1.00")
    )
    source.commit(source.insert("public.other", id="secret", name="b", balance="1.00"))
    # when
    report = loaded(lake)
    # then
    assert "partition 0, offset 1: column balance" in report.problems["public.accounts"]
    assert "partition 0, offset" in report.problems["public.other"]
    assert "secret" not in str(report)
    assert published_tables.frame(spark, lake, "bank", "public.accounts") is None
