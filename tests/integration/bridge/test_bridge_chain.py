"""The bridge over a real Kafka and a real AMQP peer: whatever arrives, in whatever order, the stream stands there once."""

import itertools
import random

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from headrace.position import Position
from tests.amqp.edge_double import Edge, message, send
from tests.edge.source_log import Row, cut, log, of
from tests.kafka.reading import read_committed

pytest_plugins = ["tests.bridge.fix_bridge"]

EPOCH = 1_700_000_000
_names = (f"jakarta/bank{number}" for number in itertools.count())


@pytest.fixture
def source():
    """A source that no other test has: groups outlive topics."""
    return next(_names)


@pytest.fixture
def served(kafka, topic, inside, source):
    """A bridge that serves the source: its port, and the records of its topic."""

    class Served:
        name = topic()
        bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
        port = bridge.port

        def values(self):
            return [record.value for record in read_committed(kafka.bootstrap, self.name)]

        def send(self, *batches):
            return [outcome.state for outcome in send(self.port, f"cdc/{source}", [message(each) for each in batches])]

        def send_one(self, sent, address=f"cdc/{source}"):
            (outcome,) = send(self.port, address, [sent])
            return outcome

    return Served()


def test_batches_in_order_are_accepted_and_stand_in_kafka_once(served, source):
    rows = log(source, 100)
    assert set(served.send(*cut(source, rows, lambda: 7))) == {"accepted"}
    assert served.values() == [row.value for row in rows]


def test_keys_and_tombstones_arrive_as_they_were_sent(served, source, kafka):
    at = Position(EPOCH, 5, 0)
    rows = [Row(at._replace(ordinal=number), b"k%d" % number, b"v%d" % number) for number in range(3)]
    batch = of(source, rows, Position.start(EPOCH))
    batch.keys[1], batch.values[2] = None, None
    assert served.send(batch) == ["accepted"]
    assert [(record.key, record.value) for record in read_committed(kafka.bootstrap, served.name)] == [
        (b"k0", b"v0"),
        (None, b"v1"),
        (b"k2", None),
    ]


def test_repeats_are_accepted_and_written_once(served, source):
    rows = log(source, 40)
    batches = cut(source, rows, lambda: 10)
    assert set(served.send(*batches, *batches[1:3], *batches)) == {"accepted"}
    assert served.values() == [row.value for row in rows]


def test_an_overtaking_batch_is_released_and_taken_when_it_comes_again(served, source):
    rows = log(source, 40)
    first, two, three, four = cut(source, rows, lambda: 10)
    assert served.send(first, three, two, four) == ["accepted", "released", "accepted", "released"]
    assert served.send(three, four) == ["accepted", "accepted"]
    assert served.values() == [row.value for row in rows]


def test_a_gap_releases_everything_behind_it(served, source):
    rows = log(source, 50)
    one, _missing, *behind = cut(source, rows, lambda: 10)
    assert served.send(one, *behind) == ["accepted", "released", "released", "released"]
    assert served.values() == [row.value for row in rows[:10]]


def test_batches_cut_elsewhere_after_a_restart_bring_only_what_is_new(served, source):
    rows = log(source, 90)
    served.send(*cut(source, rows[:50], lambda: 9))
    assert set(served.send(*cut(source, rows, lambda: 13))) == {"accepted"}
    assert served.values() == [row.value for row in rows]


def test_an_empty_batch_is_accepted_where_the_source_stands_and_released_beyond(served, source):
    rows = log(source, 10)
    here, beyond = of(source, [], rows[4].position), of(source, [], rows[9].position)
    assert served.send(*cut(source, rows[:5], lambda: 5), here, beyond) == ["accepted", "accepted", "released"]
    assert served.bridge.figures(source)["edge"] == {"read_lsn": 1}


def test_a_new_epoch_is_taken_from_its_start_and_the_old_one_is_then_rejected(served, source):
    old, new = log(source, 30), log(source, 20, epoch=EPOCH + 60, start=30)
    old_one, _, old_three = cut(source, old, lambda: 10)
    new_one, new_two = cut(source, new, lambda: 10)
    assert served.send(old_one, new_two, new_one, new_two) == ["accepted", "released", "accepted", "accepted"]
    outcome = served.send_one(message(old_three))
    assert (outcome.state, outcome.condition) == ("rejected", "headrace:stale-epoch")
    assert "headrace edge init" in outcome.description
    assert served.values() == [row.value for row in old[:10] + new]


def test_an_edge_that_goes_on_where_nothing_is_known_is_released_and_an_operator_called(served, source, caplog):
    _, second = cut(source, log(source, 20), lambda: 10)
    assert served.send(second, second) == ["released", "released"]
    assert served.values() == []
    assert [record.levelname for record in caplog.records if str(second.follows) in record.getMessage()] == ["ERROR"]


def test_any_order_and_any_cutting_with_go_back_n_bring_the_stream_once(served, source):
    chance = random.Random(7)
    rows = log(source, 3000)
    for until in (400, 1100, 2000, 3000):
        # given an edge that knows nothing of what was acknowledged before, and cuts at random
        edge = Edge(served.port, source, rows[:until], sizes=lambda: chance.randint(1, 90))
        edge.start()
        edge.finish()
    assert served.values() == [row.value for row in rows]


def test_a_source_with_several_partitions_keeps_the_order_of_each_key(kafka, topic, inside, source):
    name = topic(partitions=3)
    bridge = inside(kafka.bootstrap, {source: [0, 2]}, topic=name)
    rows = [row._replace(key=b"%d" % (number % 11)) for number, row in enumerate(log(source, 300))]
    send(bridge.port, f"cdc/{source}", [message(batch) for batch in cut(source, rows, lambda: 17)])
    records = read_committed(kafka.bootstrap, name)
    assert {record.partition for record in records} == {0, 2}
    for key in {row.key for row in rows}:
        values = [record for record in records if record.key == key]
        assert len({record.partition for record in values}) == 1
        assert [record.value for record in values] == [row.value for row in rows if row.key == key]


def test_sources_of_one_bridge_stay_in_their_own_partitions(kafka, topic, inside, source):
    name, other = topic(partitions=2), f"{source}-other"
    bridge = inside(kafka.bootstrap, {source: [1], other: [0]}, topic=name)
    logs = {source: log(source, 50), other: log(other, 70, seed=2)}
    for each, rows in logs.items():
        send(bridge.port, f"cdc/{each}", [message(batch) for batch in cut(each, rows, lambda: 20)])
    records = read_committed(kafka.bootstrap, name)
    assert [record.value for record in records if record.partition == 1] == [row.value for row in logs[source]]
    assert [record.value for record in records if record.partition == 0] == [row.value for row in logs[other]]


def _truncated(sent):
    sent.body = sent.body[:-3]


def _of_another_version(sent):
    sent.properties = sent.properties | {"version": 9}


def _foreign(sent):
    sent.properties, sent.body = None, "hello"


def _of_another_source(sent):
    sent.properties = sent.properties | {"source": "london/bank"}


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_truncated, "truncated"),
        (_of_another_version, "has version 9 of the batch format"),
        (_foreign, "not a Headrace batch"),
        (_of_another_source, "'london/bank' came on the link of 'jakarta/bank"),
    ],
)
def test_a_message_that_cannot_pass_is_rejected_with_the_reason_and_costs_nothing_else(
    served, source, spoil, says, caplog
):
    rows = log(source, 20)
    first, two = cut(source, rows, lambda: 10)
    bad = message(two)
    spoil(bad)
    assert served.send(first) == ["accepted"]
    outcome = served.send_one(bad)
    condition = "headrace:unknown-version" if spoil is _of_another_version else "amqp:decode-error"
    assert (outcome.state, outcome.condition) == ("rejected", condition)
    assert says in outcome.description
    # then the log names it once, and the stream goes on
    assert len([record for record in caplog.records if says in record.getMessage()]) == 1
    assert served.send(two) == ["accepted"]
    assert served.values() == [row.value for row in rows]


def test_a_record_larger_than_the_topic_takes_is_rejected_and_those_around_it_pass(kafka, topic, inside, source):
    name = topic(max_message_bytes=20_000)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    rows = log(source, 10)
    large = rows[5]._replace(value=b"x" * 30_000)
    before, bad = of(source, rows[:5], Position.start(EPOCH)), of(source, [large], rows[4].position)
    sender = [message(before), message(bad)]
    outcomes = send(bridge.port, f"cdc/{source}", sender)
    assert outcomes[1].condition == "headrace:record-too-large"
    assert "max.message.bytes" in outcomes[1].description
    bridge.serves(source)
    again = send(bridge.port, f"cdc/{source}", [message(before), message(of(source, rows[5:], rows[4].position))])
    assert [outcome.state for outcome in again] == ["accepted", "accepted"]
    assert [record.value for record in read_committed(kafka.bootstrap, name)] == [row.value for row in rows]


def test_a_record_passes_once_the_topic_takes_larger_ones(kafka, topic, inside, source):
    name = topic(max_message_bytes=20_000)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    bridge.serves(source)
    (large,) = [row._replace(value=b"x" * 30_000) for row in log(source, 1)]
    # when the limit is raised while the bridge runs
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    change = ConfigEntry("max.message.bytes", "50000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(60)
    # then the edge is sent back once, and the record passes
    edge = Edge(bridge.port, source, [large], sizes=lambda: 1)
    edge.start()
    edge.finish()
    assert [record.value for record in read_committed(kafka.bootstrap, name)] == [large.value]


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("cdc/london/unknown", "'london/unknown' is in no stream of the bridge's file"),
        ("queue/orders", "a source's address is cdc/REGION/NAME"),
    ],
)
def test_a_link_for_something_else_is_closed_with_the_reason(served, address, says):
    outcome = served.send_one(message(of("london/unknown", [], Position.start(EPOCH))), address)
    assert (outcome.state, outcome.condition) == ("closed", "amqp:not-found")
    assert says in outcome.description
