"""The budget of memory (S7): 300 sources that send their most at the same time, at a real bridge and a real broker.

Their most is, for each, a large body that does not shrink, and small ones that unpack to the limit; some of them send what costs
most once it is decoded, or is as large as a message may be.
"""

import contextlib
import http.server
import random
import socket
import threading
import tracemalloc
from functools import partial

import msgspec
import pytest
from proton import Delivery

from edge.requests.service import Handler, KnownRequests, RequestService
from headrace.amqp.links import Accept, Release
from headrace.amqp.transport import Message
from headrace.batch import CONTENT_ENCODING, MOST_RECORDS
from headrace.position import Position
from headrace.requests import (
    LARGEST_REQUEST,
    decode_part,
    encode,
    new_request,
)
from headrace.status.answer import Answer, SourceStatus
from tests.amqp.peer import Peer
from tests.bridge.asked_edges import AskedTopics
from tests.bridge.bridge_file import bridge_file
from tests.hostile.attacked import WatchedConsole, most_memory
from tests.hostile.bodies import BATCHES, EPOCH, body, properties
from tests.integration.requests.deliveries import produce
from tests.kafka.reading import values
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]

#: What a bridge may need in all, in bytes.
_MEMORY = 512 << 20
_SOURCES = 300
#: How many of the ordinary sources' batches are written until it is seen enough: each one's first, and some that unpack to much.
_WRITTEN = 400


class Crowd(Peer):
    """A sender for each source, over a connection of its own; it sends its messages in order, again where they come back."""

    def __init__(self, port, messages):
        super().__init__("crowd", auto_settle=True)
        #: Properties and bodies by source, and how many of them are sent, and accepted or rejected.
        self.messages = messages
        self.sent, self.over = dict.fromkeys(messages, 0), dict.fromkeys(messages, 0)
        self.links, self.rejected, self.closed, self.lost = {}, {}, [], 0
        self._url = f"amqp://127.0.0.1:{port}"
        self._sources = list(messages)
        self._is_going = self._is_over = False
        self._deliveries = 0
        self._connect()
        self.start()

    def go(self):
        """Have all of them send at once."""

        def start():
            self._is_going = True
            for link in self.links.values():
                self.loop.after(0, partial(self._send, link))

        self.do(start)

    def close(self):
        def stop():
            self._is_over = True
            self.loop.stop()

        self.do(stop)
        self.join()

    def _connect(self):
        # One after the other: a bridge sends strangers off where too many are in their handshakes.
        if self._sources:
            self.loop.connect(self._url, trusted=None, credentials={}).source = self._sources.pop()

    def on_transport_closed(self, event):
        """Connect again: a peer that has much to do may be late with its sign of life."""
        source = event.connection.source
        if not self._is_over:
            self.lost += 1
            self.sent[source] = self.over[source]
            self._sources.append(source)
            self.loop.after(0.5, self._connect)

    def on_connection_opened(self, event):
        self._attach(event.connection)

    def _attach(self, connection):
        name = f"{connection.source}/{len(self.closed) + self.lost}"
        self.loop.attach_sender(connection, f"cdc/{connection.source}", name).fed = connection.source

    def on_link_opened(self, event):
        self.links[event.link.fed] = event.link
        self._connect()

    def on_link_error(self, event):
        """Attach again, as an edge does."""
        source = event.link.fed
        self.closed.append((source, event.link.remote_condition.name))
        self.sent[source] = self.over[source]
        self.loop.after(0.5, partial(self._attach, event.connection))

    def on_sendable(self, event):
        self._send(event.link)

    def _send(self, link):
        messages = self.messages[link.fed]
        while self._is_going and link.credit > 0 and self.sent[link.fed] < len(messages):
            number = self.sent[link.fed]
            given, content = messages[number]
            self.sent[link.fed] += 1
            self._deliveries += 1
            delivery = link.delivery(f"{self._deliveries}")
            delivery.number = number
            message = Message(
                body=content,
                inferred=True,
                content_encoding=CONTENT_ENCODING,
                properties=given | {"source": link.fed},
            )
            link.stream(message.encode())
            link.advance()

    def on_settled(self, event):
        link, delivery = event.link, event.delivery
        if delivery.remote_state == Delivery.RELEASED:
            self.sent[link.fed] = min(self.sent[link.fed], delivery.number)
            self.loop.after(0.2, partial(self._send, link))
            return
        if delivery.remote_state == Delivery.REJECTED:
            self.rejected[link.fed] = delivery.remote.condition.name
        self.over[link.fed] = max(self.over[link.fed], delivery.number + 1)


def batch(number, values, segments=None):
    """Return the properties and the body of a batch of records that follow `number` others, each of a transaction of its own."""
    last = number + len(values)
    follows = Position(EPOCH, number, 0) if number else Position.start(EPOCH)
    ends = {"follows": follows, "first": Position(EPOCH, number + 1, 0), "last": Position(EPOCH, last, 0)}
    content = body([[each, 0, 1] for each in range(number + 1, last + 1)], [b"k"] * len(values), values, {})
    return properties(count=len(values)) | {name: str(each) for name, each in ends.items()}, content


@pytest.fixture
def crowds():
    """Yield a function that starts a crowd."""
    made = []

    def start(*arguments):
        made.append(Crowd(*arguments))
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.mark.long
def test_300_sources_that_send_their_most_at_once_stay_within_the_budget_of_a_bridge(kafka, topic, outside, crowds):
    sources = {f"crowd/s{number}": [number] for number in range(_SOURCES)}
    bridge = outside(kafka.bootstrap, sources, topic=topic(_SOURCES), credit=256)
    noise = random.Random(7).randbytes(60_000_000)
    # given half a megabyte that does not shrink, and then 16 records of a megabyte in a body of some hundred bytes,
    ordinary = [batch(0, [noise[:500_000]]), *(batch(1 + 16 * number, [b"x" * 1_000_000] * 16) for number in range(2))]
    # or as many records as a batch may have, or headers, or messages of the largest size,
    costly = {
        "records": [batch(MOST_RECORDS * number, [b"x" * 90] * MOST_RECORDS) for number in range(3)],
        "headers": [BATCHES["headers without end (S7)"]] * 3,
        "size": [(properties(), noise)] * 2,
    }
    kinds = dict(zip(sources, ["records"] * 8 + ["headers"] * 8 + ["size"] * 3, strict=False))
    eventually(lambda: bridge.said().count("taken over at") >= _SOURCES, 120, saying="all sources are served")
    # (who is busy with the largest for long would lose its other connections)
    attackers = [source for source in kinds if kinds[source] != "size"]
    ordinary_sources = [source for source in sources if source not in kinds]
    groups = [crowds(bridge.port, dict.fromkeys(ordinary_sources, ordinary))]
    groups += [crowds(bridge.port, {source: costly[kinds[source]] for source in attackers})]
    groups += [crowds(bridge.port, {source: costly["size"] for source in kinds if kinds[source] == "size"})]
    eventually(lambda: sum(len(crowd.links) for crowd in groups) == _SOURCES, 120, saying="all are attached")
    # when all of them send at once
    for crowd in groups:
        crowd.go()

    eventually(lambda: sum(groups[0].over.values()) >= _WRITTEN, 150, saying="much of it is written")
    # then the bridge goes on, has refused what no edge sends, and has stayed within its budget
    memory = most_memory(bridge.pid)
    print(f"--- most memory: {memory >> 20} MB")
    assert [set(crowd.rejected.values()) for crowd in groups[:2]] == [set(), {"amqp:decode-error"}]
    assert {condition for crowd in groups for _, condition in crowd.closed} <= {"amqp:resource-limit-exceeded"}
    assert memory < _MEMORY
    assert bridge.terminate() == 0


def test_requests_that_an_edge_is_sent_at_once_cost_it_and_its_bridge_bounded_memory(
    database, edges, outside, kafka, topic
):
    """S8, measured: the largest requests of each kind, more than either may hold, to an edge as a process."""
    topics = AskedTopics(topic)
    bridge = outside(kafka.bootstrap, {"jakarta/bank": [0]}, topic=topic(), more=topics.section)
    database.execute("create table t (id int primary key)")
    kinds = ["status", "doctor", "verify", "snapshot"]
    edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", rest=f"[requests]\nallow = {kinds}\n")
    edge.init()
    edge.start()
    largest = {"x": "y" * (LARGEST_REQUEST - 1000)}
    requests = [new_request("jakarta/bank", kind, "ann", 300, largest) for _ in range(150) for kind in kinds]
    produce(kafka.bootstrap, topics.names.requests, [(b"jakarta/bank", encode(each)) for each in requests])
    ids = {each.id for each in requests}
    eventually(
        lambda: ids <= {decode_part(each).id for each in values(kafka.bootstrap, topics.names.answers)},
        300,
        every=1,
        saying="each has an answer",
    )
    edge_memory, bridge_memory = most_memory(edge.process.pid), most_memory(bridge.pid)
    print(f"--- most memory: edge {edge_memory >> 20} MB, bridge {bridge_memory >> 20} MB")
    assert edge_memory < _MEMORY // 2
    assert bridge_memory < _MEMORY
    assert edge.terminate() == bridge.terminate() == 0


class _Bridge(http.server.BaseHTTPRequestHandler):
    """A bridge's endpoint, of 300 sources that say as much as a bridge takes of them."""

    status = b""

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", str(len(self.status)))
        self.end_headers()
        self.wfile.write(self.status)

    def log_message(self, *_):
        pass


def test_visitors_and_sources_that_send_their_most_cost_a_console_bounded_memory(tmp_path):
    """As many visitors as it serves send what is refused and never end, and others ask for pages that they do not read."""
    sources = [f"crowd/s{number}" for number in range(_SOURCES)]
    statuses = [
        SourceStatus(source=each, state="serving", warnings=["w" * 2000] * 20, reason="r" * 2000, position="p" * 40)
        for each in sources
    ]
    _Bridge.status = msgspec.json.encode(
        Answer(part="bridge", running=True, version="0.2.0", ready=True, sources=statuses)
    )
    endpoint = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Bridge)
    threading.Thread(target=endpoint.serve_forever, daemon=True).start()
    metrics = f"127.0.0.1:{endpoint.server_address[1]}"
    file = bridge_file(
        tmp_path, "127.0.0.1:1", {each: [n] for n, each in enumerate(sources)}, topic="t", metrics=metrics
    )
    console, visitors = WatchedConsole(tmp_path, file), []
    try:
        eventually(lambda: sources[0] in console.page(), saying="it shows all sources")
        visitors += console.attack()
        for number in range(400):
            visitors.append(socket.create_connection(("127.0.0.1", console.port)))
            begun = b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"".join(
                b"a%d: %b\r\n" % (n, b"x" * 1000) for n in range(60)
            )
            wanted = b"GET / HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %b\r\n\r\n" % console.token.encode()
            with contextlib.suppress(OSError):
                visitors[-1].sendall(begun if number % 2 else wanted * 50)
        assert sources[0] in eventually(console.page, 120, saying="others are served")
        memory = most_memory(console.process.pid)
        print(f"--- most memory: {memory >> 20} MB")
        assert memory < _MEMORY // 2
    finally:
        for each in visitors:
            each.close()
        console.close()
        endpoint.shutdown()


def test_a_flood_of_the_largest_requests_costs_an_edge_bounded_memory(tmp_path):
    """S8: measured, where others count. Two handle, eight of a kind wait, and what is refused has an answer of some bytes."""
    release = threading.Event()
    handlers = {
        kind: Handler(lambda _request: (release.wait(60) and 0, "x" * 1_000_000)) for kind in ("status", "verify")
    }
    service = RequestService("a/one", handlers, handlers, KnownRequests(tmp_path))
    largest = {"x": "y" * (LARGEST_REQUEST - 1000)}
    bodies = (encode(new_request("a/one", kind, "ann", 60, largest)) for _ in range(300) for kind in handlers)
    tracemalloc.start()
    try:
        outcomes = [type(service.receive(body)) for body in bodies]
        release.set()
        eventually(lambda: service.answers.is_full, saying="answers wait")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        service.stop(30)
    # Of 157 MB that came a few requests are held, and the answers that are made of them.
    assert set(outcomes) <= {Accept, Release}
    assert peak < 48 << 20, f"{peak >> 20} MB"
