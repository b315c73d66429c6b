"""A change of a table's schema that the registry refuses: that table alone waits, durably, and comes back in order, once."""

import random

import pytest

from bridge.kafka.client import admin
from bridge.kafka.topics import make
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from infra.local.server import free_port
from tests.amqp.edge_double import Edge
from tests.bridge.bridge_file import bridge_file
from tests.integration.bridge.test_bridge_tables import change
from tests.kafka.reading import ends
from tests.registry.test_registry import SOURCE, reason, settings, started, values
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]

AVRO = '[records]\nformat = "avro"'


def test_a_change_that_the_registry_refuses_stops_its_table_alone_with_the_reason(
    database, edges, kafka, topic, inside, tmp_path, registry, consumed, caplog
):
    bridge, name = started(
        kafka, topic, inside, tmp_path, registry.url, tables=("t", "other"), compatibility="BACKWARD"
    )
    database.execute("create table t (id int primary key, a int); create table other (id int primary key)")
    edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", more=AVRO)
    edge.init()
    subject = f"{name}.public.t-value"
    with edge.running():
        database.execute("insert into t values (1, 1)")
        eventually(lambda: len(values(kafka, f"{name}.public.t")) == 1, saying="the first row is in Kafka")
        # when one transaction has a refused change and others, and more follows
        database.execute("alter table t alter column a type text")
        database.execute(
            "begin; insert into t values (2, 'two'); insert into other values (1); insert into t values (3, 'three'); commit"
        )
        database.execute(
            "insert into other values (2); update t set a = 'zwei' where id = 2; delete from t where id = 3"
        )
        # then the other table goes on, and the source is served
        eventually(lambda: len(values(kafka, f"{name}.public.other")) == 2, saying="the other table goes on")
        assert len(values(kafka, f"{name}.public.t")) == 1
        figures = bridge.bridge.registry.states[SOURCE].figures
        assert (figures.state, list(figures.withheld)) == ("serving", ["public.t"])
        assert subject in figures.withheld["public.t"]
        assert "ncompatible" in figures.withheld["public.t"]
        (status,) = bridge.bridge._service.status().sources
        assert any("table public.t is withheld from its topic" in warning for warning in status.warnings)
        assert len([each for each in caplog.records if "is withheld from its topic" in each.getMessage()]) == 1
        assert len(values(kafka, f"{name}.withheld")) >= 1
        # and the table comes back by itself, once the registry takes the change
        registry.request("PUT", f"/config/{subject}", {"compatibility": "NONE"})
        eventually(lambda: len(values(kafka, f"{name}.public.t")) == 5, 60, saying="the table is released")
        eventually(lambda: not figures.withheld, saying="nothing is withheld")
        database.execute("insert into t values (4, 'four')")
        eventually(lambda: len(values(kafka, f"{name}.public.t")) == 6, saying="it goes on")
    records = consumed(f"{name}.public.t")
    assert [value["op"] for _, value in records] == ["c", "c", "c", "u", "d", "c"]
    assert [value["source"]["position"] for _, value in records] == sorted(
        value["source"]["position"] for _, value in records
    )
    assert [(value["after"] or {}).get("a") for _, value in records] == [1, "two", "three", "zwei", None, "four"]
    # then the stream's rule holds again, and what was withheld is deleted
    eventually(
        lambda: registry.request("GET", f"/config/{subject}")["compatibilityLevel"] == "BACKWARD",
        saying="the rule is back",
    )
    eventually(lambda: values(kafka, f"{name}.withheld") == [], saying="what was released is deleted")


def test_a_stream_in_one_topic_keeps_the_order_of_its_source_and_waits(
    database, edges, kafka, topic, inside, tmp_path, registry, consumed, caplog
):
    other = "london/bank"
    name = topic(partitions=2)
    bridge = inside(
        kafka.bootstrap, {SOURCE: [0], other: [1]}, topic=name, more=settings(registry.url, compatibility="BACKWARD")
    )
    database.execute("create table t (id int primary key, a int)")
    edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", more=AVRO)
    edge.init()
    peer = Edge(
        bridge.port, other, [change(other, 10 + number, 0, "t", number) for number in range(100)], sizes=lambda: 10
    )

    def changes():
        return [value for value in values(kafka, name) if value[:1] == b"\0"]

    with edge.running():
        database.execute("insert into t values (1, 1)")
        eventually(lambda: len(changes()) == 1, saying="the first row is in Kafka")
        database.execute("alter table t alter column a type text; insert into t values (2, 'two')")
        eventually(lambda: bridge.figures(SOURCE)["state"] == "needs an operator", saying="the source waits")
        subject = f"{name}-{name}.public.t.Envelope"
        assert "ncompatible" in reason(bridge)
        # then another source goes on
        peer.start()
        peer.finish()
        assert len(changes()) == 1
        # and the one that waits is shown as such through all attempts, with one line in the log
        seen, tried = set(), bridge.bridge.registry.states[SOURCE].figures.setbacks

        def tried_again():
            figures = bridge.bridge.registry.states[SOURCE].figures
            seen.add((figures.state, "ncompatible" in figures.reason))
            return figures.setbacks >= tried + 2

        eventually(tried_again, 60, every=0.001, saying="it was tried again")
        assert seen == {("needs an operator", True)}
        assert len([each for each in caplog.records if "as incompatible" in each.getMessage()]) == 1
        registry.request("PUT", f"/config/{subject}", {"compatibility": "NONE"})
        eventually(lambda: len(changes()) == 2, 60, saying="the second row is in Kafka")


@pytest.mark.timeout(600)
def test_a_bridge_that_is_killed_at_any_moment_withholds_and_releases_each_record_once(
    database, edges, kafka, topic, outside, tmp_path, registry, consumed
):
    chance = random.Random(7)
    name = topic()
    tables = {f"public.{table}": "delete" for table in ("t", "u", "other")}
    given = {"topic": name, "tables": tables, "more": settings(registry.url, compatibility="BACKWARD")}
    path = bridge_file(tmp_path, kafka.bootstrap, {SOURCE: [0]}, port=free_port(), **given)
    file = load(path, BridgeFile)
    make(admin(file.kafka), file)
    bridge = outside(path=path)
    database.execute(
        "create table t (id int primary key, a int); create table u (id int primary key, a int);"
        "create table other (id int primary key)"
    )
    edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", more=AVRO)
    edge.init()
    count = 0
    with edge.running():
        database.execute("insert into t values (0, 0); insert into u values (0, 0)")
        eventually(lambda: len(values(kafka, f"{name}.public.u")) == 1, 60, saying="the first rows are in Kafka")
        database.execute("alter table t alter column a type text; alter table u alter column a type text")
        for turn in range(12):
            for _ in range(chance.randint(1, 4)):
                begin, count = count + 1, count + chance.randint(1, 2000)
                for table in ("t", "u"):
                    database.execute(f"insert into {table} select n, n from generate_series({begin}, {count}) n")
                database.execute(f"insert into other select n from generate_series({begin}, {count}) n")
            if turn == 4:
                registry.request("PUT", f"/config/{name}.public.t-value", {"compatibility": "NONE"})
            if turn == 6:
                database.execute("alter table t alter column a type int using a::int; insert into t values (-1, 5)")
            if turn == 8:
                registry.request("PUT", f"/config/{name}.public.u-value", {"compatibility": "NONE"})
            # In the middle of what it does: at once, or when it has written some more, committed or not.
            upto = written(kafka, name) + (0, 1, 3)[turn % 3]
            eventually(lambda upto=upto: written(kafka, name) >= upto, every=0.01, saying="it writes")
            bridge.kill()
            bridge = outside(path=path)
        eventually(
            lambda: len(values(kafka, f"{name}.public.other")) == count, 120, saying="the other table is complete"
        )
        registry.request("PUT", f"/config/{name}.public.t-value", {"compatibility": "NONE"})
        eventually(lambda: len(values(kafka, f"{name}.public.u")) >= count + 1, 120, saying="one table is released")
        eventually(lambda: len(values(kafka, f"{name}.public.t")) >= count + 2, 120, saying="the other one too")
        eventually(lambda: values(kafka, f"{name}.withheld") == [], 60, saying="what was released is deleted")
    for table, more in (("t", [-1]), ("u", []), ("other", [])):
        result = [value for _, value in consumed(f"{name}.public.{table}")]
        positions = [value["source"]["position"] for value in result]
        assert positions == sorted(set(positions)), table
        begin = 1 if table == "other" else 0
        assert sorted(value["after"]["id"] for value in result) == [*more, *range(begin, count + 1)]


def written(kafka, name):
    """Return how much is in the topics, markers and what is not committed included."""
    topics = (f"{name}.withheld", f"{name}.public.t", f"{name}.public.u", f"{name}.public.other")
    return sum(sum(ends(kafka.bootstrap, topic).values()) for topic in topics)
