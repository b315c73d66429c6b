"""A topic for each table: one transaction a commit over all of them; a table without a topic goes to the stream's own one."""

import json

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from bridge.kafka.client import admin
from bridge.kafka.entries import reading
from bridge.kafka.topics import make, owners
from bridge.positions.last_record import read_last_record
from bridge.positions.survey import positions_of
from bridge.whole_topics import dead_letters
from headrace.batch import Batch
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import NeedsOperator
from headrace.position import Position
from spark_jobs.kafka.client import tables_of
from spark_jobs.kafka.topics import describe, observe
from tests.amqp.edge_double import Edge, message, send
from tests.bridge.bridge_file import bridge_file
from tests.edge.source_log import Row, cut, of
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]

EPOCH = 1_700_000_000


def change(source, commit, ordinal, table, number, **more):
    """Return a change's record, or with `op` and `after` others; a table's name of none is empty."""
    at = Position(EPOCH, commit, ordinal)
    reported = {"version": "0.1.0", "name": source, "ts_ms": 1, "schema": "public" * bool(table), "table": table}
    value = {"after": {"id": number}, "op": "c", "source": reported | {"position": str(at)}} | more
    key = b'{"id":%d}' % number if number is not None else None
    return Row(at, key, json.dumps(value, separators=(",", ":")).encode())


def pairs(kafka, topic):
    return [(record.key, record.value) for record in read_committed(kafka.bootstrap, topic)]


def test_each_table_has_its_topic_and_one_without_goes_to_the_streams_own_o10(kafka, topic, inside, tmp_path, caplog):
    # given topics made from the file
    name, source = topic(), "tables/bank"
    tables = {"public.accounts": "delete", "public.balances": "compact"}
    file = written(tmp_path, kafka, source, name, tables)
    client = admin(file.kafka)
    made = make(client, file)
    assert [(each.topic.removeprefix(name), each.what) for each in made] == [
        ("", "already there"), (".public.accounts", "created"), (".public.balances", "created")
    ]  # fmt: skip
    compacted = ConfigResource(ResourceType.TOPIC, f"{name}.public.balances")
    assert client.describe_configs([compacted])[compacted].result()["cleanup.policy"].value == "compact"
    assert [(each["holds"], each["in_kafka"]) for each in owners(client, file)] == [
        ("the rest", True), ("public.accounts", True), ("public.balances", True)
    ]  # fmt: skip

    # and the lake knows them by their names, and takes none that is compacted
    assert tables_of(file.kafka, name) == [f"{name}.{table}" for table in tables]
    lake = tmp_path / "lake.toml"
    lake.write_text(
        f'[lake]\nroot = "."\n[kafka]\nbootstrap = "{kafka.bootstrap}"\nprefix = "headrace.{name}"\n'
        f'[streams.bank]\ntopic = "{name}"\nsources = ["{source}"]\ntopic_per_table = true\n'
    )
    reader_file = load(lake, LakeFile)
    assert observe(reader_file, "bank").positions == {}
    with pytest.raises(NeedsOperator, match=rf"Kafka compacts {name}\.public\.balances:"):
        describe(reader_file, "bank", observe(reader_file, "bank"))

    # when an edge begins before anything changed; a transaction changes both, and a delete has its tombstone; then comes a
    # table that the bridge's file does not have
    account, balance = change(source, 10, 0, "accounts", 1), change(source, 10, 1, "balances", 1)
    gone = change(source, 11, 0, "balances", 1, op="d", after=None)
    truncate = change(source, 11, 1, "balances", None, op="t", after=None)
    marker = change(source, 12, 0, "", 5, op="m")
    letter = change(source, 13, 0, "accounts", 2, too_large={"bytes": 9, "sha256": "ab"})
    tombstone = gone._replace(value=None)
    first, two = cut(source, [account, balance, gone, tombstone, truncate, marker, letter], lambda: 5)
    loan = change(source, 14, 0, "loans", 1)
    three = of(source, [loan], letter.position)
    start = Position.start(EPOCH)
    nothing = Batch(source=source, follows=start, first=start, last=start, segments=[], keys=[], values=[])
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name, tables=tables)
    batches = [message(each) for each in (nothing, first, two, three)]
    states = [outcome.state for outcome in send(bridge.port, f"cdc/{source}", batches)]
    # then the source goes on, and the table that has no topic is named in the log and in status
    assert states == ["accepted"] * 4
    assert bridge.figures(source)["state"] == "serving"
    assert "table public.loans has no topic: its records go to" in caplog.text
    (shown,) = bridge.bridge._service.status().sources
    assert any("public.loans" in warning for warning in shown.warnings)
    accounts = [(account.key, account.value), (letter.key, letter.value)]
    balances = [(each.key, each.value) for each in (balance, gone, tombstone)]
    assert pairs(kafka, f"{name}.public.accounts") == accounts
    assert pairs(kafka, f"{name}.public.balances") == balances
    assert pairs(kafka, name) == [(None, truncate.value), (marker.key, marker.value), (loan.key, loan.value)]
    assert positions_of(file)[source].position == loan.position
    # The lake reads the same, and the ends of all topics after it: records, and a marker for each transaction.
    reach = observe(reader_file, "bank")
    assert reach.positions == {source: str(loan.position)}
    assert {place.topic.removeprefix(name) for place in reach.heads} == {"", *(f".{table}" for table in tables)}
    assert all(
        head > len(pairs(kafka, topic_name)) for (topic_name, partition), head in reach.heads.items() if partition == 0
    )
    assert [each["offset"].split("@")[0] for each in dead_letters(file, "bank")] == [f"{name}.public.accounts[0]"]
    bridge.stop()

    # when Kafka forgets the position, and the table gets a topic by a pattern
    group = file.group
    eventually(lambda: client.delete_consumer_groups([group])[group].result(60) is None, saying="the group is empty")
    client.delete_records([TopicPartition(name, 0, -1)])[TopicPartition(name, 0, -1)].result(60)
    tables["public.*"] = "delete"
    file = written(tmp_path, kafka, source, name, tables)
    assert [each.topic for each in make(client, file, ["public.loans"]) if each.what == "created"] == [
        f"{name}.public.loans"
    ]
    assert [each["holds"] for each in owners(client, file)][-3:] == [
        "public.loans",
        "public.accounts",
        "public.balances",
    ]
    with pytest.raises(NeedsOperator, match=r"no pattern of a stream's tables is for audit\.loans"):
        make(client, file, ["audit.loans"])
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name, tables=tables)
    # then it goes on from the last record of any table that Kafka has
    later = change(source, 15, 0, "loans", 2)
    batches = [two, three, of(source, [later], loan.position)]
    assert [each.state for each in send(bridge.port, f"cdc/{source}", [message(each) for each in batches])] == [
        "accepted"
    ] * 3
    assert pairs(kafka, f"{name}.public.accounts") == accounts
    assert pairs(kafka, f"{name}.public.loans") == [(each.key, each.value) for each in (loan, later)]
    # And a record that does not say what it is of, as of a foreign edge, is refused.
    foreign = of(source, [Row(Position(EPOCH, 16, 0), b"1", b"{}")], later.position)
    (outcome,) = send(bridge.port, f"cdc/{source}", [message(foreign)])
    assert (outcome.state, outcome.condition) == ("rejected", "headrace:no-table")


def test_where_transactions_begin_and_end_has_its_topic_and_counts_for_the_position(kafka, topic, inside, tmp_path):
    name, source = topic(), "ends/bank"
    given = {"tables": {"public.accounts": "compact"}, "more": "transaction_topic = true\n"}
    file = load(bridge_file(tmp_path, kafka.bootstrap, {source: [0]}, topic=name, **given), BridgeFile)
    client = admin(file.kafka)
    assert [each.topic.removeprefix(name) for each in make(client, file)] == ["", ".transaction", ".public.accounts"]
    assert [(each["holds"], each["in_kafka"]) for each in owners(client, file)] == [
        ("the rest", True), ("transactions", True), ("public.accounts", True)
    ]  # fmt: skip

    begin, row = status(source, "BEGIN", 0), change(source, 10, 0, "accounts", 1)
    end, marker = status(source, "END", 1), change(source, 11, 0, "", 5, op="m")
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name, **given)
    batch = of(source, [begin, row, end, marker], Position.start(EPOCH))
    assert [outcome.state for outcome in send(bridge.port, f"cdc/{source}", [message(batch)])] == ["accepted"]

    assert pairs(kafka, f"{name}.transaction") == [(begin.key, begin.value), (end.key, end.value)]
    assert pairs(kafka, f"{name}.public.accounts") == [(row.key, row.value)]
    assert pairs(kafka, name) == [(marker.key, marker.value)]
    assert positions_of(file)[source].position == marker.position
    # a lost position is found again in the records of all topics
    places = file.topics("bank")
    with reading(file.kafka, file.group) as reader:
        assert read_last_record(reader, source, places, [0]) == marker.position
        assert read_last_record(reader, source, places[1:], [0]) == end.position


def status(source, name, ordinal):
    """Return the record of where a transaction begins or ends, as an edge writes it."""
    made = change(source, 10, ordinal, "", None)
    value = {"status": name, "id": "7:10", "event_count": None, "source": json.loads(made.value)["source"]}
    return Row(made.position, b'{"id":"7:10"}', json.dumps(value, separators=(",", ":")).encode())


def written(folder, kafka, source, name, tables):
    return load(bridge_file(folder, kafka.bootstrap, {source: [0]}, topic=name, tables=tables), BridgeFile)


def test_each_topic_has_its_own_limit(kafka, topic, inside):
    name, source = topic(), "limits/bank"
    topic(name=f"{name}.public.notes", max_message_bytes=20_000)
    topic(name=f"{name}.public.photos", max_message_bytes=200_000)
    large = {"after": {"id": 1, "text": "x" * 50_000}}
    photo, note = change(source, 10, 0, "photos", 1, **large), change(source, 11, 0, "notes", 1, **large)
    bridge = inside(
        kafka.bootstrap, {source: [0]}, topic=name, tables={"public.notes": "delete", "public.photos": "delete"}
    )
    first, two = cut(source, [photo, note], lambda: 1)
    assert [each.state for each in send(bridge.port, f"cdc/{source}", [message(first)])] == ["accepted"]
    (outcome,) = send(bridge.port, f"cdc/{source}", [message(two)])
    assert (outcome.state, outcome.condition) == ("rejected", "headrace:record-too-large")
    assert pairs(kafka, f"{name}.public.photos") == [(photo.key, photo.value)]
    assert pairs(kafka, f"{name}.public.notes") == []


def test_a_bridge_killed_in_the_middle_leaves_each_change_in_its_tables_topic_once(kafka, topic, outside):
    name, source = topic(), "tables-killed/bank"
    tables = {"public.accounts": "delete", "public.balances": "delete"}
    for table in tables:
        topic(name=f"{name}.{table}")
    # given transactions that each change both tables
    rows = [
        change(source, 10 + number // 4, number % 4, ("accounts", "balances")[number % 2], number)
        for number in range(6000)
    ]
    bridge = outside(kafka.bootstrap, {source: [0]}, topic=name, tables=tables)
    edge = Edge(bridge.port, source, rows, sizes=lambda: 30)
    edge.upto = 4000
    edge.start()
    eventually(lambda: edge.accepted > 1000)
    # when
    bridge.kill()
    assert edge.accepted < len(rows)
    edge.port = outside(kafka.bootstrap, {source: [0]}, topic=name, tables=tables).port
    edge.finish()
    # then
    assert pairs(kafka, f"{name}.public.accounts") == [(row.key, row.value) for row in rows[::2]]
    assert pairs(kafka, f"{name}.public.balances") == [(row.key, row.value) for row in rows[1::2]]
    assert pairs(kafka, name) == []
