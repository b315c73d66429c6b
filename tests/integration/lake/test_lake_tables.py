"""A stream with a topic for each table: loaded from all of them, and shown up to where all of them are loaded."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.errors import ConfigurationError, NeedsOperator, NotConnected
from spark_jobs import load, preflight
from spark_jobs.bronze import load as bronze
from spark_jobs.bronze import sink
from spark_jobs.kafka import client as asking
from spark_jobs.maintenance import replay
from spark_jobs.preflight import check
from spark_jobs.query import engine, published_tables
from spark_jobs.state import offsets
from tests.rules.waiting import eventually

J, L = "jakarta/bank", "london/bank"
ACCOUNTS, TELLERS, FRESH = "public.accounts", "public.tellers", "public.fresh"


@pytest.fixture(autouse=True)
def notes_of_changes(monkeypatch):
    """Let bronze's commits note the topics that changed alone, as they do of hundreds of topics (L49)."""
    monkeypatch.setattr(offsets, "_FEW_TOPICS", 0)
    monkeypatch.setattr(offsets, "_CHANGED", 1)


@pytest.fixture
def tables(kafka, topic):
    """Return a function that makes the topics of tables."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})

    def make(own, *names, partitions=1, **config):
        for name in [f"{own}.{name}" for name in names]:
            admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(60)
            eventually(lambda name=name: name in admin.list_topics(timeout=60).topics)

    return make


def names(spark, lake, table):
    frame = published_tables.frame(spark, lake, "bank", table)
    return [] if frame is None else sorted(row["name"] for row in frame.select("name").collect())


def live(sql_engine, table):
    return sorted(row["name"] for row in sql_engine.ask(f"SELECT name FROM silver_live.{table}").collect())


def both(source, number, name):
    """Return a transaction's changes of two tables."""
    return [source.insert(table, id=number, name=name, balance="1.00") for table in (ACCOUNTS, TELLERS)]


@pytest.mark.long
def test_tables_are_shown_up_to_where_all_topics_are_loaded(spark, feed, lake_file, tables, loaded, monkeypatch):
    # given a stream that wants another form of loading
    source = feed(topic_per_table=True)
    tables(source.topic, ACCOUNTS, TELLERS)
    with pytest.raises(NeedsOperator, match="a topic for each table") as refused:
        check(lake_file(bank=source.topic), "bank")
    assert "topic_per_table = true" in refused.value.hint
    lake = lake_file(bank=source.topic, topic_per_table=True)
    source.commit(source.schema(), source.schema(table=TELLERS), *both(source, 1, "a"))
    # when
    first = loaded(lake)
    # then
    assert first.changes == {ACCOUNTS: 1, TELLERS: 1}
    assert preflight.report(lake, "bank") is not None
    sql_engine = engine.SqlEngine(spark.newSession(), lake)

    # when the end of a transaction is there, in one topic, and its beginning is not, in the other; ahead of it is a new schema
    wider = {"id": ("int8", None, None), "name": ("text", None, None), "balance": ("numeric", 12, 3)}
    late = source.commit(source.schema(wider), *both(source, 2, "b"), without=ACCOUNTS)
    half = loaded(lake)
    # then none of it is shown, and nothing of it is lost
    assert (half.changes, half.waiting) == ({}, {J: 1})
    assert names(spark, lake, TELLERS) == live(sql_engine, "tellers") == ["a"]
    source.release(late)
    assert bronze.load(spark, lake, "bank").tables.keys() == {f"{source.topic}.{ACCOUNTS}"}
    assert live(sql_engine, "tellers") == live(sql_engine, "accounts") == ["a", "b"]
    assert preflight.report(lake, "bank") is None
    whole = loaded(lake)
    assert whole.changes == {ACCOUNTS: 1, TELLERS: 1}
    assert dict(published_tables.frame(spark, lake, "bank", ACCOUNTS).dtypes)["balance"] == "decimal(12,3)"

    # when positions were asked for before a bridge committed another, which the ends that were asked for after that cover
    behind = bronze.topics.observe(lake, "bank")
    source.commit(*both(source, 3, "c"))
    with monkeypatch.context() as patch:
        ahead = bronze.topics.Reach(behind.positions, bronze.topics.observe(lake, "bank").heads)
        patch.setattr(bronze.topics, "observe", lambda *_: ahead)
        assert loaded(lake).changes == {}
    # then the next load has no record to read, and knows
    assert preflight.report(lake, "bank") is None
    report = load.run(spark, lake, "bank")
    assert (report.bronze.records, report.silver.changes) == (0, {ACCOUNTS: 1, TELLERS: 1})
    assert preflight.report(lake, "bank") is not None

    # when a load dies after its commit, and meanwhile a table gets a topic
    source.commit(*both(source, 4, "d"))
    with monkeypatch.context() as patch:
        patch.setattr(sink, "mirror", lambda *_: (_ for _ in ()).throw(NotConnected("died")))
        with pytest.raises(NotConnected, match="died"):
            bronze.load(spark, lake, "bank")
    tables(source.topic, FRESH)
    source.commit(source.schema(table=FRESH), source.insert(FRESH, id=1, name="f", balance="1.00"))
    again = loaded(lake)
    # then all is there once
    assert again.changes == {ACCOUNTS: 1, TELLERS: 1, FRESH: 1}
    held = spark.read.format("delta").load(bronze.table_path(lake, "bank"))
    assert held.count() == held.select("topic", "partition", "offset").distinct().count() == 4 * 2 + 3 + 2
    assert names(spark, lake, ACCOUNTS) == names(spark, lake, TELLERS) == ["a", "b", "c", "d"]

    # and bronze can be read again, from a position in all topics, and not from an offset in one
    with pytest.raises(ConfigurationError, match="a topic for each table"):
        replay.of_bronze(spark, lake, "bank", "7")
    done = replay.of_bronze(spark, lake, "bank", f"{J}={late}")
    assert done.ranges[0][0] == 4
    starts = {name.removeprefix(f"{source.topic}."): table[0][0] for name, table in done.tables.items()}
    assert starts == {ACCOUNTS: 3, TELLERS: 1, FRESH: 0}
    assert held.count() == 4 * 2 + 3 + 2
    assert loaded(lake).changes == {}
    sql_engine.close()


@pytest.mark.long
@pytest.mark.parametrize("is_first", [False, True], ids=["behind others", "first of all"])
def test_a_source_waits_for_a_topic_that_is_not_seen_and_others_go_on(
    spark, feed, lake_file, tables, kafka, loaded, monkeypatch, is_first
):
    # given
    source = feed(topic_per_table=True, partitions=2)
    other = feed(L, into=source.topic, partition=1, topic_per_table=True)
    tables(source.topic, ACCOUNTS, TELLERS, partitions=2)
    lake = lake_file(bank=source.topic, topic_per_table=True)
    visible = source.schema(), source.insert(ACCOUNTS, id=1, name="a", balance="1.00")
    if is_first:
        source.commit(source.schema(table=TELLERS), *visible)
    else:
        source.commit(*visible)
        source.commit(source.schema(table=TELLERS))
    source.commit(*both(source, 2, "b"))
    other.commit(other.schema(), other.insert(ACCOUNTS, id=1, name="l", balance="1.00"))
    # when the lake does not see one of them
    hidden = f"{source.topic}.{TELLERS}"
    heads = asking.heads
    monkeypatch.setattr(
        asking,
        "heads",
        lambda connection, own, belongs: heads(connection, own, lambda name: name != hidden and belongs(name)),
    )
    for number in (2, 3):
        report = load.run(spark, lake, "bank")
        assert f"in topics that the lake does not see: {TELLERS} ({hidden})" in report.silver.held[J]
        with pytest.raises(NeedsOperator, match=f"source {J}: from position"):
            report.check()
        other.commit(other.insert(ACCOUNTS, id=number, name="l", balance="1.00"))
    loaded(lake)
    # and a load that finds nothing new reports it too
    assert list(load.run(spark, lake, "bank").silver.held) == [J]
    assert names(spark, lake, ACCOUNTS) == (["l", "l", "l"] if is_first else ["a", "l", "l", "l"])
    # then it goes on where the topic is seen, in batches that end within it
    monkeypatch.undo()
    source.commit(*both(source, 3, "c"))
    assert loaded(lake_file(bank=source.topic, topic_per_table=True, records_per_batch=1)).held == {}
    assert names(spark, lake, ACCOUNTS) == ["a", "b", "c", "l", "l", "l"]
    assert names(spark, lake, TELLERS) == ["b", "c"]
    # and when one is compacted
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.delete_topics([hidden])[hidden].result(60)
    tables(source.topic, "public.balances", **{"cleanup.policy": "compact"})
    with pytest.raises(NeedsOperator, match=r"Kafka compacts .*public\.balances"):
        check(lake, "bank")


@pytest.mark.long
def test_a_load_that_never_ends_follows_all_topics(spark, feed, lake_file, tables):
    # given
    source = feed(topic_per_table=True)
    tables(source.topic, ACCOUNTS, TELLERS)
    lake = lake_file(bank=source.topic, topic_per_table=True)
    source.commit(source.schema(), source.schema(table=TELLERS), *both(source, 1, "a"))
    load.run(spark, lake, "bank")
    sql_engine = engine.SqlEngine(spark.newSession(), lake)
    with bronze.following(spark, lake, "bank", every=0.2) as follower:

        def reached(position):
            follower.check()
            return bronze.reach(spark, lake, "bank") == {J: position}

        # when a transaction comes whole, and another one in two parts
        whole = source.commit(*both(source, 2, "b"))
        eventually(lambda: reached(whole), 180)
        late = source.commit(*both(source, 3, "c"), without=ACCOUNTS)
        held = spark.read.format("delta").load(bronze.table_path(lake, "bank"))
        eventually(lambda: held.filter(f"position = '{late}'").count() == 1, 180, every=0.2)
        assert reached(whole)
        assert live(sql_engine, "tellers") == live(sql_engine, "accounts") == ["a", "b"]
        source.release(late)
        eventually(lambda: reached(late), 180)
        assert live(sql_engine, "tellers") == live(sql_engine, "accounts") == ["a", "b", "c"]
        # then a table's new topic is loaded too
        tables(source.topic, FRESH)
        fresh = source.commit(source.schema(table=FRESH), source.insert(FRESH, id=1, name="f", balance="1.00"))
        eventually(lambda: reached(fresh), 180)
        assert held.filter(f"`table` = '{FRESH}' AND op IS NOT NULL").count() == 1
    sql_engine.close()


@pytest.mark.long
def test_l49_a_load_goes_on_by_the_rows_where_a_note_refers_to_one_that_is_gone(spark, feed, lake_file, tables, loaded):
    # given a stream whose last commit noted one topic of two
    source = feed(topic_per_table=True)
    tables(source.topic, ACCOUNTS, TELLERS)
    lake = lake_file(bank=source.topic, topic_per_table=True)
    source.commit(source.schema(), source.schema(table=TELLERS), *both(source, 1, "a"))
    loaded(lake)
    source.commit(source.insert(ACCOUNTS, id=2, name="b", balance="1.00"))
    loaded(lake)
    path = bronze.table_path(lake, "bank")
    base = offsets.read(spark, path).base
    # when what it refers to is another commit by now
    commit = Path(path, "_delta_log", f"{base.version:020d}.json")
    commit.write_text(commit.read_text().replace(base.commit, "0" * 32))
    commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
    assert offsets.read(spark, path) is None
    assert preflight.report(lake, "bank") is None
    source.commit(*both(source, 3, "c"))
    # then a load takes what is new, once, and notes all again
    assert loaded(lake).changes == {ACCOUNTS: 1, TELLERS: 1}
    assert names(spark, lake, ACCOUNTS) == ["a", "b", "c"]
    assert names(spark, lake, TELLERS) == ["a", "c"]
    frame = spark.read.format("delta").load(path).groupBy("topic", "partition", "offset").count()
    assert frame.filter("count > 1").isEmpty()
    assert set(offsets.read(spark, path).topics) == {
        source.topic,
        f"{source.topic}.{ACCOUNTS}",
        f"{source.topic}.{TELLERS}",
    }
