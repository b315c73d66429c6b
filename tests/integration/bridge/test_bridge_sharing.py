"""Bridges that share sources: each is served by one of them, and moves in seconds when its bridge comes, goes, dies or sleeps."""

import os
import random
import signal
from collections import Counter

from bridge.kafka.entries import read_topics, reading
from headrace.configuration.kafka import KafkaConnection
from tests.amqp.edge_double import Roaming
from tests.edge.source_log import log
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]

SEED = int(os.environ.get("HEADRACE_SEED", "7"))


def holders(kafka, group, name):
    """Return how many sources each bridge serves, by its process id."""
    with reading(KafkaConnection(bootstrap=kafka.bootstrap), group) as client:
        entries = read_topics(client, group, [name])
    return Counter(int(text.bridge.split("/")[1]) for _, text in entries.values())


def test_sources_spread_and_move_when_bridges_come_die_sleep_and_wake_e1_e2(kafka, topic, outside):
    chance = random.Random(SEED)
    name = topic(partitions=6)
    sources = {f"shared/bank{number}": [number] for number in range(6)}
    rows = {source: log(source, 4_000) for source in sources}
    options = {"topic": name, "sharing": f"bridges-{name}"}
    bridges = [first := outside(kafka.bootstrap, sources, **options)]

    def feed(upto, accepted):
        edges = [
            Roaming(bridges, source, rows[source][:upto], sizes=lambda: chance.randint(1, 60), accepted=accepted)
            for source in sources
        ]
        for edge in edges:
            edge.start()
        return edges

    def some(edges, accepted):
        eventually(lambda: all(edge.accepted > accepted for edge in edges), 180, saying="every source moves")

    def done(edges):
        for edge in edges:
            edge.finish()

    def served(**by):
        # A bridge that has just taken a source over says so in its first transaction, not before.
        numbers = {pid: number for pid, number in by.values() if number}
        eventually(
            lambda: holders(kafka, options["sharing"], name) == numbers, 180, saying=f"{by}: process and sources"
        )

    # Given one bridge that serves all; when others come, then they share.
    edges = feed(2_000, 0)
    some(edges, 0)
    second, third = outside(kafka.bootstrap, sources, **options), outside(kafka.bootstrap, sources, **options)
    bridges += [second, third]
    done(edges)
    served(first=(first.pid, 2), second=(second.pid, 2), third=(third.pid, 2))

    # When one is killed in the middle of it, and one sleeps past its session, then the third takes over what they had.
    edges = feed(4_000, 2_000)
    some(edges, 2_100)
    os.kill(second.pid, signal.SIGSTOP)
    first.kill()
    bridges[:] = [third]
    served(third=(third.pid, 6))
    # And when the one that slept wakes up, it takes nothing that is not its own, and serves again.
    os.kill(second.pid, signal.SIGCONT)
    bridges.append(second)
    done(edges)
    served(second=(second.pid, 3), third=(third.pid, 3))

    # Every row is in Kafka once, in its source's order.
    records = read_committed(kafka.bootstrap, name)
    for source, [partition] in sources.items():
        assert [record.value for record in records if record.partition == partition] == [
            row.value for row in rows[source]
        ]
    assert [bridge.terminate() for bridge in bridges] == [0, 0]
