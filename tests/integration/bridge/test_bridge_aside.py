"""A source whose topic is deleted, under a running bridge or before one starts, is set aside, and no other source."""

import time

from confluent_kafka.admin import AdminClient

from bridge.positions.survey import survey
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


def test_a_bridge_that_starts_without_some_topics_serves_all_other_sources(kafka, topic, inside):
    """It ended with exit code 3: one deleted topic took all sources from a bridge that was restarted."""
    name, good, bad, lost = topic(partitions=2), "begun/good", "begun/bad", "begun/lost"
    tables = {good: ("accounts", f"{name}.public.accounts"), bad: ("notes", f"{name}.public.notes")}
    tables[lost] = "accounts", topic(name=f"{name}-lost")
    for _, place in (tables[good], tables[bad]):
        topic(name=place, partitions=2)

    def start():
        return inside(
            kafka.bootstrap,
            {good: [0], bad: [1]},
            topic=name,
            tables={"public.accounts": "delete", "public.notes": "delete"},
            more=f'[streams.lost]\ntopic = "{name}-lost"\nsources = {{ "{lost}" = [0] }}\n',
        )

    def is_aside(source):
        # A bridge that was a member of the group before has what it had then.
        return bridge.figures(source)["state"] in {"needs an operator", "not served"}

    rows = {
        source: [change(source, 10 + number, 0, table, number) for number in range(100)]
        for source, (table, _) in tables.items()
    }
    bridge = start()
    edges = {source: Edge(bridge.port, source, rows[source], sizes=lambda: 5) for source in rows}
    for edge in edges.values():
        edge.upto = 40
        edge.start()
    eventually(lambda: all(edge.accepted == 40 for edge in edges.values()), saying="all are served")
    # given a bridge that starts when the topics of two of them are gone
    bridge.stop()
    gone = [tables[source][1] for source in (bad, lost)]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for answer in admin.delete_topics(gone).values():
        answer.result(60)
    bridge = start()
    for edge in edges.values():
        edge.port, edge.upto = bridge.port, 100
    # then the third one is served
    edges[good].finish()
    for source in (bad, lost):
        eventually(lambda source=source: is_aside(source), saying=f"what {source} lacks is said")
    assert (edges[bad].accepted, edges[lost].accepted) == (40, 40)
    # and its command shows the positions of the others
    shown = {each["source"]: each for each in survey(bridge.bridge._file)}
    assert [shown[source]["error"] for source in (good, bad)] == [None, None]
    assert shown[good]["position"]
    assert "is not in Kafka" in shown[lost]["error"] or "nknown topic" in shown[lost]["error"]
    assert pairs(kafka, tables[good][1]) == [(row.key, row.value) for row in rows[good]]
    # when they are made again, then one goes on by itself, and of the other, whose position went with its topic, that is said
    topic(name=gone[0], partitions=2)
    topic(name=gone[1])
    edges[bad].finish()
    assert pairs(kafka, gone[0]) == [(row.key, row.value) for row in rows[bad][40:]]
    eventually(lambda: bridge.figures(lost)["state"] == "gap", saying="it is served again, and what it lost is said")
    edges[lost].stop()
