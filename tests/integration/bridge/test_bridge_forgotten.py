"""A position that Kafka forgot, or would have."""

import pytest

from headrace.configuration.kafka import KafkaConnection
from tests.amqp.edge_double import message, send
from tests.edge.source_log import cut, log
from tests.kafka.reading import values
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge", "tests.servers.fix_proxy"]


@pytest.mark.parametrize("records", [True, False], ids=["records are there", "records are gone too"])
def test_a_forgotten_group_is_read_back_from_the_records_or_left_to_an_operator(kafka, topic, inside, records, caplog):
    name, source = topic(), f"forgotten-{int(records)}/bank"
    rows = log(source, 60)
    first, two, three = cut(source, rows, lambda: 20)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    assert {outcome.state for outcome in send(bridge.port, f"cdc/{source}", [message(first), message(two)])} == {
        "accepted"
    }
    bridge.stop()
    # when
    forget(kafka, group_of(name), None if records else name)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    bridge.serves(source)
    # then
    outcomes = [outcome.state for outcome in send(bridge.port, f"cdc/{source}", [message(first), message(three)])]
    if records:
        assert outcomes == ["accepted", "accepted"]
        assert values(kafka.bootstrap, name) == [row.value for row in rows]
    else:
        # The first one starts the epoch, and so is the only one that can be taken.
        assert outcomes == ["accepted", "released"]
        assert errors(caplog, source) == []


def test_an_edge_that_goes_on_after_everything_was_forgotten_waits_for_an_operator(kafka, topic, inside, caplog):
    name, source = topic(), "lost/bank"
    rows = log(source, 60)
    first, two, three = cut(source, rows, lambda: 20)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    send(bridge.port, f"cdc/{source}", [message(first), message(two)])
    bridge.stop()
    forget(kafka, group_of(name), name)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    bridge.serves(source)
    assert [outcome.state for outcome in send(bridge.port, f"cdc/{source}", [message(three)])] == ["released"]
    (said,) = errors(caplog, source)
    assert str(two.last) in said
    assert values(kafka.bootstrap, name) == []


def errors(caplog, source):
    """Return the errors that were logged of a source."""
    reported = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    return [said for said in reported if source in said]


def forget(kafka, group, topic):
    """Delete a group, as Kafka does after its retention, and with `topic` the records as well."""
    from confluent_kafka import TopicPartition  # noqa: PLC0415
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    # A bridge that has ended is expected back for the time of its session.
    eventually(lambda: admin.delete_consumer_groups([group])[group].result(60) is None)
    if topic is not None:
        partition = TopicPartition(topic, 0, -1)
        admin.delete_records([partition])[partition].result(60)


def test_an_idle_source_commits_its_position_again_before_kafka_forgets_it(kafka, topic, inside):
    name, source = topic(), "idle/bank"
    (batch,) = cut(source, log(source, 20), lambda: 20)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name, options={"recommit_seconds": 0.5})
    assert send(bridge.port, f"cdc/{source}", [message(batch)])[0].state == "accepted"
    before = committed(kafka, source, name)
    assert before.position == batch.last
    eventually(lambda: committed(kafka, source, name).at > before.at)
    assert committed(kafka, source, name).position == batch.last


def committed(kafka, source, topic):
    from bridge.kafka.entries import committed_of, read_entries, reading  # noqa: PLC0415

    with reading(KafkaConnection(bootstrap=kafka.bootstrap), group_of(topic)) as client:
        return committed_of(source, read_entries(client, group_of(topic), [(topic, 0)]))


def group_of(topic):
    return f"headrace.{topic}.bridges"
