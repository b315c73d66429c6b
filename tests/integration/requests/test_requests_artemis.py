"""Requests and answers through a broker that stores them, over TLS, with who may send and receive what."""

from contextlib import closing

import pytest

from bridge.requests.worker import AskingTopics
from edge.requests.service import Handler, KnownRequests, RequestService
from headrace import requests
from headrace.configuration.bridge import Kafka
from headrace.requests import new_request
from tests.amqp.interconnect_ends import Edge, pem, sealed
from tests.bridge.asked_edges import SOURCE, AskedTopics
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]


@pytest.fixture
def service(tmp_path):
    handlers = {"status": Handler(lambda request: (0, "x" * request.arguments["characters"]))}
    request_service = RequestService(SOURCE, ["status"], handlers, KnownRequests(tmp_path))
    yield request_service
    request_service.stop(30)


def test_an_edge_is_asked_through_a_broker(kafka, topic, inside, ends, artemis, service):
    topics = AskedTopics(topic)
    secure = "".join(f'{name} = "{path}"\n' for name, path in pem(artemis.certificates, "bridge").items())
    bridge = inside(kafka.bootstrap, {SOURCE: [0]}, topic=topic(), url=artemis.url, secure=secure, more=topics.section)
    bridge.serves(SOURCE)
    edge = ends(Edge, artemis.url, requests=service, **pem(artemis.certificates, "jakarta-bank"))
    with closing(AskingTopics(Kafka(bootstrap=kafka.bootstrap), topics.names)) as wire:
        content = requests.ask(wire, new_request(SOURCE, "status", "ann@hq", 60, {"characters": 100_000}))
        assert len(content.data) == 100_000

        # The broker keeps a request for an edge that is away.
        edge.close()
        wire.send(
            SOURCE, requests.encode(waiting := new_request(SOURCE, "status", "ann@hq", 60, {"characters": 1})), 30
        )
        eventually(lambda: bridge.bridge.requests.pending.addresses() == [], saying="the broker has it")
        again = ends(Edge, artemis.url, requests=service, **pem(artemis.certificates, "jakarta-bank"))
        collector = requests.Collector(waiting)
        eventually(lambda: any(collector.add(requests.decode_part(value)) for value in wire.read(0.5)))

        # And from another source's edge nothing of it is to be had.
        foreign = ends(Edge, artemis.url, requests=service, **pem(artemis.certificates, "london-bank"))
        foreign.put(sealed(1, 1))
        assert "does not let this edge send" in foreign.problem().message
    again.close()
