"""`headrace bridge export` and `import`: positions go where none are, and records go on once and in order."""

import json

import pytest
from confluent_kafka import Producer

from bridge.kafka.client import admin
from bridge.positions.survey import positions_of
from bridge.positions.transfer import Export, SourcePosition, export_positions, import_positions, read_export
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError, NeedsOperator
from headrace.position import Position
from tests.amqp.edge_double import message, send
from tests.bridge.bridge_file import bridge_file
from tests.edge.source_log import cut, log
from tests.integration.bridge.test_bridge_command import headrace
from tests.kafka.reading import read_committed

pytest_plugins = ["tests.bridge.fix_bridge"]


def test_exported_positions_are_imported_where_none_are_and_nowhere_else(kafka, topic, inside, tmp_path):
    former, name, source = topic(), topic(), "transfer/bank"
    rows = log(source, 40)
    first, two = cut(source, rows, lambda: 20)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=former)
    assert send(bridge.port, f"cdc/{source}", [message(first)])[0].state == "accepted"
    old = bridge_file(tmp_path, kafka.bootstrap, {source: [0]}, topic=former)
    code, out, _ = headrace("export", "--config", old)
    assert code == 0
    exported = json.loads(out)
    assert [(each["source"], each["position"]) for each in exported["sources"]] == [(source, str(first.last))]

    # given another topic and group, as in another cluster, with the records of before the export not in it
    path = bridge_file(tmp_path, kafka.bootstrap, {source: [0]}, topic=name)
    file, client, export = (
        load(path, BridgeFile),
        admin(load(path, BridgeFile).kafka),
        read_export(out.encode(), "export"),
    )
    with pytest.raises(ConfigurationError, match=r"other/bank"):
        import_positions(file, client, export, only=["other/bank"])
    kept = tmp_path / "positions.json"
    kept.write_text(out)
    code, said, _ = headrace("import", "--config", path, kept)
    assert (code, said) == (0, f"source {source}: goes on after {first.last}\n")
    assert import_positions(file, client, export) == [(source, f"is at {first.last} already")]

    # then the next batch follows, and what was exported is a repeat
    after = inside(kafka.bootstrap, {source: [0]}, topic=name)
    outcomes = send(after.port, f"cdc/{source}", [message(first), message(two)])
    assert [outcome.state for outcome in outcomes] == ["accepted"] * 2
    assert [record.value for record in read_committed(kafka.bootstrap, name)] == [row.value for row in rows[20:]]
    after.stop()

    # a position that is there is never replaced, nor one put before records, nor (unasked) beyond the last record
    with pytest.raises(NeedsOperator, match="other positions are committed"):
        import_positions(file, client, export)
    empty = bridge_file(tmp_path, kafka.bootstrap, {source: [0]}, topic=name)
    empty.write_text(empty.read_text().replace(f'prefix = "headrace.{name}"', f'prefix = "other.{name}"'))
    with pytest.raises(NeedsOperator, match="beyond"):
        import_positions(load(empty, BridgeFile), client, export)
    later, _ = export_positions(file)
    behind = bridge_file(tmp_path, kafka.bootstrap, {source: [0]}, topic=former)
    behind.write_text(behind.read_text().replace(f'prefix = "headrace.{former}"', f'prefix = "other.{former}"'))
    with pytest.raises(NeedsOperator, match="may be missing"):
        import_positions(load(behind, BridgeFile), client, later)
    assert import_positions(load(behind, BridgeFile), client, later, accept_gap=True) == [
        (source, f"goes on after {two.last}")
    ]


def test_the_last_record_may_be_in_a_topic_that_a_pattern_is_for(kafka, topic, tmp_path):
    """K6: an export older than the records was imported, and the right one was refused."""
    name, source = topic(), "transfer/tables"
    older, newest = Position(1_700_000_000, 10, 0), Position(1_700_000_000, 900, 0)
    orders = topic(name=f"{name}.public.orders")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    # the stream's own topic has a schema record
    for where, position in ((name, older), (orders, newest)):
        producer.produce(where, json.dumps({"source": {"name": source, "position": str(position)}}), partition=0)
    assert producer.flush(60) == 0
    path = bridge_file(tmp_path, kafka.bootstrap, {source: [0]}, topic=name, tables={"public.*": "delete"})
    file = load(path, BridgeFile)
    client = admin(file.kafka)

    def export(position):
        return Export(1, "former", [SourcePosition(source, str(position))])

    with pytest.raises(NeedsOperator, match=rf"is at {newest}, beyond {older}"):
        import_positions(file, client, export(older))
    assert import_positions(file, client, export(newest)) == [(source, f"goes on after {newest}")]


def test_two_sources_swap_their_partitions_in_one_move(kafka, topic, tmp_path):
    """K4: the first move took the other source's only position."""
    name, first, two = topic(partitions=2), "transfer/one", "transfer/two"
    at = {first: Position(1_700_000_000, 10, 0), two: Position(1_700_000_000, 20, 0)}
    before = load(bridge_file(tmp_path, kafka.bootstrap, {first: [0], two: [1]}, topic=name), BridgeFile)
    export = Export(1, "former", [SourcePosition(source, str(position)) for source, position in at.items()])
    assert len(import_positions(before, admin(before.kafka), export)) == 2
    path = bridge_file(tmp_path, kafka.bootstrap, {first: [1], two: [0]}, topic=name)
    code, _, error = headrace("move", "--config", path, first)
    assert code == 3
    assert f"'headrace bridge move {first} {two}' moves both at once" in " ".join(error.split())
    code, out, _ = headrace("move", "--config", path, first, two)
    assert (code, out) == (
        0,
        f"source {first}: goes on after {at[first]} in {name}[1]\nsource {two}: goes on after {at[two]} in {name}[0]\n",
    )
    held = positions_of(load(path, BridgeFile))
    assert {source: (each.position, set(each.offsets)) for source, each in held.items()} == {
        first: (at[first], {(name, 1)}),
        two: (at[two], {(name, 0)}),
    }
