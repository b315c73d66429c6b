"""Requests from Kafka to an edge and their answers back: through a bridge that listens, with real Kafka and real AMQP.

The edge is its sender and what handles requests, over no database.
"""

import threading
import time

import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from bridge.kafka.client import admin as administration
from bridge.requests.worker import AskingTopics, TopicReader
from edge.requests.service import Handler, KnownRequests, RequestService
from headrace import requests
from headrace.amqp.transport import Message
from headrace.configuration.bridge import Kafka
from headrace.configuration.sections import Topics
from headrace.errors import NeedsOperator, NotConnected, Retryable
from headrace.requests import Content, decode_part, encode, new_request, parts
from tests.amqp.edge_double import send
from tests.amqp.interconnect_ends import SOURCE, Edge, at, sealed
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]

SECTION = '\n[requests]\ntopic = "{0}"\nanswers_topic = "{1}"\n'


class Asking:
    """The two topics, an edge's handling, and who asks."""

    def __init__(self, bootstrap, topics, folder):
        self.bootstrap, self.topics = bootstrap, topics
        self.section = SECTION.format(*topics)
        self.done = []
        self.going = threading.Event()
        self.going.set()
        handlers = {"status": Handler(self.handle), "snapshot": Handler(self.handle, changes=True)}
        self.service = RequestService(SOURCE, ["status", "snapshot"], handlers, KnownRequests(folder))

    def handle(self, request):
        assert self.going.wait(60)
        self.done.append(request.id)
        return 1, {"long": "x" * request.arguments.get("characters", 0)}

    def ask(self, kind="status", seconds=30, **arguments):
        wire = AskingTopics(Kafka(bootstrap=self.bootstrap), self.topics)
        try:
            return requests.ask(wire, new_request(SOURCE, kind, "ann@hq", seconds, arguments))
        finally:
            wire.close()

    def send(self, request):
        wire = AskingTopics(Kafka(bootstrap=self.bootstrap), self.topics)
        wire.send(request.source, encode(request), 30)
        wire.close()

    def answers(self, request):
        """Return the parts of a request's answer that are in Kafka, in order."""
        records = [decode_part(record.value) for record in read_committed(self.bootstrap, self.topics.answers)]
        return [part for part in records if part.id == request.id]


@pytest.fixture
def asks(kafka, topic, tmp_path):
    made = Asking(kafka.bootstrap, Topics(topic(), topic()), tmp_path)
    yield made
    made.going.set()
    made.service.stop(30)


def test_an_edge_is_asked_through_a_bridge_that_listens(kafka, topic, inside, ends, asks):
    stream = topic()
    bridge = inside(kafka.bootstrap, {SOURCE: [0]}, topic=stream, more=asks.section)
    bridge.serves(SOURCE)
    # A source that is away: the answer is the bridge's, at the deadline.
    with pytest.raises(NotConnected, match="did not receive the request in time: nobody receives"):
        asks.ask(seconds=3)

    # One that was asked while the edge was away, and is there before the deadline; changes go on.
    waiting = new_request(SOURCE, "snapshot", "ann@hq", 60)
    asks.send(waiting)
    edge = ends(Edge, f"amqp://127.0.0.1:{bridge.port}", requests=asks.service)
    edge.put(sealed(1, 3))
    edge.acknowledged(at(3))
    eventually(lambda: [part.outcome for part in asks.answers(waiting)] == ["done"])
    # In parts; with the exit code; a kind that is not allowed.
    content = asks.ask(characters=100_000)
    assert (content.exit_code, len(content.data["long"])) == (1, 100_000)
    with pytest.raises(NeedsOperator, match="does not allow 'doctor'"):
        asks.ask("doctor")

    # The same request twice in Kafka, and one that is none: once done, once answered.
    again = new_request(SOURCE, "snapshot", "ann@hq", 60)
    asks.send(again)
    asks.send(again)
    asks.send(new_request("paris/bank", "status", "ann@hq", 60))
    # The answer to one that took too long is dropped, and the bridge has said so in time.
    asks.going.clear()
    late = new_request(SOURCE, "status", "ann@hq", 5)
    asks.send(late)
    eventually(lambda: [(part.by, part.outcome) for part in asks.answers(late)] == [("bridge", "expired")])
    asks.going.set()
    assert asks.ask("snapshot").exit_code == 1
    assert [part.outcome for part in asks.answers(again)] == ["done"]
    assert asks.done.count(again.id) == asks.done.count(waiting.id) == 1
    assert len(asks.answers(late)) == 1

    # A forged answer, of one that nobody asked, is accepted and dropped; one for another source is rejected.
    nobody = new_request(SOURCE, "status", "mallory", 60)
    forged = [
        next(parts(request, "done", Content(data="forged")))
        for request in (nobody, new_request("london/bank", "status", "m", 60))
    ]
    messages = [Message(body=encode(part), inferred=True) for part in forged]
    outcomes = send(bridge.port, f"answers/{SOURCE}", messages)
    assert [outcome[0] for outcome in outcomes] == ["accepted", "rejected"]
    assert asks.answers(nobody) == []


def test_a_topic_of_requests_that_somebody_compacts_truncates_or_makes_again_ends_nothing_and_repeats_nothing(
    kafka, topic, inside, ends, asks
):
    bridge = inside(kafka.bootstrap, {SOURCE: [0]}, topic=topic(), more=asks.section)
    bridge.serves(SOURCE)
    edge = ends(Edge, f"amqp://127.0.0.1:{bridge.port}", requests=asks.service)
    admin, name = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0}), asks.topics.requests
    # given requests that change something and are done
    assert asks.ask("snapshot").exit_code == 1
    old = [record.value for record in read_committed(kafka.bootstrap, name)]

    # when all of them are removed
    place = TopicPartition(name, 0, OFFSET_END)
    admin.delete_records([place])[place].result(30)
    assert asks.ask("snapshot").exit_code == 1
    # when only the newest of each source are to be kept
    change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(30)
    assert asks.ask("snapshot").exit_code == 1
    # when there is none for a while, the status says so, and batches are taken
    admin.delete_topics([name])[name].result(30)
    eventually(lambda: name in bridge.bridge._service.status().reason, saying="the status names it")
    edge.put(sealed(1, 3))
    edge.acknowledged(at(3))
    # when it is made again, with what it had and with less than was read of the former one
    topic(name=name)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for value in old:
        producer.produce(name, value, SOURCE.encode())
    assert producer.flush(30) == 0
    done = len(asks.done)
    # then what is asked is answered, the status is as before, and nothing is done a second time
    eventually(lambda: asks.ask("snapshot").exit_code == 1, saying="it is answered")
    assert len(asks.done) > done
    assert len(set(asks.done)) == len(asks.done)
    eventually(lambda: "requests" not in bridge.bridge._service.status().reason, saying="all is well")
    assert edge.outbox.problem is None


def test_a_topic_that_was_made_again_and_has_grown_beyond_what_was_read_is_read_from_its_beginning(kafka, topic):
    """A reader that compares offsets alone goes on in the middle of the new one."""
    name, admin = topic(), administration(Kafka(bootstrap=kafka.bootstrap))
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})

    def write(values):
        for value in values:
            producer.produce(name, value)
        assert producer.flush(30) == 0

    def read(reader, count):
        values = []
        eventually(lambda: values.extend(reader.read(100, 0.1)) or len(values) >= count, saying=f"{count} are read")
        return values

    # given a reader of two records
    write([b"one", b"two"])
    reader = TopicReader(Kafka(bootstrap=kafka.bootstrap), name, admin=admin)
    try:
        assert read(reader, 2) == [(b"one", None), (b"two", None)]
        # then, of what is written from there on, it is known when (a bridge's clock may be a day ahead)
        eventually(lambda: list(reader.read(100, 0.1)) or reader.has_caught_up, saying="the end is read")
        write([b"three"])
        ((value, written),) = read(reader, 1)
        assert (value, abs(time.time() - written) < 60) == (b"three", True)
        # when the topic is another one by now, with more than that
        admin.delete_topics([name])[name].result(30)
        eventually(lambda: topic(name=name))
        write(fresh := [b"%d" % number for number in range(5)])

        def reason():
            try:
                list(reader.read(100, 0.1))
            except Retryable as error:
                return error.message
            return ""

        # then the reader says so, and the next one reads all of it
        assert "was made again" in eventually(reason)
    finally:
        reader.close()
    reader = TopicReader(Kafka(bootstrap=kafka.bootstrap), name, admin=admin)
    assert read(reader, 5) == [(value, None) for value in fresh]
    reader.close()
