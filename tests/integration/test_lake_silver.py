"""Silver on real Delta tables: current rows by source and key, whole transactions, and nothing done twice."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from headrace.errors import Retryable
from spark_jobs import bronze, delta_log, idle
from spark_jobs.silver import load as silver
from spark_jobs.silver import read, table
from tests.lake_death import dying_before_it_publishes


@pytest.fixture
def loaded(spark):
    """Return a function that loads bronze and silver, and returns silver's report."""

    def load(lake, stream="bank"):
        bronze.load(spark, lake, stream)
        return silver.load(spark, lake, stream)

    return load


def rows(spark, lake, name="public.accounts", stream="bank", columns=("id", "name", "balance")):
    frame = read.frame(spark, lake, stream, name)
    return sorted(tuple(row) for row in frame.select("_source", *columns).collect())


J, L = "jakarta/bank", "london/bank"


def test_rows_are_current_by_source_and_key(spark, feed, lake_file, loaded):
    # given two sources with the same keys
    one = feed(J, partitions=2)
    other = feed(L, into=one.topic, partition=1)
    lake = lake_file(bank=one.topic)
    one.commit(one.schema(), *(one.insert(id=i, name="a", balance="1.50") for i in (1, 2, 3)))
    other.commit(other.schema(), other.insert(id=1, name="theirs", balance="9.99"))
    first = loaded(lake)
    assert idle.report(lake, "bank").plain()["silver"]["changes"] == {}
    # when
    one.commit(one.update(id=1, name="b", balance="2.50"), one.delete(id=2), one.insert(id=4, name="d", balance="0.00"))
    one.commit(one.update(id=1, name="c", balance="3.50"), one.delete(id=4))
    one.commit(one.insert(id=2, name="again", balance="-7.00"))
    assert idle.report(lake, "bank") is None
    assert idle.report(lake, "bank", "silver") is not None
    bronze.load(spark, lake, "bank")
    assert idle.report(lake, "bank", "silver") is None
    second = loaded(lake)
    third = loaded(lake)
    # then
    assert rows(spark, lake) == [
        (J, 1, "c", Decimal("3.50")),
        (J, 2, "again", Decimal("-7.00")),
        (J, 3, "a", Decimal("1.50")),
        (L, 1, "theirs", Decimal("9.99")),
    ]
    assert (first.load, second.load, third.load) == (1, 2, None)
    assert (first.changes, second.changes) == ({"public.accounts": 4}, {"public.accounts": 6})
    assert set(second.ranges) == {J}


def test_half_a_transaction_is_not_shown(spark, feed, lake_file, loaded):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    end = source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    source.commit(
        source.update(id=1, name="half", balance="1.00"), source.insert(id=2, name="half", balance="0"), ends=False
    )
    # when
    first = loaded(lake)
    # then
    assert rows(spark, lake) == [(J, 1, "a", Decimal("1.00"))]
    assert first.ranges == {J: ("", end)}
    assert first.waiting == {J: 2}
    assert first.changes == {"public.accounts": 1}
    # and when the rest of it is there
    source.commit(source.insert(id=3, name="whole", balance="0"))
    loaded(lake)
    assert [name for _, _, name, _ in rows(spark, lake)] == ["half", "half", "whole"]


def test_change_of_key_removes_the_old_row(spark, feed, lake_file, loaded):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), *(source.insert(id=i, name=f"n{i}", balance="1.00") for i in (1, 2, 3)))
    loaded(lake)
    # when a key moves, two change places through a third, and one moves within a whole old row
    source.commit(source.update(before={"id": 1}, id=10, name="n1", balance="1.00"))
    source.commit(
        source.update(before={"id": 2}, id=99, name="n2", balance="1.00"),
        source.update(before={"id": 3}, id=2, name="n3", balance="1.00"),
        source.update(before={"id": 99}, id=3, name="n2", balance="1.00"),
    )
    whole = {"name": "n1", "id": 10, "balance": "1.00"}
    source.commit(source.update(before=whole, id=11, name="n1", balance="1.00"))
    # and one with a whole old row does not move
    source.commit(source.update(before={"name": "n3", "id": 2, "balance": "1.00"}, id=2, name="same", balance="1.00"))
    loaded(lake)
    # then
    assert [(key, name) for _, key, name, _ in rows(spark, lake)] == [(2, "same"), (3, "n2"), (11, "n1")]


def test_truncate_takes_its_place_among_the_changes(spark, feed, lake_file, loaded):
    # given a table with a key and one without, in two sources
    one = feed(J, partitions=2)
    other = feed(L, into=one.topic, partition=1)
    lake = lake_file(bank=one.topic)
    log = {"entry": ("text", None, None)}
    for source in (one, other):
        source.commit(source.schema(), source.insert(id=1, name="old", balance="1.00"))
        source.commit(source.schema(log, (), "public.log"), source.insert("public.log", entry="old"))
    loaded(lake)
    # when one of them truncates between other changes
    one.commit(one.insert(id=2, name="gone", balance="1.00"), one.insert("public.log", entry="gone"))
    one.commit(one.truncate(), one.truncate("public.log"))
    one.commit(one.insert(id=3, name="new", balance="1.00"), one.insert("public.log", entry="new"))
    loaded(lake)
    # then
    assert [(s, key, name) for s, key, name, _ in rows(spark, lake)] == [(J, 3, "new"), (L, 1, "old")]
    assert rows(spark, lake, "public.log", columns=["entry"]) == [(J, "new"), (L, "old")]
    # and a truncate with nothing after it
    one.commit(one.truncate(), one.truncate("public.log"))
    loaded(lake)
    assert [s for s, *_ in rows(spark, lake)] == [L]
    assert rows(spark, lake, "public.log", columns=["entry"]) == [(L, "old")]


# B8
def test_column_that_the_log_did_not_carry_keeps_its_value(spark, feed, lake_file, loaded):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    columns = {
        "id": ("int8", None, None),
        "big": ("text", None, None),
        "huge": ("text", None, None),
        "n": ("int4", None, None),
    }
    source.commit(
        source.schema(columns, ["id"], "public.docs"),
        *(source.insert("public.docs", id=i, big=f"big{i}", huge=f"huge{i}", n=0) for i in (1, 2, 3, 4, 5)),
    )
    loaded(lake)

    def update(**row):
        return source.update("public.docs", **row)

    # when
    source.commit(
        # Partial updates of one row, one after the other.
        update(id=1, n=1, unchanged=["big", "huge"]),
        update(id=1, n=2, big="new", unchanged=["huge"]),
        update(id=1, n=3, unchanged=["big", "huge"]),
        # A null is a value.
        update(id=2, n=1, big=None, unchanged=["huge"]),
        update(id=2, n=2, unchanged=["big", "huge"]),
        # Its row moves, twice, and another takes its place.
        update(before={"id": 3}, id=30, n=1, unchanged=["big", "huge"]),
        update(before={"id": 30}, id=31, n=2, big="moved", unchanged=["huge"]),
        update(before={"id": 4}, id=3, n=1, unchanged=["big", "huge"]),
        # Deleted and made again.
        source.delete("public.docs", id=5),
        source.insert("public.docs", id=5, big="fresh", huge="fresh", n=0),
        update(id=5, n=1, unchanged=["big", "huge"]),
        # Made and changed within one load.
        source.insert("public.docs", id=6, big="b6", huge="h6", n=0),
        update(id=6, n=1, unchanged=["huge"], big="b7"),
    )
    loaded(lake)
    # then
    assert [row[1:] for row in rows(spark, lake, "public.docs", columns=["id", "big", "huge", "n"])] == [
        (1, "new", "huge1", 3),
        (2, None, "huge2", 2),
        (3, "big4", "huge4", 1),
        (5, "fresh", "fresh", 1),
        (6, "b7", "h6", 1),
        (31, "moved", "huge3", 2),
    ]


def test_table_without_a_key_appends_and_stops_alone_at_an_update(spark, feed, lake_file, loaded):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    log = {"entry": ("text", None, None), "n": ("int4", None, None)}
    source.commit(
        source.schema(log, (), "audit.log"),
        source.insert("audit.log", entry="x", n=1),
        source.insert("audit.log", entry="x", n=1),
    )
    loaded(lake)
    source.commit(source.insert("audit.log", entry="y", n=2))
    loaded(lake)
    assert rows(spark, lake, "audit.log", columns=["entry", "n"]) == [(J, "x", 1), (J, "x", 1), (J, "y", 2)]
    # when
    source.commit(source.update("audit.log", before={"entry": "y", "n": 2}, entry="z", n=3))
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    report = loaded(lake)
    # then the other table goes on, and every load says it again
    assert "audit.log has no key" in report.problems["audit.log"]
    assert [key for _, key, _, _ in rows(spark, lake)] == [1]
    assert len(rows(spark, lake, "audit.log", columns=["entry"])) == 3
    assert "audit.log" in loaded(lake).problems
    assert idle.report(lake, "bank") is None
    source.commit(source.insert(id=2, name="b", balance="1.00"))
    assert "audit.log" in loaded(lake).problems
    assert len(rows(spark, lake)) == 2
    # and when the table gets a key, it goes on where it stands
    source.commit(source.delete("audit.log", entry="x", n=1), source.delete("audit.log", entry="x", n=1))
    source.commit(source.schema(log, ["n"], "audit.log"), source.update("audit.log", entry="w", n=3))
    report = loaded(lake)
    assert report.problems == {}
    assert rows(spark, lake, "audit.log", columns=["entry", "n"]) == [(J, "w", 3)]


def test_load_that_died_before_publishing_is_done_again_without_harm(spark, feed, lake_file, loaded):
    # given a load whose tables are written and whose row is not
    source = feed()
    lake = lake_file(bank=source.topic)
    log = {"entry": ("text", None, None)}
    source.commit(
        source.schema(), source.insert(id=1, name="a", balance="1.00"), source.insert(id=2, name="b", balance="1.00")
    )
    source.commit(source.schema(log, (), "public.log"), source.insert("public.log", entry="one"))
    loaded(lake)
    source.commit(source.delete(id=1), source.update(before={"id": 2}, id=3, name="b", balance="1.00"))
    source.commit(source.insert("public.log", entry="two"))
    with dying_before_it_publishes(lake):
        loaded(lake)
    # then nothing of it is seen
    assert [key for _, key, _, _ in rows(spark, lake)] == [1, 2]
    # when
    source.commit(source.insert(id=4, name="d", balance="1.00"), source.insert("public.log", entry="three"))
    loaded(lake)
    # then
    assert [key for _, key, _, _ in rows(spark, lake)] == [3, 4]
    assert rows(spark, lake, "public.log", columns=["entry"]) == [(J, "one"), (J, "three"), (J, "two")]


def test_table_whose_folder_was_moved_away_is_built_anew_from_bronze(spark, feed, lake_file, loaded):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(
        source.schema(), source.insert(id=1, name="a", balance="1.00"), source.insert(id=2, name="b", balance="1.00")
    )
    loaded(lake)
    source.commit(source.delete(id=2))
    loaded(lake)
    before = rows(spark, lake)
    # when
    shutil.rmtree(table.path(lake, "bank", "public.accounts"))
    assert idle.report(lake, "bank") is None
    loaded(lake)
    # then
    assert rows(spark, lake) == before == [(J, 1, "a", Decimal("1.00"))]


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
    frame = read.frame(spark, lake, "bank", "public.accounts")
    found = sorted(tuple(row) for row in frame.selectExpr("id", "amount", "cast(`added on` as string)").collect())
    assert found == [(1, Decimal("1.500"), None), (2**40, Decimal("123456789.125"), "2026-01-31")]
    # and when a type changes into something else
    source.commit(
        source.schema(wide | {"note": ("text", None, None)}),
        source.insert(id=3, amount="1", note="n", **{"added on": None}),
    )
    report = loaded(lake)
    assert "column note" in report.problems["public.accounts"]
    assert read.frame(spark, lake, "bank", "public.accounts").count() == 2


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
    frame = read.frame(spark, lake, "bank", "public.accounts")
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
    assert read.frame(spark, lake, "bank", "public.accounts") is None


def test_two_streams_with_a_table_of_one_name_do_not_mix(spark, feed, lake_file, loaded):
    # given
    one, other = feed(), feed()
    lake = lake_file(bank=one.topic, shop=other.topic)
    one.commit(one.schema(), one.insert(id=1, name="bank", balance="1.00"))
    other.commit(other.schema(), other.insert(id=1, name="shop", balance="1.00"))
    # when
    loaded(lake)
    loaded(lake, "shop")
    # then
    assert rows(spark, lake, stream="bank")[0][2] == "bank"
    assert rows(spark, lake, stream="shop")[0][2] == "shop"
    names = {relation.name for relation in read.relations(spark, lake) if relation.database == "silver"}
    assert names == {"bank_accounts", "shop_accounts"}


# B16: what a MERGE notes of itself is a setting of its session, which tables that are written side by side must not share.
def test_tables_written_side_by_side_each_note_their_own_progress(spark, feed, lake_file, loaded):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    names = [f"public.t{n}" for n in range(4)]
    for name in names:
        source.commit(source.schema(table=name), source.insert(name, id=1, name="a", balance="1.00"))
    loaded(lake)
    # when
    end = source.commit(*(source.update(name, id=1, name="b", balance="1.00") for name in names))
    loaded(lake)
    # then
    for name in names:
        _, note = delta_log.note(spark, table.path(lake, "bank", name), table.NOTE)
        assert (note["table"], note["load"], note["positions"]) == (name, 2, {J: end})


def test_two_loads_at_once_double_nothing(spark, feed, lake_file, loaded):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    log = {"entry": ("text", None, None)}
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    source.commit(source.schema(log, (), "public.log"), source.insert("public.log", entry="one"))
    loaded(lake)
    source.commit(source.insert("public.log", entry="two"), source.update(id=1, name="b", balance="1.00"))
    bronze.load(spark, lake, "bank")
    # when
    with ThreadPoolExecutor(2) as pool:
        loads = [pool.submit(silver.load, spark, lake, "bank") for _ in range(2)]
    failures = [error for load in loads if (error := load.exception())]
    # then each may have met the other, at one table or another; neither can have doubled anything
    assert all(isinstance(error, Retryable) for error in failures), failures
    loaded(lake)
    assert rows(spark, lake, "public.log", columns=["entry"]) == [(J, "one"), (J, "two")]
    assert rows(spark, lake) == [(J, 1, "b", Decimal("1.00"))]
