"""Silver's columns: every type whole, columns that come, widen, vanish and become others, and values that no type can hold."""

from decimal import Decimal

from spark_jobs.query import published_tables
from spark_jobs.state import published
from tests.lake import scenarios as lake_scenarios

J = "jakarta/bank"
ALL, ALTERED, OTHER, TOO_LARGE, NOT_A_ROW, WIDER = (
    f"public.{name}" for name in ("types", "altered", "other", "large", "odd", "wider")
)
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


FIRST = {
    "id": ("int4", None, None), "a": ("int4", None, None), "amount": ("numeric", 5, 1), "note": ("varchar", 9, None),
    "gone": ("text", None, None),
}  # fmt: skip


def test_columns_and_values_arrive_whole_or_stop_their_table(logged_lake):
    lake_scenarios.run(
        logged_lake(f'[streams.bank.tables."{WIDER}"]\nhistory = true\n'),
        of_every_type,
        altered_again_and_again,
        of_wider_types_without_a_copy,
        that_no_type_can_hold,
    )


def of_every_type(lake):
    source, _ = lake.feeds
    columns = {name: (kind, None, None) for name, (kind, _, _) in TYPES.items()}
    columns |= {"fixed": ("numeric", 38, 10)}
    given = {name: value for name, (_, value, _) in TYPES.items()} | {"id": 1, "fixed": "-1.0000000001"}
    source.commit(source.schema(columns, table=ALL), source.insert(ALL, **given))
    report = yield
    assert ALL not in report.problems
    text = [f"hex({n})" if n == "bytes" else f"cast({n} as string)" for n in TYPES]
    ((_, *shown, fixed),) = lake.rows(*text, "fixed", table=ALL)
    assert dict(zip(TYPES, shown, strict=True)) == {name: text for name, (_, _, text) in TYPES.items()}
    assert fixed == Decimal("-1.0000000001")


def altered_again_and_again(lake):
    """A table keeps what it had."""
    source, _ = lake.feeds

    def insert(**row):
        return source.insert(ALTERED, **row)

    source.commit(
        source.schema(FIRST, table=ALTERED),
        insert(id=1, a=10, amount="1.5", note="n", gone="g"),
        insert(id=2, a=20, amount="2.5", note="n", gone="g"),
    )
    yield
    # when columns are widened, reordered, renamed (a to b) and dropped, with rows written between, within one load
    second = {"amount": ("numeric", 12, 3), "note": ("text", None, None), "id": ("int8", None, None)}
    second |= {"b": ("int4", None, None), "gone": ("text", None, None)}
    source.commit(
        source.schema(second, table=ALTERED), insert(id=3, b=30, amount="123456789.125", note="a longer one", gone="g")
    )
    third = {name: kind for name, kind in second.items() if name != "gone"} | {"added on": ("date", None, None)}
    source.commit(
        insert(id=4, b=40, amount="4", note="n", gone="g"),
        source.schema(third, table=ALTERED),
        source.update(ALTERED, id=2, b=21, amount="2.5", note="n", **{"added on": "2026-01-31"}),
        insert(id=2**40, b=50, amount="5", note=None, **{"added on": "2026-02-01"}),
    )
    report = yield
    # then what was dropped stays readable in rows that were not written since
    assert ALTERED not in report.problems
    assert lake.rows("id", "a", "b", "amount", "note", "gone", "cast(`added on` as string)", table=ALTERED) == [
        (J, 1, 10, None, Decimal("1.500"), "n", "g", None),
        (J, 2**40, None, 50, Decimal("5.000"), None, None, "2026-02-01"),
        (J, 2, None, 21, Decimal("2.500"), "n", None, "2026-01-31"),
        (J, 3, None, 30, Decimal("123456789.125"), "a longer one", "g", None),
        (J, 4, None, 40, Decimal("4.000"), "n", "g", None),
    ]
    # and when it is dropped and made again, by truncating it in the log's eyes, and a number is none
    fourth = {name: kind for name, kind in third.items() if name != "added on"}
    source.commit(
        source.truncate(ALTERED), source.schema(fourth, table=ALTERED), insert(id=9, b=90, amount="NaN", note="n")
    )
    source.commit(insert(id=8, b=80, amount="8", note="n"))
    yield
    assert lake.rows("id", "amount", "_nan", table=ALTERED) == [
        (J, 8, Decimal("8.000"), None),
        (J, 9, None, ["amount"]),
    ]
    source.commit(source.update(ALTERED, id=9, b=90, amount="9", note="n"))
    # and when a column becomes something else, that table stops, alone, and says what to do
    yield
    nines = [(J, 8, Decimal("8.000"), None), (J, 9, Decimal("9.000"), None)]
    assert lake.rows("id", "amount", "_nan", table=ALTERED) == nines
    source.commit(source.schema(fourth | {"b": ("date", None, None)}, table=ALTERED))
    source.commit(insert(id=10, b="2026-01-31", amount="1"))
    source.commit(source.schema(table=OTHER), source.insert(OTHER, id=1, name="n", balance="1"))
    report = yield
    assert "column b is" in report.problems[ALTERED]
    assert "headrace lake rebuild" in report.problems[ALTERED]
    assert OTHER not in report.problems
    assert lake.rows("id", "amount", "_nan", table=ALTERED) == nines
    assert lake.rows("id", table=OTHER) == [(J, 1)]


def of_wider_types_without_a_copy(lake):
    """Issue 32: rows and history of before stay, and nothing asks for a copy, whichever the engine."""
    engines = (
        ({"id": ("int4", None, None), "note": ("varchar", 10, None), "amount": ("numeric", 10, 2)}, "int8", 1),
        ({"id": ("INT", None, None), "note": ("VARCHAR", 10, None), "amount": ("DECIMAL", 10, 2)}, "BIGINT", 2),
    )
    for feed, (columns, _, number) in zip(lake.feeds, engines, strict=True):
        feed.commit(feed.schema(columns, table=WIDER), feed.insert(WIDER, id=number, note="n", amount="1.25"))
    yield
    for feed, (columns, wider, number) in zip(lake.feeds, engines, strict=True):
        own = {
            "id": (wider, None, None),
            "note": (columns["note"][0], 20, None),
            "amount": (columns["amount"][0], 12, 2),
        }
        feed.commit(feed.schema(own, table=WIDER), feed.insert(WIDER, id=2**40, note="n" * 20, amount="1234567890.25"))
        feed.commit(feed.update(WIDER, id=number, note="m", amount="2.25"))
    report = yield
    assert WIDER not in report.problems
    assert WIDER not in report.warnings
    large = (2**40, "n" * 20, Decimal("1234567890.25"))
    rows = [(feed.source, n, "m", Decimal("2.25")) for n, feed in enumerate(lake.feeds, 1)]
    rows += [(feed.source, *large) for feed in lake.feeds]
    assert lake.rows("id", "note", "amount", table=WIDER) == sorted(rows, key=str)
    version = published.latest(lake.spark, lake.file, "bank").tables[WIDER].history
    history = lake.spark.read.format("delta").option("versionAsOf", version)
    assert history.load(f"{lake.file.root}/history/bank/{WIDER}").count() == 6


def that_no_type_can_hold(lake):
    """The table stops, and the value is not repeated."""
    source, _ = lake.feeds
    at = source.offset + 1
    source.commit(source.schema(table=TOO_LARGE), source.insert(TOO_LARGE, id=1, name="a", balance="1000000000.00"))
    source.commit(source.schema(table=NOT_A_ROW), source.insert(NOT_A_ROW, id=1, name={"x": 1}, balance="1.00"))
    source.commit(source.insert(NOT_A_ROW, id="secret", name="b", balance="1.00"))
    report = yield
    assert f"partition 0, offset {at}: column balance" in report.problems[TOO_LARGE]
    assert "partition 0, offset" in report.problems[NOT_A_ROW]
    assert "secret" not in str(report)
    assert published_tables.frame(lake.spark, lake.file, "bank", TOO_LARGE) is None
