"""Tables are withheld and released under faults: each topic has its table's changes once and in order, the others never wait."""

import random
from zlib import crc32

import pytest

from bridge.model.chain import parse
from tests.unit.bridge.withheld.model import SOURCE, TABLES, Bridge, Broker, Edge, Killed, Registry, log, schema_of


@pytest.mark.parametrize("seed", range(60))
def test_each_topic_has_its_changes_once_and_in_order(seed):
    chance = random.Random(seed)
    broker, schemas = Broker(chance, chance.choice((0.0, 0.03, 0.2))), Registry()
    partitions = chance.choice(((0,), (2, 0)))
    changes = log(chance, 120, chance.choice((0.02, 0.2)))
    versions = list(dict.fromkeys((change.table, change.number) for change in changes))
    bridge, edge = Bridge(broker, schemas, partitions), Edge(changes, chance)
    schemas.refused = {schema_of(*each).value for each in versions if each[1] >= 100 and chance.random() < 0.6}
    upto = 0
    # when the registry refuses some schemas, and takes one or the other again, in any order
    for _ in range(400):
        upto = min(len(changes), upto + chance.randint(0, 2))
        if chance.random() < 0.03 and schemas.refused:
            schemas.refused.remove(chance.choice(sorted(schemas.refused)))
        bridge = step(chance, bridge, broker, schemas, partitions, edge, upto)
        complete_as_committed(broker, changes)
    # and takes all in the end
    schemas.refused.clear()
    broker.faults = 0.0
    for _ in range(400):
        bridge = step(chance, bridge, broker, schemas, partitions, edge, len(changes))
        complete_as_committed(broker, changes)
    # then
    result = parse(broker.text)
    assert result.position == changes[-1].position
    assert bridge.state.session.withheld.tables == {} == bridge.state.figures.withheld
    for table in TABLES:
        assert in_topics(broker, table) == expected(changes, table, partitions), table


def step(chance, bridge, broker, schemas, partitions, edge, upto):
    try:
        match chance.randint(0, 3):
            case 0 | 1:
                edge.send(bridge, upto)
            case 2:
                bridge.turn()
            case _:
                bridge.release()
    except Killed:
        return Bridge(broker, schemas, partitions)
    return bridge


def in_topics(broker, table):
    """Return what each partition of a table's topic has: positions in order."""
    topic = f"s.public.{table}"
    return {
        partition: [value[5:].decode() for _, value, _ in filter(None, entries)]
        for (name, partition), entries in broker.logs.items()
        if name == topic and any(entries)
    }


def expected(changes, table, partitions):
    split = {}
    for change in changes:
        if change.table == table:
            owner = partitions[crc32(b"%d" % change.key) % len(partitions)]
            split.setdefault(owner, []).append(str(change.position))
    return split


def complete_as_committed(broker, changes):
    """All up to the position that a reader of the committed text sees is in its topic."""
    if not broker.text:
        return
    complete = broker.text.split(" ")[1]
    there = {position for table in TABLES for part in in_topics(broker, table).values() for position in part}
    missing = [
        str(change.position)
        for change in changes
        if str(change.position) <= complete and str(change.position) not in there
    ]
    assert not missing
    assert parse(broker.text).source == SOURCE
