"""The doors of requests, answers, deliveries, withheld records and the registry: one record or answer ends nothing."""

import json
import threading
import tracemalloc
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from bridge.amqp.sender_links import SenderLink, SenderLinks
from bridge.deliveries.outbox import NO_ADDRESS, UNREADABLE, Outbox
from bridge.deliveries.pending import encode as encode_delivery
from bridge.deliveries.record import DeliveryMetrics, Record
from bridge.kafka.client import TopicPartition
from bridge.model.delivery import Accept, Reject
from bridge.requests.pending import encode as encode_request
from bridge.routing.registered_schemas import Ids, NeededSchemas, RegisteredSchemas
from bridge.withheld.releaser import KafkaReader
from headrace import doors, requests
from headrace.amqp.transport import Message
from headrace.configuration.kafka import KafkaConnection
from headrace.configuration.sections import Delivery, Registry
from headrace.errors import CorruptInput, NeedsOperator, ReplicationError, Retryable
from headrace.receive.message import Received
from headrace.receive.message import decode as decode_received
from headrace.registry.client import RegistryClient
from headrace.requests import Content, encode, new_request, parts
from headrace.schemas.avro import Schemas
from tests.hostile.peers import MESSAGES
from tests.unit.bridge.requests.test_worker import Setup
from tests.unit.edge.requests.test_service import Setup as EdgeSetup

SOURCE = "jakarta/bank"


def request(**changes):
    known = {"version": 1, "id": "a" * 16, "source": SOURCE, "kind": "status", "caller": "x", "deadline": 1}
    return json.dumps(known | changes).encode()


REQUESTS = {
    "no JSON": b"\xff",
    "empty": b"",
    "a list": b"[]",
    "nested": b"[" * 100_000,
    "half a character": b'{"version":1,"id":"\\ud800"}',
    "arguments nested": b'{"version":1,"arguments":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
    "version is huge": request(version=10**400),
    "deadline of 2**63-1 (S2)": request(deadline=2**63 - 1),
    "deadline of 10**25 (S2)": request(deadline=10**25),
    "deadline of 10**400 (S2)": request(deadline=10**400),
    "deadline is a fraction": request(deadline=1e300),
    "larger than any": request(caller="x" * (1 << 20)),
    "source is no name": request(source="../../etc"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_record_that_is_no_request_is_passed_over(monkeypatch, name):
    setup = Setup(monkeypatch)
    before = doors.REQUEST.refused.get("q", 0)
    setup.readers[-1].values.append((REQUESTS[name], None))
    asked = setup.asked()
    assert doors.REQUEST.refused["q"] == before + 1
    assert [source for _, sources in setup.sent for source in sources] == [SOURCE]
    entry = setup.worker.pending.take(f"requests/{SOURCE}")
    assert encode_request(entry, "requests")
    assert asked.id.encode() in entry.record.value


def test_a_request_with_the_latest_possible_deadline_is_refused_and_held_by_nobody(monkeypatch):
    """S2: kept until then it would count towards the bridge's limit, six hours of each restart included."""
    setup = Setup(monkeypatch)
    setup.readers[-1].values.append((request(deadline=253_402_300_799_999), None))
    setup.worker.turn(0)
    ((_, answer),) = setup.writer.written
    assert json.loads(answer)["outcome"] == "refused"
    assert setup.worker.pending.addresses() == []


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_is_none_is_rejected_by_an_edge(tmp_path, name):
    setup = EdgeSetup(tmp_path)
    assert isinstance(setup.service.receive(REQUESTS[name]), Reject)
    assert setup.service.receive(encode(new_request(SOURCE, "status", "ann", 30))) == Accept()
    setup.service.stop(5)


ANSWERS = REQUESTS | {
    "part is negative": request(outcome="done", part=-1),
    "part is huge": request(outcome="done", part=10**30),
    "of another source": request(outcome="done", source="london/bank"),
    "of a bridge": request(outcome="done", by="bridge"),
    "content is long": request(outcome="done", content="x" * 100_000),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_part_of_an_answer_that_is_none_is_rejected_by_a_bridge(monkeypatch, name):
    setup = Setup(monkeypatch)
    before = doors.ANSWER.refused.get(SOURCE, 0)
    assert isinstance(setup.answered(ANSWERS[name]), Reject)
    assert setup.writer.written == []
    assert doors.ANSWER.refused[SOURCE] == before + 1


def test_who_asks_gets_the_answer_among_records_that_are_none():
    asked = new_request(SOURCE, "status", "ann", 30)
    (answer,) = parts(asked, "done", Content(data={"a": 1}))

    class Topics:
        def send(self, _key, _value, _seconds):
            pass

        def read(self, _seconds):
            return [*ANSWERS.values(), encode(answer)]

    assert requests.ask(Topics(), asked).data == {"a": 1}


def test_a_whole_answer_that_is_no_json_is_an_error_of_the_command():
    asked = new_request(SOURCE, "status", "ann", 30)
    (answer,) = parts(asked, "done", Content())
    nested = encode(answer).replace(json.dumps(answer.content).encode(), json.dumps("[" * 20_000).encode())

    class Topics:
        def send(self, _key, _value, _seconds):
            pass

        def read(self, _seconds):
            return [nested]

    with pytest.raises(CorruptInput):
        requests.ask(Topics(), asked)


RECORDS = {
    "timestamp of 2**63-1": {"timestamp": 2**63 - 1},
    "timestamp of 2**62": {"timestamp": 2**62},
    "key is no UTF-8": {"key": b"\xff"},
    "header is no UTF-8": {"headers": (("a", b"\xff"),)},
    "header's name has a zero byte": {"headers": (("a\0", b"x"),)},
    "header's name is half a character": {"headers": (("\ud800", b"x"),)},
    "content type is odd": {"headers": (("content-type", b"\x01\x02"),)},
    "many headers": {"headers": tuple((f"h{n}", b"x") for n in range(20_000))},
    "header's name is long": {"headers": (("h" * 1_000_000, b"x"),)},
}


class Link:
    credit, remote_max_message_size = 1, 0
    connection = type("Connection", (), {"remote_container": "branch"})

    def __init__(self):
        self.sent = []

    def delivery(self, tag):
        self.sent.append(tag)

    def stream(self, data):
        assert data

    def advance(self):
        self.credit = 0


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_that_cannot_be_sent_becomes_a_dead_letter_and_the_next_is_sent(name):
    """S2's sibling: whoever may write to a topic that is delivered."""
    outbox = Outbox("alerts", Delivery(topic="t", address="alerts/{region}"), DeliveryMetrics())
    links = SenderLinks("b", encode_delivery, lambda _seconds, _step: None)
    link = Link()
    link.delivering = SenderLink(link, "alerts/one", outbox)
    links.opened(link)
    outbox.assign(0)
    outbox.read(Record("t", 0, 0, **{"key": b"one/1", "value": b"v"} | RECORDS[name]))
    outbox.read(Record("t", 0, 1, b"one/2", b"v"))
    for _ in range(2):
        link.credit = 1
        links.send(outbox, ["alerts/one"])
    condemned = outbox.take_condemned()
    assert len(link.sent) + len(condemned) == 2
    expected = {
        "timestamp of 2**63-1": UNREADABLE,
        "header's name is half a character": UNREADABLE,
        "key is no UTF-8": NO_ADDRESS,
    }
    assert [entry.condition for entry in condemned] == [each for each in [expected.get(name)] if each]


@pytest.mark.parametrize("name", [name for name in MESSAGES if "text" not in name and "list as a value" not in name])
def test_a_message_that_is_none_is_rejected_by_receive(name):
    before = sum(doors.MESSAGE.refused.values())
    received = decode_received(MESSAGES[name])
    assert received is None or received.line()
    assert received is not None or sum(doors.MESSAGE.refused.values()) >= before


@pytest.mark.parametrize("name", [name for name, data in MESSAGES.items() if len(data) > 1 << 20])
def test_what_is_ahead_of_a_body_costs_receive_no_more_than_twice_its_size(name):
    """S7: values of Proton's were many times as large as their bytes."""
    tracemalloc.start()
    received = decode_received(MESSAGES[name])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert received is None or received.body == b"x"
    assert most < 2 * len(MESSAGES[name]) + (1 << 20)


@pytest.mark.parametrize("body", [b"\xff" * (3 << 20), "\u00e9" * (1 << 20)])
@pytest.mark.parametrize("inferred", [True, False])
def test_a_large_message_is_received_with_all_that_is_ahead_of_its_body(body, inferred):
    message = Message(
        body=body, inferred=inferred, id="one", address="alerts/x", properties={"key": b"k", "header.a": "b"}
    )
    received = decode_received(message.encode())
    data = body.encode() if isinstance(body, str) else body
    assert received == Received("one", "alerts/x", b"k", 0, {"a": "b"}, data, tombstone=False)


class Unreadable:
    """A record of Kafka's whose headers cannot be read."""

    def error(self):
        return None

    def offset(self):
        return 0

    def key(self):
        return b"a/b public.t"

    def value(self):
        return b"x"

    def headers(self):
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")


WITHHELD = {
    "headers are no UTF-8": Unreadable(),
    "no headers": type("NoHeaders", (Unreadable,), {"headers": lambda _: None})(),
    "headers are another's": type("Others", (Unreadable,), {"headers": lambda _: [("version", b"9" * 5000)]})(),
}


@pytest.mark.parametrize("name", WITHHELD)
def test_a_withheld_record_that_is_none_ends_its_release_with_an_error_that_names_it(name):
    class Client:
        def list_topics(self, topic, **_options):
            described = SimpleNamespace(error=None, partitions={0: SimpleNamespace(leader=1)})
            return SimpleNamespace(topics={topic: described})

        def get_watermark_offsets(self, _place, **_options):
            return 0, 1

        def assign(self, _places):
            pass

        unassign = close = lambda self: None

        def consume(self, _many, **_options):
            return [WITHHELD[name]]

    reader = KafkaReader(KafkaConnection(bootstrap="k:1"), "g", None)
    reader._client._client = Client()
    with pytest.raises(CorruptInput):
        reader.read(("t.withheld", 0), b"a/b public.t", 0, 1)
    assert TopicPartition("t", 0).topic == "t"


_OURS = '{"type":"record","name":"Envelope","namespace":"s.public.t","fields":[]}'
#: What an id has by now, in place of our schema.
SCHEMAS = {
    "another schema of Avro": '"string"',
    "Protobuf (K9)": 'syntax = "proto3"; message A {}',
    "JSON Schema (K9)": '{"$schema":"x","properties":{"a":{"type":"string"}}}',
    "JSON Schema with types (K9)": '{"type":["object","null"]}',
    "a record without fields": '{"type":"record","name":"E"}',
    "fields are no records": '{"type":"record","name":"E","fields":[1]}',
    "nested": "[" * 100_000,
    "half a character": '"\\ud800"',
    "empty": "",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_an_id_that_has_another_schema_by_now_stops_its_table_and_nothing_else(name):
    """K9: of whatever kind the schema is."""

    class Client:
        def schema(self, _number):
            return SCHEMAS[name]

    schemas = RegisteredSchemas(Client())
    needed = NeededSchemas("t", "t-key", "t-value", "", Schemas(None, _OURS), "s.public.t")
    schemas._settle(needed, Ids(None, 1), None)
    schemas.look()
    with pytest.raises(NeedsOperator, match="another schema"):
        schemas.ids(needed)


REGISTRY_ANSWERS = {
    "a list": b"[]",
    "a number": b"1",
    "empty": b"",
    "no JSON": b"<html>",
    "no id": b"{}",
    "id is a text": b'{"id":"x","schema":1,"compatibilityLevel":[]}',
    "id is huge": b'{"id":1180591620717411303424,"schema":null}',
    "nested": b"[" * 200_000,
}


@pytest.mark.parametrize("code", [200, 404, 409, 500])
@pytest.mark.parametrize("name", REGISTRY_ANSWERS)
def test_an_answer_that_no_registry_gives_is_an_error_that_names_the_registry(name, code):
    class Answering(BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(code)
            self.end_headers()
            self.wfile.write(REGISTRY_ANSWERS[name])

        do_POST = do_PUT = do_GET  # noqa: N815 - names of the standard library's.

        def log_message(self, *_args):
            pass

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        client = RegistryClient(Registry(url=url))
        for ask in (lambda: client.register("s", "{}"), lambda: client.schema(1), client.compatibility):
            with pytest.raises(ReplicationError, match=url):
                ask()
        server.shutdown()


def test_what_the_registrys_client_raises_is_about_one_schema():
    class Client:
        def register(self, _subject, _schema):
            raise KeyError("4929")

    schemas = RegisteredSchemas(Client())
    needed = NeededSchemas("t", "t-key", "t-value", "", Schemas(None, _OURS), "s.public.t")
    with pytest.raises(Retryable):
        schemas.ids(needed, until=0.0)
    schemas.turn(0)
    with pytest.raises(CorruptInput, match="KeyError at"):
        schemas.ids(needed)


@pytest.mark.parametrize(
    "body", [2**31 - 1, [1, 2], {"a": 1}, True, None], ids=["number", "list", "map", "flag", "none"]
)
def test_s7_a_delivery_whose_body_is_neither_text_nor_binary_is_no_message(body):
    """A number became as many zeros: 417 bytes took 12 GB."""
    assert decode_received(Message(body=body, id="1").encode()) is None
