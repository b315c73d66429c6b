"""Rows that no load has merged yet, and rows as they stood in the past: what a load would show, without one."""

from datetime import UTC, datetime

import pytest

from headrace.errors import ConfigurationError, NeedsOperator
from spark_jobs import bronze, sql
from spark_jobs.silver import load as silver

J, L = "jakarta/bank", "london/bank"
LOG = {"entry": ("text", None, None)}
DOCS = {"id": ("int4", None, None), "odd name": ("text", None, None), "big": ("text", None, None)}


def asked(desk, table, database):
    frame = desk.ask(f"SELECT * FROM {database}.{table}")
    return sorted(str(sorted(row.asDict().items())) for row in frame.collect())


@pytest.fixture
def desks(spark):
    made = []

    def make(lake, **options):
        made.append(sql.Desk(spark, lake, **options))
        return made[-1]

    yield make
    for desk in made:
        desk.close()


def test_live_rows_are_those_that_the_next_load_will_show(spark, feed, lake_file, desks):
    # given two sources, four tables, and a load
    one = feed(J, partitions=2)
    other = feed(L, into=one.topic, partition=1)
    lake = lake_file(bank=one.topic)
    one.commit(one.schema(), *(one.insert(id=i, name="a", balance="1.00") for i in range(1, 6)))
    one.commit(one.schema(DOCS, ["id"], "public.docs"))
    one.commit(*(one.insert("public.docs", id=i, big=f"b{i}", **{"odd name": "o"}) for i in (1, 2, 3)))
    for source in (one, other):
        source.commit(source.schema(LOG, (), "public.log"), source.insert("public.log", entry="old"))
    other.commit(other.schema(), other.insert(id=1, name="theirs", balance="1.00"))
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")
    desk = desks(lake)
    tables = ["accounts", "docs", "log", "fresh"]
    published = {name: asked(desk, name, "silver") for name in tables[:3]}
    assert {name: asked(desk, name, "silver_live") for name in tables[:3]} == published
    # when all kinds of changes come: of keys, of half rows, of columns and their types, truncates, and a new table
    one.commit(one.update(id=1, name="b", balance="2.00"), one.delete(id=2))
    one.commit(one.update(before={"id": 3}, id=30, name="moved", balance="1.00"))
    wide = DOCS | {"id": ("int8", None, None), "added": ("date", None, None)}
    one.commit(
        one.schema(wide, ["id"], "public.docs"),
        one.update("public.docs", id=1, added="2026-01-31", **{"odd name": None}, unchanged=["big"]),
        one.insert("public.docs", id=2**40, added=None, big="new", **{"odd name": "n"}),
    )
    one.commit(one.truncate("public.log"), one.insert("public.log", entry="new"))
    other.commit(other.schema(table="public.fresh"), other.insert("public.fresh", id=1, name="f", balance="1.00"))
    one.commit(one.update(id=4, name="half", balance="0.00"), ends=False)
    bronze.load(spark, lake, "bank")
    live = {name: asked(desk, name, "silver_live") for name in tables}
    # then silver is as it was, and live shows what silver shows after the next load
    assert {name: asked(desk, name, "silver") for name in tables[:3]} == published
    assert all(live[name] != published.get(name) for name in tables)
    silver.load(spark, lake, "bank")
    assert {name: asked(desk, name, "silver") for name in tables} == live
    assert "half" not in str(live)
    # and again when the half transaction is whole
    one.commit(one.insert(id=9, name="whole", balance="0.00"))
    bronze.load(spark, lake, "bank")
    live = asked(desk, "accounts", "silver_live")
    assert "half" in str(live)
    assert "whole" in str(live)
    silver.load(spark, lake, "bank")
    assert asked(desk, "accounts", "silver") == live


def test_table_at_which_a_load_would_stop_is_refused_alone(spark, feed, lake_file, desks):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    source.commit(source.schema(LOG, (), "public.log"), source.insert("public.log", entry="one"))
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")
    source.commit(source.update("public.log", before={"entry": "one"}, entry="two"))
    source.commit(source.update(id=1, name="b", balance="1.00"))
    bronze.load(spark, lake, "bank")
    desk = desks(lake)
    # then before the load that stops, and after it
    for _ in range(2):
        with pytest.raises(NeedsOperator, match="log has no key"):
            desk.ask("SELECT * FROM silver_live.log")
        assert desk.ask("SELECT name FROM silver_live.accounts").collect() == [("b",)]
        silver.load(spark, lake, "bank")


def test_tables_are_shown_as_of_a_moment_at_the_source(spark, feed, lake_file, desks):
    # given transactions an hour apart, of two sources, loaded now and then
    one = feed(J, partitions=2)
    other = feed(L, into=one.topic, partition=1)
    lake = lake_file(bank=one.topic)

    def at(hour, minute=0):
        return datetime(2026, 1, 31, hour, minute, tzinfo=UTC)

    def ms(hour):
        return int(at(hour).timestamp() * 1000)

    one.commit(one.schema(), one.insert(id=1, name="nine", balance="1.00"), at=ms(9))
    other.commit(other.schema(), other.insert(id=1, name="theirs", balance="1.00"), at=ms(10))
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")
    one.commit(one.update(id=1, name="eleven", balance="1.00"), one.insert(id=2, name="new", balance="0"), at=ms(11))
    one.commit(one.delete(id=1), at=ms(12))
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")
    other.commit(other.update(id=1, name="thirteen", balance="1.00"), at=ms(13))
    bronze.load(spark, lake, "bank")

    # then
    def names(moment):
        frame = desks(lake, as_of=moment).ask("SELECT name FROM silver.accounts")
        return sorted(row["name"] for row in frame.collect())

    assert names(at(9, 30)) == ["nine"]
    assert names(at(10)) == ["nine", "theirs"]
    assert names(at(11, 59)) == ["eleven", "new", "theirs"]
    assert names(at(12, 30)) == ["new", "theirs"]
    assert names(at(14)) == ["new", "thirteen"]
    with pytest.raises(ConfigurationError, match="nothing had been captured at 2026-01-31T08:00"):
        names(at(8))
