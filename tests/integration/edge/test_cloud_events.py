"""`[records] cloudevents`: headers of CloudEvents in Kafka, from a real PostgreSQL through edge and bridge."""

import json
from datetime import UTC, datetime, timedelta

from bridge.kafka.client import admin
from bridge.kafka.topics import make
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from tests.bridge.bridge_file import bridge_file
from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import copy
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]

SOURCE = "jakarta/bank"
SETTINGS = """[records]
cloudevents = true
key_change = "delete-create"
tombstones = true
transactions = true
messages = ["outbox"]
largest_megabytes = 1
on_too_large = "dead-letter"
"""
TABLES = "create table accounts (id int primary key, note text); create table other (id int primary key)"
WORK = [
    "insert into accounts select n, 'x' from generate_series(1, 20) n",
    "begin; update accounts set note = 'y' where id = 1; insert into other values (1); commit",
    "update accounts set id = 21 where id = 20",
    "insert into accounts values (30, repeat('x', 1100000))",
    "select pg_logical_emit_message(true, 'outbox', 'paid')",
    "truncate other",
    "delete from accounts where id = 2",
]
KINDS = {"c": "create", "u": "update", "d": "delete", "r": "read", "t": "truncate"}


def test_changes_are_events_in_every_topic_and_partition(database, edges, kafka, topic, inside, tmp_path):
    # given a table with a topic of its own and one without, in two partitions each
    name = topic(partitions=2)
    settings = {"topic": name, "tables": {"public.accounts": "delete"}}
    owned = {SOURCE: [0, 1]}
    file = load(bridge_file(tmp_path, kafka.bootstrap, owned, **settings), BridgeFile)
    make(admin(file.kafka), file)
    bridge = inside(kafka.bootstrap, owned, **settings)
    database.execute(TABLES)
    edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", more=SETTINGS)
    edge.init()
    began = datetime.now(UTC)

    # when it changes, is copied, and the edge is killed and goes on
    edge.start()
    for statement in WORK[:3]:
        database.execute(statement)
    copy(edge, "public.accounts")
    edge.kill()
    edge.start()
    for statement in WORK[3:]:
        database.execute(statement)
    topics = [name, f"{name}.public.accounts"]
    eventually(lambda: len(tombstones(kafka, topics)) == 2, 120, every=0.3, saying="the last tombstone is there")
    assert edge.terminate() == 0

    # then each record with an operation is an event, with what the record itself has, and no other record is one
    result = records(kafka, topics)
    events = [record for record in result if attributes(record)]
    changes = [record for record in result if record.value and "op" in json.loads(record.value)]
    assert events == changes
    for record in events:
        check(record, began)
    ids = [attributes(record)["ce_id"] for record in events]
    assert len(ids) == len(set(ids))
    counted = {op: sum(json.loads(record.value)["op"] == op for record in events) for op in "cudrtm"}
    # The row of key 20 is copied under its new key.
    assert counted == {"c": 23, "u": 1, "d": 2, "r": 20, "t": 1, "m": 1}
    assert {record.partition for record in events} == {0, 1}
    assert any("too_large" in json.loads(record.value) for record in events)

    # and a changed key keeps Debezium's headers
    named = [record for record in result if any(name.startswith("__debezium") for name, _ in record.headers or [])]
    assert sorted(bool(attributes(record)) for record in named) == [False, True, True]
    deleted, created = sorted(attributes(record)["ce_id"] for record in named if record.value)
    assert created == f"{deleted}-create"


def test_changes_of_mariadb_are_events(maria_edges, maria, interconnect):
    edge = maria_edges(maria, interconnect.url, rest="[records]\ncloudevents = true\nkey_change = 'delete-create'\n")
    edge.init()
    with edge.running():
        maria.execute("insert into t values (1, 'a'), (2, 'b')")
        maria.execute("update t set id = 3 where id = 1")
        arrive(interconnect, 4)
        copy(edge, f"{maria.name}.t")

    results = []
    for batch, _ in list(interconnect.arrived):
        for index, value in enumerate(batch.values):
            headers = {name: given.decode() for name, given in batch.headers.get(index, [])}
            assert ("ce_id" in headers) == (value is not None and b'"op":' in value)
            if headers:
                source = json.loads(value)["source"]
                assert headers["ce_id"].removesuffix("-create") == source["position"]
                assert datetime.fromisoformat(headers["ce_time"]) == datetime.fromtimestamp(source["ts_ms"] / 1000, UTC)
                assert (headers["ce_source"], headers["ce_subject"]) == (f"/headrace/{SOURCE}", f"{maria.name}.t")
                results.append((headers["ce_id"], headers["ce_type"].removeprefix("headrace.change.")))
    assert [kind for _, kind in results] == ["create", "create", "delete", "create", "read", "read"]
    assert len({id_ for id_, _ in results}) == 6


def records(kafka, topics):
    return [record for topic in topics for record in read_committed(kafka.bootstrap, topic)]


def tombstones(kafka, topics):
    return [record.key for record in records(kafka, topics) if record.value is None]


def attributes(record):
    return {name: value.decode() for name, value in record.headers or [] if name.startswith(("ce_", "content-type"))}


def check(record, began):
    value, result = json.loads(record.value), attributes(record)
    source = value["source"]
    time = datetime.fromisoformat(result.pop("ce_time"))
    assert time == datetime.fromtimestamp(source["ts_ms"] / 1000, UTC)
    assert began - timedelta(seconds=60) < time < datetime.now(UTC) + timedelta(seconds=60)
    assert result.pop("ce_id").removesuffix("-create") == source["position"]
    is_message = value["op"] == "m"
    assert result == {
        "ce_specversion": "1.0",
        "ce_source": f"/headrace/{SOURCE}",
        "ce_type": "headrace.message" if is_message else f"headrace.change.{KINDS[value['op']]}",
        "ce_subject": value["message"]["prefix"] if is_message else f"public.{source['table']}",
        "content-type": "application/json",
    }
