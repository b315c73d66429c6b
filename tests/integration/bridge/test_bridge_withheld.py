"""Withheld records in a real Kafka: read in order over aborted ones, found at a take-over, and in the way of commands."""

import json
from itertools import count

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from bridge.doctor import examine
from bridge.group.client import parse
from bridge.kafka.client import admin
from bridge.kafka.producer import KafkaProducer
from bridge.kafka.topics import check, make, owners, wanted
from bridge.model.chain import Withheld, WithheldTable, position_text
from bridge.model.ports import Committed, GroupMetadata, PositionCommit
from bridge.model.route import routes
from bridge.positions.read import Positions
from bridge.routing import withheld_records as records
from bridge.withheld.releaser import KafkaReader
from headrace.batch import Batch
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from headrace.errors import NeedsOperator
from headrace.position import Position
from tests.bridge.bridge_file import bridge_file
from tests.integration.bridge.test_bridge_command import headrace
from tests.kafka.reading import ends, read_committed
from tests.rules.waiting import eventually

SOURCE = "withheld/bank"
AT = Position(1_700_000_000, 9, 3)
REGISTRY = '[registry]\nurl = "http://127.0.0.1:1"\n'


@pytest.fixture
def stream(kafka, topic, tmp_path):
    """A stream with a topic for a table, and one for what is withheld; return the file's path."""
    path = bridge_file(
        tmp_path,
        kafka.bootstrap,
        {SOURCE: [1, 0]},
        topic=topic(partitions=2),
        tables={"public.t": "delete"},
        more=REGISTRY,
    )
    file = load(path, BridgeFile)
    make(admin(file.kafka), file)
    return path


@pytest.fixture
def put():
    """Commit what a lane would: withheld batches of tables, and the source's position; return the offset after the last one."""
    numbers = count(1)

    def put(path, *tables, text=None, abort=False):
        file = load(path, BridgeFile)
        place = routes(file)[SOURCE].withheld_place
        producer = KafkaProducer(file.kafka, f"lane-{file.group}", 1 << 20)
        producer.begin()
        if tables:
            producer.produce(records.share_of(place, [(table, batch(next(numbers))) for table in tables]))
        end = producer.flush(30).get(place)
        if abort:
            producer.abort(30)
        else:
            commits = [
                PositionCommit(*each, 0, text or position_text(SOURCE, AT, "b")) for each in routes(file)[SOURCE].places
            ]
            client = Consumer({"bootstrap.servers": file.kafka.bootstrap, "group.id": file.group, "log_level": 0})
            # A bridge has joined its group before it commits; without a coordinator the client would wait for ever.
            eventually(
                lambda: client.committed([TopicPartition(*place)], timeout=60), saying="the group has a coordinator"
            )
            opaque = client.consumer_group_metadata()
            producer.commit(commits, parse(opaque) or GroupMetadata(opaque, file.group, -1, ""), 30)
        producer.discard()
        return end

    return put


def batch(number):
    at = Position(1_700_000_000, number, 0)
    return Batch(
        source=SOURCE, follows=Position.start(at.epoch), first=at, last=at, segments=[(number, 0, 1)], keys=[b"k"],
        values=[b"%d" % number],
    )  # fmt: skip


def recovered(path):
    file = load(path, BridgeFile)
    positions = Positions(file.kafka, admin(file.kafka), file.group, routes(file))
    try:
        return eventually(lambda: positions.read([SOURCE])[SOURCE], saying="the position is stable")
    finally:
        positions.close()


def high(path):
    file = load(path, BridgeFile)
    return next(
        end for place, end in ends(file.kafka.bootstrap, file.withheld_topic("bank")).items() if place.partition == 0
    )


def waiting(end, *tables):
    return position_text(SOURCE, AT, "b", Withheld(end, {table: WithheldTable(AT, 0) for table in tables}))


def test_a_tables_records_are_read_in_order_over_others_and_over_what_was_aborted(stream, put):
    put(stream, "public.t", "public.u")
    put(stream, "public.t", abort=True)
    put(stream, "public.u")
    end = put(stream, "public.t", "public.t")
    put(stream, "public.t", abort=True)
    file = load(stream, BridgeFile)
    place = routes(file)[SOURCE].withheld_place
    assert place == (file.withheld_topic("bank"), 0)
    reader, key = KafkaReader(file.kafka, file.group, admin(file.kafka)), records.record_key(SOURCE, "public.t")
    try:
        found, upto = reader.read(place, key, 0, end)
        assert ([each.batch.values for each in found], upto) == ([[b"1"], [b"5"], [b"6"]], end)
        # a step at a time, each from where the one before ended
        at, steps = 0, []
        while at < end:
            step, at = reader.read(place, key, at, end, most=1)
            steps += [each.offset for each in step]
        assert steps == [each.offset for each in found]
        assert reader.read(place, records.record_key("other/bank", "public.t"), 0, end) == ([], end)
        # when what is released is deleted, the rest is there; and what is gone is never passed over
        reader.delete(place, found[1].offset)
        assert [each.offset for each in reader.read(place, key, found[1].offset, end)[0]] == steps[1:]
        with pytest.raises(NeedsOperator, match=r"withheld/bank public\.t are gone from .*withheld\[0\]"):
            reader.read(place, key, 0, end)
    finally:
        reader.close()


def test_a_bridge_that_takes_over_knows_what_is_withheld_and_goes_on_without_that_knowledge_never(stream, put):
    # given a source that never had anything withheld, and records that were aborted
    put(stream)
    put(stream, "public.t", abort=True)
    result = recovered(stream)
    assert isinstance(result, Committed)
    assert (result.position, dict(result.withheld.tables)) == (AT, {})
    assert result.withheld.end > 0
    # and then a withheld table
    end = put(stream, "public.t")
    put(stream, text=waiting(end, "public.t"))
    assert recovered(stream).withheld == Withheld(end, {"public.t": WithheldTable(AT, 0)})
    # when the position is one that knows nothing of it, as after the loss of the group
    put(stream)
    refused = recovered(stream)
    assert isinstance(refused, NeedsOperator)
    assert "holds withheld records, and no committed position of withheld/bank" in refused.message
    # or one of a topic that was longer, as where it was made again
    put(stream, text=waiting(end + 1000, "public.t"))
    refused = recovered(stream)
    assert isinstance(refused, NeedsOperator)
    assert (
        f"ends at offset {high(stream)}, and withheld records of withheld/bank are up to {end + 1000}"
        in refused.message
    )
    # or the file has no registry any more
    put(stream, text=waiting(end, "public.t"))
    stream.write_text(stream.read_text().replace(REGISTRY, ""))
    refused = recovered(stream)
    assert isinstance(refused, NeedsOperator)
    assert "by the bridge's file none can be: public.t" in refused.message


def test_commands_name_withheld_tables_and_lose_none_of_their_records(stream, put, tmp_path):
    end = put(stream, "public.t", "public.u", text=waiting(2, "public.t", "public.u"))
    assert end == 2
    file = load(stream, BridgeFile)
    topic, withheld = file.topic("bank"), file.withheld_topic("bank")
    assert {each["topic"]: each["holds"] for each in owners(admin(file.kafka), file)} == {
        topic: "the rest", withheld: "withheld", f"{topic}.public.t": "public.t"
    }  # fmt: skip
    code, out, _ = headrace("positions", "--config", stream, "--json")
    assert (code, json.loads(out)[0]["withheld"]) == (0, ["public.t", "public.u"])
    assert "public.t, public.u" in headrace("positions", "--config", stream)[1]
    problems = {(each.check, each.level): each.text for each in examine(file)}
    assert "withheld, since the registry refuses their schemas: public.t, public.u" in problems["tables", "warning"]
    assert "http://127.0.0.1:1 does not answer" in problems["registry", "wrong"]
    # it is not moved, nor forgotten
    moved = tmp_path / "moved.toml"
    moved.write_text(stream.read_text().replace("[1, 0]", "[1]"))
    code, _, error = headrace("move", "--config", moved, SOURCE)
    assert (code, "withheld tables" in error) == (3, True)
    without = tmp_path / "without.toml"
    without.write_text(stream.read_text().replace(SOURCE, "withheld/other"))
    code, _, error = headrace("forget", "--config", without, SOURCE)
    assert (code, "whose records are in no other topic: public.t, public.u" in error) == (3, True)
    # what is exported says so, and is not imported without a person's word
    code, out, _ = headrace("export", "--config", stream)
    assert (code, json.loads(out)["version"], json.loads(out)["sources"][0]["withheld"]) == (
        0,
        2,
        ["public.t", "public.u"],
    )
    kept, elsewhere = tmp_path / "positions.json", tmp_path / "elsewhere.toml"
    kept.write_text(out)
    elsewhere.write_text(stream.read_text().replace(f'prefix = "headrace.{topic}"', f'prefix = "other.{topic}"'))
    code, _, error = headrace("import", "--config", elsewhere, kept)
    assert (code, "tables were withheld when the positions were exported" in error) == (3, True)
    assert headrace("import", "--config", elsewhere, "--accept-gap", kept)[0] == 0
    assert recovered(elsewhere).withheld.end >= end
    # and given up only on purpose
    assert len(read_committed(file.kafka.bootstrap, withheld)) == 2
    assert headrace("forget", "--config", without, "--discard-withheld", SOURCE)[0] == 0
    assert read_committed(file.kafka.bootstrap, withheld) == []


def test_a_topic_of_withheld_records_that_kafka_would_empty_is_refused(stream):
    file = load(stream, BridgeFile)
    client = admin(file.kafka)
    entry = ConfigEntry("retention.ms", "604800000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, file.withheld_topic("bank"), incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result(30)
    with pytest.raises(NeedsOperator, match=r"has retention\.ms=604800000: Kafka would remove"):
        check(client, wanted(file))
