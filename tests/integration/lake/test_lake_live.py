"""Rows that no load has merged yet, and rows as they stood in the past: what a load would show, without one."""

from datetime import UTC, datetime

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.errors import ConfigurationError, NeedsOperator
from spark_jobs.bronze import avro_records, increment
from spark_jobs.bronze import load as bronze
from spark_jobs.bronze.increment import Live
from spark_jobs.kafka import client as asking
from spark_jobs.query import engine
from spark_jobs.silver import load as silver
from spark_jobs.state import offsets
from spark_jobs.state.offsets import Held, Progress

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(1500)

J, L = "jakarta/bank", "london/bank"
LOG = {"entry": ("text", None, None)}
DOCS = {"id": ("int4", None, None), "odd name": ("text", None, None), "big": ("text", None, None)}


def asked(sql_engine, table, database):
    frame = sql_engine.ask(f"SELECT * FROM {database}.{table}")
    return sorted(str(sorted(row.asDict().items())) for row in frame.collect())


@pytest.fixture
def sql_engines(spark):
    made = []

    def make(lake, **options):
        made.append(engine.SqlEngine(spark, lake, **options))
        return made[-1]

    yield make
    for sql_engine in made:
        sql_engine.close()


@pytest.mark.long
def test_live_rows_are_those_that_the_next_load_will_show(logged_lake, sql_engines):
    # given two sources, four tables, and a load
    logged = logged_lake()
    (first, other), lake = logged.feeds, logged.file
    first.commit(first.schema(), *(first.insert(id=i, name="a", balance="1.00") for i in range(1, 6)))
    first.commit(first.schema(DOCS, ["id"], "public.docs"))
    first.commit(*(first.insert("public.docs", id=i, big=f"b{i}", **{"odd name": "o"}) for i in (1, 2, 3)))
    for source in (first, other):
        source.commit(source.schema(LOG, (), "public.log"), source.insert("public.log", entry="old"))
    other.commit(other.schema(), other.insert(id=1, name="theirs", balance="1.00"))
    logged.load()
    sql_engine = sql_engines(lake)
    tables = ["accounts", "docs", "log", "fresh"]
    published = {name: asked(sql_engine, name, "silver") for name in tables[:3]}
    assert {name: asked(sql_engine, name, "silver_live") for name in tables[:3]} == published
    # when all kinds of changes come: of keys, of half rows, of columns and their types, truncates, and a new table
    first.commit(first.update(id=1, name="b", balance="2.00"), first.delete(id=2))
    first.commit(first.update(before={"id": 3}, id=30, name="moved", balance="1.00"))
    wide = DOCS | {"id": ("int8", None, None), "added": ("date", None, None)}
    first.commit(
        first.schema(wide, ["id"], "public.docs"),
        first.update("public.docs", id=1, added="2026-01-31", **{"odd name": None}, unchanged=["big"]),
        first.insert("public.docs", id=2**40, added=None, big="new", **{"odd name": "n"}),
    )
    first.commit(first.truncate("public.log"), first.insert("public.log", entry="new"))
    other.commit(other.schema(table="public.fresh"), other.insert("public.fresh", id=1, name="f", balance="1.00"))
    first.commit(first.update(id=4, name="half", balance="0.00"), ends=False)
    logged.to_bronze()
    live = {name: asked(sql_engine, name, "silver_live") for name in tables}
    # then silver is as it was, and live shows what silver shows after the next load
    assert {name: asked(sql_engine, name, "silver") for name in tables[:3]} == published
    assert all(live[name] != published.get(name) for name in tables)
    logged.load()
    assert {name: asked(sql_engine, name, "silver") for name in tables} == live
    assert "half" not in str(live)
    # and again when the half transaction is whole
    first.commit(first.insert(id=9, name="whole", balance="0.00"))
    logged.to_bronze()
    live = asked(sql_engine, "accounts", "silver_live")
    assert "half" in str(live)
    assert "whole" in str(live)
    logged.load()
    assert asked(sql_engine, "accounts", "silver") == live


@pytest.mark.long
def test_x7_queries_of_live_rows_use_one_session_and_one_client(spark, feed, lake_file, sql_engines, monkeypatch):
    """X7: each query made a session, a client with three requests, and consumers that were never used again."""
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), source.insert(id=0, name="a", balance="1.00"))
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")
    sql_engine, clients, groups = sql_engines(lake), [], []

    def count(target, name, into, take):
        function = getattr(target, name)

        def counted(*given, **more):
            into.append(take(more))
            return function(*given, **more)

        monkeypatch.setattr(target, name, counted)

    count(asking, "AdminClient", clients, lambda _: 1)
    count(avro_records, "records", groups, lambda more: more["group"])
    sessions = []
    count(type(spark), "newSession", sessions, lambda _: 1)
    # when rows are queried as they come to Kafka
    for number in range(1, 4):
        source.commit(source.insert(id=number, name="a", balance="1.00"))
        rows = sql_engine.ask("SELECT id FROM silver_live.accounts").collect()
        # then each query has all of them
        assert sorted(row["id"] for row in rows) == list(range(number + 1))
    # by one client, one group, which names the consumers, and one session
    assert len(clients) == 1
    assert len(set(groups)) == 1
    assert groups[0]
    assert len(sessions) == 1


@pytest.mark.long
def test_live_rows_go_on_to_the_end_of_the_topic(spark, feed, lake_file, sql_engines, monkeypatch, caplog):
    # given a load, then changes in bronze, and others in Kafka alone: of keys, of another source, and half a transaction
    one = feed(J, partitions=2)
    other = feed(L, into=one.topic, partition=1)
    lake = lake_file(bank=one.topic)
    for source in (one, other):
        source.commit(source.schema(), *(source.insert(id=i, name="a", balance="1.00") for i in (1, 2, 3)))
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")
    one.commit(one.update(id=1, name="b", balance="1.00"))
    bronze.load(spark, lake, "bank")
    sql_engine = sql_engines(lake)
    in_bronze = asked(sql_engine, "accounts", "silver_live")
    one.commit(one.update(id=1, name="c", balance="1.00"), one.delete(id=2))
    one.commit(one.update(before={"id": 3}, id=30, name="moved", balance="1.00"))
    other.commit(other.schema(table="public.fresh"), other.insert("public.fresh", id=7, name="new", balance="1.00"))
    one.commit(one.insert(id=99, name="half", balance="0.00"), ends=False)
    other.commit(other.insert(id=98, name="aborted", balance="0.00"), abort=True)
    # when
    live = {name: asked(sql_engine, name, "silver_live") for name in ("accounts", "fresh")}
    again = asked(sql_engine, "accounts", "silver_live")
    # then
    assert live["accounts"] == again != in_bronze
    assert "half" not in str(live)
    assert "aborted" not in str(live)
    # and it is what the next load shows
    bronze.load(spark, lake, "bank")
    assert asked(sql_engine, "accounts", "silver_live") == live["accounts"]
    silver.load(spark, lake, "bank")
    assert {name: asked(sql_engine, name, "silver") for name in live} == live
    # when Kafka has more than a question should read
    one.commit(one.insert(id=100, name="whole", balance="0.00"))
    monkeypatch.setattr(increment, "_MOST", 0)
    assert asked(sql_engine, "accounts", "silver_live") == live["accounts"]
    monkeypatch.undo()
    assert {"half", "whole"} <= {
        row["name"] for row in sql_engine.ask("SELECT name FROM silver_live.accounts").collect()
    }
    # or cannot be asked, which is not tried again at once
    away = sql_engines(lake_file(bank=one.topic, bootstrap="127.0.0.1:1"))
    for _ in range(2):
        assert asked(away, "accounts", "silver_live") == live["accounts"]
    reported = [record.getMessage() for record in caplog.records if "of bronze alone" in record.getMessage()]
    assert len(reported) == 1
    assert "127.0.0.1:1" in reported[0]


def test_live_rows_are_those_of_bronze_where_the_topic_does_not_go_on_behind_it(
    spark, feed, lake_file, sql_engines, kafka, monkeypatch
):
    monkeypatch.setattr(increment, "_TIMEOUT", 60.0)
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")
    source.commit(source.insert(id=2, name="lost", balance="1.00"), source.insert(id=3, name="kept", balance="1.00"))
    held = offsets.of_table(spark, lake, bronze.table_path(lake, "bank"), "bank", [])
    end = held.of(source.topic).offsets[0]
    result = increment.beyond(spark, lake, "bank", held, Live(spark))
    assert list(result) == [0]
    assert result[0][0] == end
    assert asked(sql_engines(lake), "accounts", "silver_live") != asked(sql_engines(lake), "accounts", "silver")
    # when retention takes what is next
    admin, place = (
        AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0}),
        TopicPartition(source.topic, 0, end + 2),
    )
    admin.delete_records([place])[place].result(60)
    # then
    assert increment.beyond(spark, lake, "bank", held, Live(spark)) == {}
    assert sql_engines(lake).ask("SELECT name FROM silver_live.accounts").collect() == [("a",)]
    # or the topic is another one
    source.commit(source.insert(id=4, name="next", balance="1.00"))
    other = Progress({source.topic: Held(held.of(source.topic).offsets, "another")})
    assert increment.beyond(spark, lake, "bank", other, Live(spark)) == {}


@pytest.mark.long
def test_table_at_which_a_load_would_stop_is_refused_alone(spark, feed, lake_file, sql_engines):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    source.commit(source.schema(LOG, (), "public.log"), source.insert("public.log", entry="one"))
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")
    source.commit(source.update("public.log", entry="two"))
    source.commit(source.update(id=1, name="b", balance="1.00"))
    bronze.load(spark, lake, "bank")
    sql_engine = sql_engines(lake)
    # then before the load that stops, and after it
    for _ in range(2):
        with pytest.raises(NeedsOperator, match="log has no key"):
            sql_engine.ask("SELECT * FROM silver_live.log")
        assert sql_engine.ask("SELECT name FROM silver_live.accounts").collect() == [("b",)]
        silver.load(spark, lake, "bank")
    # and it goes on live, from where it stands, once a key and a change have come to Kafka
    source.commit(source.schema(LOG, ("entry",), "public.log"), source.insert("public.log", entry="three"))
    live = asked(sql_engine, "log", "silver_live")
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")
    assert asked(sql_engine, "log", "silver") == live
    assert "three" in str(live)


@pytest.mark.long
def test_tables_are_shown_as_of_a_moment_at_the_source(logged_lake, sql_engines):
    # given transactions an hour apart, of two sources, loaded now and then
    logged = logged_lake()
    (first, other), lake = logged.feeds, logged.file

    def at(hour, minute=0):
        return datetime(2026, 1, 31, hour, minute, tzinfo=UTC)

    def ms(hour):
        return int(at(hour).timestamp() * 1000)

    first.commit(first.schema(), first.insert(id=1, name="nine", balance="1.00"), at=ms(9))
    other.commit(other.schema(), other.insert(id=1, name="theirs", balance="1.00"), at=ms(10))
    logged.load()
    first.commit(
        first.update(id=1, name="eleven", balance="1.00"), first.insert(id=2, name="new", balance="0"), at=ms(11)
    )
    first.commit(first.delete(id=1), at=ms(12))
    logged.load()
    other.commit(other.update(id=1, name="thirteen", balance="1.00"), at=ms(13))
    logged.to_bronze()

    # then
    def names(moment):
        frame = sql_engines(lake, as_of=moment).ask("SELECT name FROM silver.accounts")
        return sorted(row["name"] for row in frame.collect())

    assert names(at(9, 30)) == ["nine"]
    assert names(at(10)) == ["nine", "theirs"]
    assert names(at(11, 59)) == ["eleven", "new", "theirs"]
    assert names(at(12, 30)) == ["new", "theirs"]
    assert names(at(14)) == ["new", "thirteen"]
    with pytest.raises(ConfigurationError, match="nothing had been captured at 2026-01-31T08:00"):
        names(at(8))
