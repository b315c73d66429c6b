"""Silver on real Delta tables: current rows by source and key, and whole transactions."""

from decimal import Decimal

from spark_jobs import noop_check
from spark_jobs.bronze import load as bronze
from spark_jobs.silver import merge_filter
from tests.lake_reading import rows

J, L = "jakarta/bank", "london/bank"


def test_rows_are_current_by_source_and_key(spark, feed, lake_file, loaded):
    # given two sources with the same keys
    one = feed(J, partitions=2)
    other = feed(L, into=one.topic, partition=1)
    lake = lake_file(bank=one.topic)
    one.commit(one.schema(), *(one.insert(id=i, name="a", balance="1.50") for i in (1, 2, 3)))
    other.commit(other.schema(), other.insert(id=1, name="theirs", balance="9.99"))
    first = loaded(lake)
    assert noop_check.report(lake, "bank").plain()["silver"]["changes"] == {}
    # when
    one.commit(one.update(id=1, name="b", balance="2.50"), one.delete(id=2), one.insert(id=4, name="d", balance="0.00"))
    one.commit(one.update(id=1, name="c", balance="3.50"), one.delete(id=4))
    one.commit(one.insert(id=2, name="again", balance="-7.00"))
    assert noop_check.report(lake, "bank") is None
    assert noop_check.report(lake, "bank", "silver") is not None
    bronze.load(spark, lake, "bank")
    assert noop_check.report(lake, "bank", "silver") is None
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


def test_rows_that_change_again_and_again_show_their_newest_state(spark, feed, lake_file, loaded):
    # given few keys with many changes each, from an empty table and into one with rows
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema())
    for begin in (0, 50):
        # when
        for n in range(begin, begin + 50):
            source.commit(*(source.update(id=i, name=f"{i} at {n}", balance="1.00") for i in (1, 2, 3)))
        done = loaded(lake)
        # then
        assert done.changes == {"public.accounts": 150}
        assert [name for _, _, name, _ in rows(spark, lake)] == [f"{i} at {begin + 49}" for i in (1, 2, 3)]


def test_table_that_is_large_beside_its_changes_is_sifted(spark, feed, lake_file, loaded, monkeypatch):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), *(source.insert(id=i, name="a", balance="1.00") for i in range(1000)))
    loaded(lake)
    monkeypatch.setattr(merge_filter, "_LARGE", 1)
    # when
    source.commit(source.update(id=500, name="b", balance="1.00"), source.delete(id=0), source.delete(id=2000))
    source.commit(source.insert(id=1000, name="c", balance="1.00"), source.insert(id=0, name="again", balance="1.00"))
    loaded(lake)
    source.commit(source.delete(id=500))
    loaded(lake)
    # then
    found = {key: name for _, key, name, _ in rows(spark, lake)}
    assert found == {0: "again", 1000: "c"} | {key: "a" for key in range(1, 1000) if key != 500}
    assert any("might_contain" in plan for plan in _plans(spark))


def _plans(spark):
    done = spark._jsparkSession.sharedState().statusStore().executionsList()
    return [done.apply(number).physicalPlanDescription() for number in range(done.size())]


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
    assert noop_check.report(lake, "bank") is None
    source.commit(source.insert(id=2, name="b", balance="1.00"))
    assert "audit.log" in loaded(lake).problems
    assert len(rows(spark, lake)) == 2
    # and when the table gets a key, it goes on where it stands
    source.commit(source.delete("audit.log", entry="x", n=1), source.delete("audit.log", entry="x", n=1))
    source.commit(source.schema(log, ["n"], "audit.log"), source.update("audit.log", entry="w", n=3))
    report = loaded(lake)
    assert report.problems == {}
    assert rows(spark, lake, "audit.log", columns=["entry", "n"]) == [(J, "w", 3)]
