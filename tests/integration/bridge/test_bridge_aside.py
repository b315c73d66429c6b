"""A source whose topic is deleted under a running bridge is set aside, and no other source of the same transactions."""

import time

from confluent_kafka.admin import AdminClient

from tests.amqp.edge_double import Edge
from tests.integration.bridge.test_bridge_tables import change, pairs
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]


def test_a_topic_deleted_under_a_bridge_sets_its_source_aside_and_holds_up_no_other(kafka, topic, inside):
    name, good, bad = topic(partitions=2), "aside/good", "aside/bad"
    tables = {"public.accounts": "delete", "public.notes": "delete"}
    for table in tables:
        topic(name=f"{name}.{table}", partitions=2)
    bridge = inside(kafka.bootstrap, {good: [0], bad: [1]}, topic=name, tables=tables)
    rows = {
        good: [change(good, 10 + number, 0, "accounts", number) for number in range(3_000)],
        bad: [change(bad, 10 + number, 0, "notes", number) for number in range(400)],
    }
    edges = {source: Edge(bridge.port, source, rows[source], sizes=lambda: 5) for source in rows}
    edges[good].upto, edges[bad].upto = 500, 100
    for edge in edges.values():
        edge.start()
    eventually(lambda: edges[good].accepted == 500 and edges[bad].accepted == 100, saying="both are served")
    # when the topic of one is deleted
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.delete_topics([f"{name}.public.notes"])[f"{name}.public.notes"].result(60)
    edges[bad].upto = 400
    eventually(
        lambda: bridge.figures(bad)["state"] in {"needs an operator", "waiting for Kafka"}, saying="it is set aside"
    )
    before = edges[good].accepted
    edges[good].upto = 3_000
    began = time.monotonic()
    # then the other one goes on at once, and to its end
    eventually(lambda: edges[good].accepted > before, saying="the other one moves")
    first = time.monotonic() - began
    edges[good].finish()
    print(f"the other source moved after {first:.2f} s, and was done after {time.monotonic() - began:.2f} s")
    assert edges[bad].accepted == 100
    assert pairs(kafka, f"{name}.public.accounts") == [(row.key, row.value) for row in rows[good]]
    # when the topic is there again, then the one that waited goes on by itself
    topic(name=f"{name}.public.notes", partitions=2)
    edges[bad].finish()
    assert pairs(kafka, f"{name}.public.notes") == [(row.key, row.value) for row in rows[bad][100:]]
