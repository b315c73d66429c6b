"""A stream that MirrorMaker 2 copies: each record once, and a bridge at the second cluster goes on from imported positions."""

import json

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from bridge.kafka.client import admin
from bridge.kafka.topics import make
from bridge.positions.last_record import read_last_record
from bridge.positions.survey import positions_of
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from infra.local.server import free_port
from tests.amqp.edge_double import message, send
from tests.bridge.bridge_file import bridge_file
from tests.consumers.mirror import mirror
from tests.edge.source_log import cut, log
from tests.integration.bridge.test_bridge_command import headrace
from tests.kafka.reading import read_committed, values
from tests.rules.waiting import eventually

SOURCE = "jakarta/bank"
TABLES = ["accounts", "pairs"]
DDL = """
create table accounts (id int primary key, owner text not null, balance numeric(12,2));
create table pairs (a int, b text, c text, primary key (a, b));
"""
INSERTS = "insert into accounts select n, 'Łukasz ' || n, n from generate_series({first}, {first} + 99) n"
#: Rows inserted, updated and deleted.
CHANGES = (400 + 50) + (25 + 80 + 49) + 60
ROWS = "select row_to_json(t)::text from (select id, owner, balance::text from accounts order by id) t"


@pytest.mark.timeout(600)
def test_a_bridge_at_the_second_cluster_goes_on_from_imported_positions(
    database, edges, kafka, private_kafka, topic, inside, tmp_path
):
    # given a stream at the first cluster, an ordinary consumer of it, and a MirrorMaker
    second, port, name = private_kafka(), free_port(), topic()
    topics = [name, *(f"{name}.public.{table}" for table in TABLES)]
    settings = {"topic": name, "tables": {f"public.{table}": "delete" for table in TABLES}, "port": port}
    here, there = (
        bridge_file(tmp_path, each, {SOURCE: [0]}, **settings) for each in (kafka.bootstrap, second.bootstrap)
    )
    make(admin(load(here, BridgeFile).kafka), load(here, BridgeFile))
    first = inside(kafka.bootstrap, {SOURCE: [0]}, **settings)
    pattern = {"first->second__topics": f"{name}, {name}\\\\..*"}
    program = mirror(tmp_path / "mirror", kafka.bootstrap, second.bootstrap, **pattern)

    def marks(bootstrap):
        return sum(b'"op":"m"' in value for value in values(bootstrap, name) if value)

    def work(*statements):
        for statement in statements:
            database.execute(statement)
        database.execute("select pg_logical_emit_message(true, 'headrace.marker', 'now')")

    def copied():
        for each in topics:
            ours, copies = rest(kafka.bootstrap, each), rest(second.bootstrap, each)
            assert copies == ours, (
                each,
                len(copies),
                len(ours),
                [x for x in zip(copies, ours, strict=False) if x[0] != x[1]][:2],
            )
        return True

    database.execute(DDL)
    edge = edges(database, f"amqp://127.0.0.1:{port}", more="[records]\ntombstones = true\n")
    edge.init()
    with edge.running():
        work(INSERTS.format(first=1), "insert into pairs select n, 'b', 'c' from generate_series(1, 50) n")
        aborted(kafka.bootstrap, topics[1])
        eventually(lambda: marks(kafka.bootstrap) == 1, 120, saying="all is in the first cluster")

        # when it is killed while it copies, and the first cluster goes on without it
        program.start()
        try:
            program.wait(lambda: values(second.bootstrap, topics[1]), "it copies")
            work(INSERTS.format(first=101), "update pairs set c = 'd' where a % 2 = 0")
            program.kill()
            work(INSERTS.format(first=201), "delete from accounts where id % 5 = 0")
            eventually(lambda: marks(kafka.bootstrap) == 3, 120, saying="all is in the first cluster")
            first.stop()
            consumed(kafka.bootstrap, topics[1])
            code, exported, _ = headrace("export", "--config", here)
            assert code == 0
            (tmp_path / "positions.json").write_text(exported)
            work("update accounts set balance = balance - 1 where id % 3 = 0", INSERTS.format(first=301))

            # then positions are refused while records are missing, and taken once the copy is complete
            code, _, refused = headrace("import", "--config", there, tmp_path / "positions.json")
            assert code != 0
            assert "may be missing in this cluster" in refused
            program.start()
            program.wait(copied, "the copy is complete")
            program.wait(lambda: committed(second.bootstrap, topics[1]), "the consumer's offset is translated")
        finally:
            program.kill()
        # It copied no position of a bridge.
        assert at(load(there, BridgeFile)) is None
        for words in (("init",), ("import", tmp_path / "positions.json")):
            code, _, problem = headrace(words[0], "--config", there, *words[1:])
            assert code == 0, problem
        inside(second.bootstrap, {SOURCE: [0]}, **settings)
        work("update accounts set owner = 'after the move' where id % 7 = 0")
        eventually(lambda: marks(second.bootstrap) == 5, 120, saying="the second cluster has what came since")

    # and it has each change once, in order, and the rows of the database
    positions = [at for each in topics for at in changes(second.bootstrap, each)]
    assert len(set(positions)) == len(positions) == CHANGES
    assert all(changes(second.bootstrap, each) == sorted(changes(second.bootstrap, each)) for each in topics)
    expected = [json.loads(row) for (row,) in database.execute(ROWS)]
    assert rows(read_committed(second.bootstrap, topics[1])) == expected
    # an ordinary consumer goes on behind what it has read at the first cluster
    offset = committed(second.bootstrap, topics[1])
    read = [record for record in read_committed(second.bootstrap, topics[1]) if record.offset < offset]
    assert len(read) == len(read_committed(kafka.bootstrap, topics[1]))


@pytest.mark.timeout(300)
def test_positions_that_mirrormaker_copies_are_ahead_of_the_records(kafka, private_kafka, topic, inside, tmp_path):
    second, name = private_kafka(), topic()
    first, two = cut(SOURCE, log(SOURCE, 40), lambda: 20)
    bridge = inside(kafka.bootstrap, {SOURCE: [0]}, topic=name)
    assert send(bridge.port, f"cdc/{SOURCE}", [message(first)])[0].state == "accepted"
    there = load(bridge_file(tmp_path, second.bootstrap, {SOURCE: [0]}, topic=name), BridgeFile)
    changes = {"first->second__topics": name, "groups__exclude": "connect-.*", "sync__topic__configs__enabled": "false"}
    program = mirror(tmp_path / "mirror", kafka.bootstrap, second.bootstrap, **changes)
    # given a MirrorMaker that copies the bridges' group too, against the example, and cannot write records for a while
    try:
        program.start()
        program.wait(lambda: len(values(second.bootstrap, name)) == 20, "it copies")
        program.kill()
        assert send(bridge.port, f"cdc/{SOURCE}", [message(two)])[0].state == "accepted"
        no_more(second.bootstrap, name)
        program.start()
        # then a bridge there would go on behind records that it does not have
        program.wait(lambda: at(there) == two.last, "the position is copied")
    finally:
        program.kill()
    assert len(values(second.bootstrap, name)) == 20
    client = Consumer({"bootstrap.servers": second.bootstrap, "group.id": "look", "enable.partition.eof": True})
    try:
        assert read_last_record(client, SOURCE, [name], [0]) == first.last
    finally:
        client.close()


def at(file):
    held = positions_of(file)[SOURCE]
    return held and held.position


def no_more(bootstrap, topic):
    """Have a topic take no record of any size."""
    change = ConfigEntry("max.message.bytes", "1", incremental_operation=AlterConfigOpType.SET)
    client = AdminClient({"bootstrap.servers": bootstrap})
    asked = client.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])])
    [answer.result(60) for answer in asked.values()]


def rest(bootstrap, topic):
    return [record._replace(offset=0) for record in read_committed(bootstrap, topic)]


def changes(bootstrap, topic):
    """The positions of the changes of a topic's rows."""
    result = [json.loads(value) for value in values(bootstrap, topic) if value]
    return [each["source"]["position"] for each in result if each.get("op") in {"c", "u", "d"}]


def rows(records):
    results = {}
    for record in records:
        if record.value is None:
            continue
        change = json.loads(record.value)
        if change["op"] == "d":
            del results[change["before"]["id"]]
        else:
            results[change["after"]["id"]] = change["after"]
    return [results[key] for key in sorted(results)]


def aborted(bootstrap, topic):
    """Write a record in a transaction that is aborted, as a bridge that is fenced leaves it."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"aborted-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"aborted", partition=0)
    producer.flush(60)
    producer.abort_transaction(60)


def consumed(bootstrap, topic):
    """Commit the end of a topic as the offset of an ordinary consumer's group."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "sales"})
    last = read_committed(bootstrap, topic)[-1].offset
    client.commit(offsets=[TopicPartition(topic, 0, last + 1)], asynchronous=False)
    client.close()


def committed(bootstrap, topic):
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "sales"})
    try:
        (offset,) = client.committed([TopicPartition(topic, 0)], timeout=30)
        return max(offset.offset, 0)
    finally:
        client.close()
