"""Rogue principals of Kafka's at a real broker with its lists: one with what docs/security.md allows who asks edges, one that may
write alerts. They reach nothing else, what they write where they may ends nothing, and what was asked stays written.
"""

import json
import re
import threading
from contextlib import closing

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)  # fmt: skip

from bridge.bridge import Bridge
from bridge.requests.worker import AskingTopics
from headrace import doors, requests
from headrace.configuration.bridge import BridgeFile, Interconnect, Kafka, Stream
from headrace.configuration.sections import Delivery, Requests, Topics
from headrace.errors import NotConnected
from headrace.requests import decode_request, new_request
from tests.amqp.edge_double import Edge
from tests.bridge.security_lists import bridge_delivery, bridge_requests, bridge_run, caller
from tests.edge.source_log import log
from tests.hostile.test_records import ANSWERS, REQUESTS
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually
from tests.servers.fix_secure_kafka import Allow

SOURCE = "secure/honest"
#: What is larger than Kafka's own limit for a record is refused by the broker.
_LARGEST = 900_000


class Attacked:
    """A bridge with a source, requests and a delivery, each with the rights of the documents, and an honest edge that sends."""

    def __init__(self, kafka):
        self.kafka, self.bootstrap = kafka, kafka.server.bootstrap
        self.topic, self.alerts = kafka.topic(), kafka.topic()
        self.asked = Topics(kafka.topic(), kafka.topic())
        self.letters = kafka.topic(f"{self.alerts}.dead-letters")
        self.rights = [*bridge_run(self.topic), *bridge_requests(self.asked), *bridge_delivery(self.alerts)]
        connection = kafka.user(self.rights)
        settings = {name: getattr(connection, name) for name in connection.__struct_fields__}
        self.bridge = Bridge(
            BridgeFile(
                kafka=Kafka(**settings),
                interconnect=Interconnect(listen="127.0.0.1:0"),
                streams={"bank": Stream(topic=self.topic, sources={SOURCE: [0]})},
                requests=Requests(topic=self.asked.requests, answers_topic=self.asked.answers),
                deliveries={"alerts": Delivery(topic=self.alerts, address="alerts/{region}")},
            )
        )
        self.thread = threading.Thread(target=self.bridge.run)
        self.thread.start()
        self.rows = log(SOURCE, 3000)
        self.edge = Edge(eventually(lambda: self.bridge.receiver.port), SOURCE, self.rows, sizes=lambda: 5)
        self.edge.upto = 0
        self.edge.start()

    def goes_on(self):
        assert self.thread.is_alive()
        self.edge.upto += 500
        eventually(lambda: self.edge.accepted == self.edge.upto, 120, saying="the honest source goes on")

    def stop(self):
        self.edge.stop()
        self.bridge.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.fixture
def attacked(secure_kafka):
    made = Attacked(secure_kafka)
    made.goes_on()
    yield made
    made.stop()


class Principal:
    """One of Kafka's users, with clients that keep to no rule of ours."""

    def __init__(self, kafka, rights):
        self.connection = kafka.user(rights)
        self._settings = self.connection.librdkafka() | {
            "bootstrap.servers": self.connection.bootstrap,
            "log_level": 0,
            "socket.timeout.ms": 10_000,
        }
        self.admin = AdminClient(self._settings)

    def write(self, topic, records, **settings):
        """Write (key, value) pairs; return the names of the errors, each once."""
        errors = set()
        producer = Producer(self._settings | {"linger.ms": 0, "delivery.timeout.ms": 20_000} | settings)
        for key, value in records:
            producer.produce(topic, value, key, on_delivery=lambda error, _record: error and errors.add(error.name()))
        assert producer.flush(60) == 0
        return errors

    def refusals(self, attacked):
        """Yield what it tries that is not its right, each with the error that it gets."""
        group = f"{self.connection.prefix}.bridges"
        yield "a transactional id of the bridge's", refused(self._begin, f"{self.connection.prefix}.bridge.0")
        yield (
            "a transactional id of its own, with which open transactions hold readers up",
            refused(self._begin, "mine"),
        )
        whose, moved = (
            ConsumerGroupTopicPartitions(group, [TopicPartition(attacked.topic, 0, *offset)]) for offset in ((), (0,))
        )
        yield "another's position", refused(self._ask, self.admin.list_consumer_group_offsets([whose]))
        yield "to move it", refused(self._ask, self.admin.alter_consumer_group_offsets([moved]))
        yield "another's records", refused(self._read, attacked.topic)
        yield "dead letters", refused(self._read, attacked.letters)
        for topic in (attacked.topic, attacked.asked.requests, attacked.asked.answers, attacked.alerts):
            resource = ConfigResource(ResourceType.TOPIC, topic)
            resource.add_incremental_config(
                ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
            )
            yield f"deletion of {topic}", refused(self._ask, self.admin.delete_topics([topic]))
            yield f"retention of {topic}", refused(self._ask, self.admin.incremental_alter_configs([resource]))
            yield f"partitions of {topic}", refused(self._ask, self.admin.create_partitions([NewPartitions(topic, 9)]))
            before = self.admin.delete_records([TopicPartition(topic, 0, -1)])
            yield f"what is written in {topic}", refused(self._ask, before)
        yield "a group's end", refused(self._ask, self.admin.delete_consumer_groups([group]))
        yield "a topic of its own", refused(self._ask, self.admin.create_topics([NewTopic("mine", 1, 1)]))
        rule = AclBinding(
            ResourceType.TOPIC, "*", ResourcePatternType.LITERAL, f"User:{self.connection.user}", "*", AclOperation.ALL,
            AclPermissionType.ALLOW,
        )  # fmt: skip
        yield "more rights", refused(self._ask, self.admin.create_acls([rule]))

    def _begin(self, name):
        Producer(self._settings | {"transactional.id": name}).init_transactions(20)

    def _read(self, topic):
        with closing(Consumer(self._settings | {"group.id": "mine", "enable.partition.eof": True})) as client:
            client.assign([TopicPartition(topic, 0, 0)])
            message = client.poll(20)
            if message is not None and message.error() is not None:
                raise KafkaException(message.error())

    def _ask(self, answers):
        for answer in answers.values():
            answer.result(30)


def refused(step, *arguments):
    """Return the name of the error that Kafka answers with; empty where it does as it was asked."""
    try:
        step(*arguments)
    except KafkaException as error:
        return error.args[0].name()
    return ""


def test_who_may_ask_edges_and_who_may_write_alerts_reach_nothing_else_and_end_nothing(attacked, secure_kafka):
    asker = Principal(secure_kafka, caller(attacked.asked))
    writer = Principal(secure_kafka, [Allow("topic", attacked.alerts, "write")])

    # What is not theirs is refused, by Kafka,
    denied = "TOPIC_AUTHORIZATION_FAILED"
    for principal, own in ((asker, attacked.asked.requests), (writer, attacked.alerts)):
        topics = {attacked.topic, attacked.asked.answers, attacked.letters, attacked.asked.requests, attacked.alerts}
        for topic in topics - {own}:
            assert principal.write(topic, [(None, b"x")]) == {denied}, topic
        refusals = dict(principal.refusals(attacked))
        # (of a topic that it may not see, its client knows no leader to ask)
        allowed = {
            what: error for what, error in refusals.items() if not re.search("AUTHORIZATION_FAILED|_NOENT", error)
        }
        assert allowed == {}
        seen = principal.admin.list_topics(timeout=30).topics
        assert seen.keys() <= {own, attacked.asked.answers}
    attacked.goes_on()

    # what they write where they may, whoever it names and whatever it claims, is passed over and counted,
    before = doors.REQUEST.refused.get(attacked.asked.requests, 0)
    garbage = [each for each in {**REQUESTS, **ANSWERS}.values() if len(each) < _LARGEST]
    whose = (SOURCE.encode(), b"", b"\xff", b"x" * 10_000, None)
    assert asker.write(attacked.asked.requests, [(key, each) for key in whose for each in garbage]) == set()
    assert asker.write(attacked.asked.requests, [(None, None), (SOURCE.encode(), None)], acks=0) == set()
    eventually(
        lambda: doors.REQUEST.refused.get(attacked.asked.requests, 0) >= before + len(whose) * (len(REQUESTS) - 1),
        saying="they are passed over",
    )
    assert writer.write(attacked.alerts, [(key, each) for key in whose for each in (b"", b"\xff", None)]) == set()
    eventually(lambda: len(read_committed(attacked.bootstrap, attacked.letters)) >= 9, saying="they are dead letters")
    attacked.goes_on()

    # and an honest request among them is answered, and stays written with who asked for what.
    with closing(AskingTopics(asker.connection, attacked.asked)) as wire:
        asked = new_request(SOURCE, "status", "ann@hq", 3, {"width": 80})
        with pytest.raises(NotConnected, match="the edge did not receive the request in time"):
            requests.ask(wire, asked)
    records = [decode_or_none(each.value) for each in read_committed(attacked.bootstrap, attacked.asked.requests)]
    (kept,) = [each for each in records if each is not None and each.id == asked.id]
    assert (kept.caller, kept.kind, kept.source, kept.arguments) == ("ann@hq", "status", SOURCE, {"width": 80})
    answers = [json.loads(each.value) for each in read_committed(attacked.bootstrap, attacked.asked.answers)]
    assert [each["outcome"] for each in answers if each["id"] == asked.id] == ["expired"]

    # The bridge serves, and Kafka has the honest rows once and in order.
    attacked.goes_on()
    assert attacked.edge.went_back == 0
    values = [record.value for record in read_committed(attacked.bootstrap, attacked.topic)]
    assert values == [row.value for row in attacked.rows[: attacked.edge.upto]]


def decode_or_none(value):
    try:
        return decode_request(value or b"")
    except Exception:  # noqa: BLE001 - garbage.
        return None
