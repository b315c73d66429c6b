"""`[records] profile = "debezium"` from a real PostgreSQL through edge and bridge to Kafka."""

import json

from bridge.kafka.client import admin
from bridge.kafka.topics import make
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from tests.bridge.bridge_file import bridge_file
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]

SOURCE = "jakarta/bank"
TABLES = """
create table accounts (id int primary key, owner text not null, note text, seen timestamptz);
alter table accounts alter note set storage external;
create table whole (id int primary key, note text); alter table whole replica identity full
"""
WORK = [
    "insert into accounts values (1, 'Ana', repeat('x', 9000), '2026-01-31 09:15:00.25+07')",
    "begin; update accounts set owner = 'Bo' where id = 1; insert into whole values (7, 'a'); commit",
    "update accounts set id = 2 where id = 1",
    "update whole set id = 8, note = 'b'",
    "truncate whole",
    "delete from accounts",
]


def test_a_tables_topic_has_what_debezium_writes(database, edges, kafka, topic, inside, tmp_path):
    name = topic()
    settings = {"topic": name, "tables": {f"public.{table}": "delete" for table in ("accounts", "whole")}}
    file = load(bridge_file(tmp_path, kafka.bootstrap, {SOURCE: [0]}, **settings), BridgeFile)
    make(admin(file.kafka), file)
    bridge = inside(kafka.bootstrap, {SOURCE: [0]}, **settings)
    database.execute(TABLES)
    edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", more='[records]\nprofile = "debezium"')
    edge.init()

    with edge.running():
        for statement in WORK:
            database.execute(statement)
        accounts = eventually(lambda: taken(kafka, f"{name}.public.accounts", 6), 120, every=0.2, saying="all of it")
        whole = taken(kafka, f"{name}.public.whole", 4)

    assert shown(accounts) == [
        (1, "c", []),
        (1, "u", []),
        (1, "d", [("__debezium.newkey", {"id": 2})]),
        (1, None, [("__debezium.newkey", {"id": 2})]),
        (2, "c", [("__debezium.oldkey", {"id": 1})]),
        (2, "d", []),
        (2, None, []),
    ]
    assert [(key, op) for key, op, _ in shown(whole)] == [(7, "c"), (7, "d"), (7, None), (8, "c")]

    inserted, updated, deleted, _, created, last, _ = (record.value and json.loads(record.value) for record in accounts)
    assert updated["after"] == inserted["after"] | {"owner": "Bo", "note": "__debezium_unavailable_value"}
    assert deleted["before"] == {"id": 1, "owner": "", "note": None, "seen": None}
    assert created["after"] == updated["after"] | {"id": 2}
    assert updated["transaction"] | {"id": ""} == {"id": "", "total_order": 1, "data_collection_order": 1}
    second = json.loads(whole[0].value)["transaction"]
    assert second == updated["transaction"] | {"total_order": 2, "last": True}
    # each change has its own place in the log, and names the end of the transaction before
    changes = [inserted, updated, deleted, created, last]
    places = [change["source"]["lsn"] for change in changes]
    assert places == sorted(places)
    assert places[2] == places[3]
    assert all(change["source"]["lsn"] < int(change["transaction"]["id"].split(":")[1]) for change in changes)
    ends = [json.loads(change["source"]["sequence"]) for change in changes]
    assert [int(lsn) for _, lsn in ends] == places
    assert all(int(end) <= int(lsn) for end, lsn in ends[1:])
    source = inserted["source"]
    assert (source["ts_us"] // 1000, source["ts_ns"]) == (source["ts_ms"], source["ts_us"] * 1000)
    columns = schema(kafka, name, "accounts")
    assert {column["name"]: column["optional"] for column in columns} == {
        "id": False, "owner": False, "note": True, "seen": True,
    }  # fmt: skip


def taken(kafka, topic, least):
    """The records of a topic, once there are so many."""
    records = read_committed(kafka.bootstrap, topic)
    return records if len(records) >= least and (least != 6 or records[-1].value is None) else None


def shown(records):
    """Key, op and headers of each."""
    return [
        (
            json.loads(record.key)["id"],
            record.value and json.loads(record.value)["op"],
            [(name, json.loads(value)) for name, value in record.headers or []],
        )
        for record in records
    ]


def schema(kafka, topic, table):
    """The columns in a table's schema record, which is in the stream's own topic."""
    for record in read_committed(kafka.bootstrap, topic):
        value = json.loads(record.value) if record.value else {}
        if "tableChanges" in value and value["source"]["table"] == table:
            return value["tableChanges"][0]["table"]["columns"]
    raise AssertionError(table)
