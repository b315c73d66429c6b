"""Bronze on a real Kafka and real Delta tables: once, in order, from where the table stands."""

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.errors import NeedsOperator, NotConnected
from spark_jobs import load
from spark_jobs.bronze import load as bronze
from spark_jobs.bronze import quarantine
from spark_jobs.kafka import client as asking
from spark_jobs.kafka import topics
from spark_jobs.maintenance import replay
from spark_jobs.preflight import check
from spark_jobs.query import published_tables
from tests.rules.waiting import eventually


def held(spark, lake, stream="bank"):
    rows = (
        spark.read.format("delta").load(bronze.table_path(lake, stream)).select("partition", "offset", "position", "op")
    )
    return sorted(tuple(row) for row in rows.collect())


def test_second_load_takes_only_what_came_since(spark, feed, lake_file, kafka):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    source.commit(source.insert(id=9, name="x", balance="1.00"), abort=True)
    first = bronze.load(spark, lake, "bank")
    # when
    source.commit(source.update(id=1, name="b", balance="1.00"))
    second = bronze.load(spark, lake, "bank")
    third = bronze.load(spark, lake, "bank")
    # then: two offsets, the first commit's marker, what was aborted and its marker; then one more.
    assert (first.records, second.records, third.records) == (2, 1, 0)
    assert second.ranges[0][0] == first.ranges[0][1]
    assert third.ranges == {}
    assert [op for _, _, _, op in held(spark, lake)] == [None, "c", "u"]
    # and ordinary lag tools see it
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, "group.id": bronze.group("bank")})
    (mirrored,) = consumer.committed([TopicPartition(source.topic, 0)], timeout=60)
    consumer.close()
    assert mirrored.offset == second.ranges[0][1]
    assert check(lake, "bank")["records"] == 0


@pytest.mark.long
def test_a_topic_to_which_nobody_has_written_yet_is_loaded_and_gone_on_with(spark, feed, lake_file):
    """A first load ahead of the first edge ended with a KeyError."""
    source = feed()
    lake = lake_file(bank=source.topic)
    for _ in range(2):
        report = load.run(spark, lake, "bank")
        report.check()
        assert (report.bronze.records, report.bronze.ranges, report.bronze.topic) == (0, {}, source.topic)
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    report = load.run(spark, lake, "bank")
    report.check()
    assert report.bronze.records == 2


def test_a_table_of_an_earlier_release_and_one_without_a_note_are_gone_on_with(spark, feed, lake_file):
    # given a note as streaming queries wrote it
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    bronze.load(spark, lake, "bank")
    log = Path(bronze.table_path(lake, "bank"), "_delta_log")
    (first,) = log.glob("*.json")
    old, new = '\\"commit\\": ', '\\"batch\\": 0, \\"query\\": \\"q\\", \\"was\\": '
    assert old in first.read_text()
    first.write_text(first.read_text().replace(old, new))
    first.with_name(f".{first.name}.crc").unlink(missing_ok=True)
    # when
    source.commit(source.insert(id=2, name="b", balance="1.00"))
    again = bronze.load(spark, lake, "bank")
    # and when somebody else wrote last, and no note is left
    for commit in log.glob("*.json"):
        commit.write_text(commit.read_text().replace('\\"headrace\\": \\"bronze\\"', '\\"other\\": \\"bronze\\"'))
        commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
    source.commit(source.insert(id=3, name="c", balance="1.00"))
    once_more = bronze.load(spark, lake, "bank")
    # then
    assert (again.records, once_more.records) == (1, 1)
    offsets = [offset for _, offset, _, _ in held(spark, lake)]
    assert len(offsets) == len(set(offsets)) == 4


@pytest.mark.long
def test_batches_are_bounded_and_each_is_committed(spark, feed, lake_file):
    # given
    source = feed()
    lake = lake_file(bank=source.topic, records_per_batch=4)
    source.commit(source.schema(), *(source.insert(id=i, name="a", balance="1.00") for i in range(9)))
    heard = []
    # when
    report = bronze.load(spark, lake, "bank", on_progress=lambda done, todo: heard.append((done, todo)))
    # then
    assert report.batches >= 3
    assert report.records == len(held(spark, lake)) == 10
    assert heard[-1][0] == 10


# P17
def test_range_that_retention_ate_is_named_and_needs_an_operator(spark, feed, lake_file, kafka):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    bronze.load(spark, lake, "bank")
    held_up_to = check(lake, "bank")["partitions"][0]["needed"]
    for i in range(2, 6):
        source.commit(source.insert(id=i, name="a", balance="1.00"))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    place = TopicPartition(source.topic, 0, held_up_to + 4)
    admin.delete_records([place])[place].result(60)
    # when
    with pytest.raises(NeedsOperator) as refused:
        bronze.load(spark, lake, "bank")
    with pytest.raises(NeedsOperator) as checked:
        check(lake, "bank")
    # then
    assert f"partition 0: offsets {held_up_to} to {held_up_to + 3}" in refused.value.message
    assert checked.value.message == refused.value.message
    assert "--accept-gap" in refused.value.hint
    assert len(held(spark, lake)) == 2
    # and an operator can go on
    assert bronze.load(spark, lake, "bank", accept_gap=True).records == 2


def test_topic_made_anew_needs_an_operator(spark, feed, lake_file, kafka):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    bronze.load(spark, lake, "bank")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.delete_topics([source.topic])[source.topic].result(60)
    eventually(lambda: source.topic not in admin.list_topics(timeout=60).topics)
    eventually(lambda: admin.create_topics([NewTopic(source.topic, 1, 1)])[source.topic].result(60) is None)
    # when
    anew = feed("london/bank", into=source.topic)
    for i in range(9):
        anew.commit(anew.schema(), anew.insert(id=i, name="a", balance="1.00"))
    with pytest.raises(NeedsOperator, match="deleted and created again"):
        bronze.load(spark, lake, "bank")
    # then
    with pytest.raises(NeedsOperator, match="deleted and created again"):
        check(lake, "bank")
    assert len(held(spark, lake)) == 2


@pytest.mark.long
def test_path_that_holds_something_else_is_left_alone(spark, feed, lake_file):
    # given
    source = feed()
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    lake = lake_file(files=source.topic, table=source.topic, other=source.topic, bank=source.topic)
    Path(bronze.table_path(lake, "files")).mkdir(parents=True)
    Path(bronze.table_path(lake, "files"), "notes.txt").write_text("mine")
    spark.range(3).write.format("delta").save(bronze.table_path(lake, "table"))
    bronze.load(spark, lake, "bank")
    Path(bronze.table_path(lake, "bank")).rename(bronze.table_path(lake, "other"))
    # when
    said = {}
    for stream in ("files", "table", "other"):
        with pytest.raises(NeedsOperator) as refused:
            bronze.load(spark, lake, stream)
        said[stream] = refused.value.message
    # then
    assert "not a Delta table" in said["files"]
    assert "not one of bronze" in said["table"]
    assert "holds stream 'bank', not 'other'" in said["other"]
    assert Path(bronze.table_path(lake, "files"), "notes.txt").read_text() == "mine"
    with pytest.raises(NeedsOperator, match="not a Delta table"):
        check(lake, "files")


def test_what_a_first_load_that_died_left_behind_is_no_obstacle(spark, feed, lake_file):
    # given data without a commit
    week = 7 * 24 * 60 * 60
    source = feed(retention_ms=week * 1000)
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    folder = Path(bronze.table_path(lake, "bank"))
    (folder / "_delta_log").mkdir(parents=True)
    (folder / "part-00000-d41d8cd9-c000.zstd.parquet").write_bytes(b"half")
    (folder / ".part-00000-d41d8cd9-c000.zstd.parquet.crc").write_bytes(b"half")
    # then
    checked = check(lake, "bank")
    assert checked["records"] == 3
    assert checked["retention"]["seconds"] == week
    assert week - 600 < checked["retention"]["headroom_seconds"] < week
    assert bronze.load(spark, lake, "bank").records == len(held(spark, lake)) == 2


def test_missing_topic_and_unreachable_kafka_say_so(spark, lake_file, monkeypatch):
    with pytest.raises(NeedsOperator, match="no topic 'nowhere'"):
        bronze.load(spark, lake_file(bank="nowhere"), "bank")
    monkeypatch.setitem(asking.describe_all.__kwdefaults__, "timeout", 5)
    with pytest.raises(NotConnected, match="does not answer"):
        check(lake_file(bootstrap="127.0.0.1:1", bank="nowhere"), "bank")


def test_s3_s4_what_is_no_record_or_names_another_source_is_quarantined_and_the_stream_goes_on(
    spark, feed, lake_file, caplog
):
    # given two sources, each in its partition
    one = feed(partitions=2)
    other = feed("london/bank", into=one.topic, partition=1)
    lake = lake_file(bank=one.topic)
    for source in (one, other):
        source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    load.run(spark, lake, "bank")
    # when one of them sends values that are no records, and records that name the other
    for value in (b"{not json: secret", b'{"op":"c","after":{"secret":1}}', b"[1]"):
        one.raw(value)
    ahead = f"{'6' * 8}/{'f' * 16}/{'f' * 8}"
    own = {"name": "jakarta/bank", "ts_ms": 1, "schema": "public", "table": "accounts", "position": ahead}

    def send(op: str | None = "c", **source: object) -> None:
        transaction = {"id": "1:1", "total_order": 1, "last": True}
        row = {"id": 1, "name": "stolen", "balance": "9.00"}
        record = {"before": None, "after": row, "source": own | source, "op": op, "ts_ms": 1}
        one.raw(json.dumps(record | {"transaction": transaction}).encode(), b'{"id":1}')

    send(name="london/bank")
    # of a time that no clock has, of an epoch in a week or of none, and of no operation, which ended loads of all sources
    for odd in (
        {"ts_ms": 2**63 - 1},
        {"ts_ms": -(2**62)},
        {"position": f"{int(time.time()) + 7 * 86_400:08x}{ahead[8:]}"},
        {"position": "z" * 34},
    ):
        send(**odd)
    send(op=None)
    # and two that describe tables as none can be
    kind = ("int8", None, None)
    for table, columns in (("public.odd", {"no": kind}), ("public.odder", {"id": kind, "": kind})):
        one.commit(one.schema(columns, ("id",), table), one.insert(table, id=1))
    for source in (one, other):
        source.commit(source.update(id=1, name="b", balance="1.00"))
    report = load.run(spark, lake, "bank")
    # then they are set aside with their places, and both sources go on
    assert report.bronze.quarantined == {"jakarta/bank": 9}
    assert report.silver.changes["public.accounts"] == 2
    assert sorted(report.silver.problems) == ["public.odd", "public.odder"]
    assert all("that is no schema record" in problem for problem in report.silver.problems.values())
    kept = spark.read.format("delta").load(quarantine.path(lake))
    result = kept.orderBy("offset").select("topic", "partition", "source", "named_source", "reason").collect()
    assert [tuple(row) for row in result] == [
        *3 * [(one.topic, 0, "jakarta/bank", None, "envelope")],
        (one.topic, 0, "jakarta/bank", "london/bank", "source"),
        *5 * [(one.topic, 0, "jakarta/bank", "jakarta/bank", "envelope")],
    ]
    assert "secret" not in caplog.text
    rows = published_tables.frame(spark, lake, "bank", "public.accounts").select("_source", "name").collect()
    assert sorted(map(tuple, rows)) == [("jakarta/bank", "b"), ("london/bank", "b")]
    # and bronze that is read again from Kafka has the same, and keeps none of them twice
    replay.of_bronze(spark, lake, "bank", None)
    assert kept.count() == 9
    assert len(held(spark, lake)) == 10


def test_s3_records_in_a_new_sources_partition_are_no_other_sources_from_the_first_one_on(
    spark, feed, lake_file, monkeypatch
):
    """The first record said whose the partition was: a new source could be any other one."""
    # given
    one = feed(partitions=3)
    lake = lake_file(bank=one.topic)
    one.commit(one.schema(), one.insert(id=1, name="a", balance="1.00"))
    bronze.load(spark, lake, "bank")
    # when a source that came since names that one, and one that came since has left its partition to another one
    monkeypatch.setattr(topics, "owners", lambda *_: {0: "jakarta/bank", 1: "oslo/rogue", 2: "rome/bank"})
    for name in ("paris/bank", "rome/bank"):
        fresh = feed(name, into=one.topic, partition=2)
        fresh.commit(fresh.schema(), fresh.insert(id=1, name="a", balance="1.00"))
    rogue = feed("jakarta/bank", into=one.topic, partition=1)
    rogue.goes_on_at(0x1B00000)
    rogue.commit(rogue.schema(), rogue.insert(id=1, name="stolen", balance="1.00"))
    # then
    assert bronze.load(spark, lake, "bank").quarantined == {"oslo/rogue": 2}
    assert len(held(spark, lake)) == 6


def test_a_partition_that_bridges_gave_to_another_source_is_read_as_that_one(spark, feed, lake_file, monkeypatch):
    # given
    one = feed()
    lake = lake_file(bank=one.topic)
    one.commit(one.schema(), one.insert(id=1, name="a", balance="1.00"))
    bronze.load(spark, lake, "bank")
    # when the bridges' offsets name another source for its partition
    monkeypatch.setattr(topics, "owners", lambda *_: {0: "london/bank"})
    other = feed("london/bank", into=one.topic)
    other.commit(other.schema(), other.insert(id=1, name="b", balance="1.00"))
    assert bronze.load(spark, lake, "bank").quarantined == {}
    # then its records are that one's, and no longer the former one's
    one.commit(one.insert(id=2, name="a", balance="1.00"))
    assert bronze.load(spark, lake, "bank").quarantined == {"london/bank": 1}
    assert len(held(spark, lake)) == 4
