"""The links of requests on an edge's connection, with a real AMQP peer in the bridge's place; no servers."""

from typing import Any

import pytest

from edge.requests import links
from edge.requests.service import Handler, KnownRequests, RequestService
from headrace.amqp.transport import Condition, Message
from headrace.requests import Collector, decode_part, encode, new_request
from tests.amqp.interconnect_ends import SOURCE, Edge, at, sealed
from tests.amqp.peer import Listener
from tests.rules.waiting import eventually


class Bridge(Listener):
    """Takes batches, sends requests as the edge gives credit, and keeps the parts of answers."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.requests: Any = None
        #: Refuses the links of requests while it is set.
        self.refuses = False
        #: Outcomes of the next parts.
        self.outcomes: list[str] = []
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        self.start()

    def ask(self, body: bytes) -> Any:
        self.do(lambda: self.requests.send(Message(body=body, inferred=True)))

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        if not self.refuses or (link.remote_target.address or "").startswith("cdc/"):
            link.source.copy(link.remote_source)
            link.target.copy(link.remote_target)

    def on_link_opened(self, event: Any) -> None:
        link = event.link
        if self.refuses and not (link.remote_target.address or "").startswith("cdc/"):
            link.condition = Condition("amqp:unauthorized-access", "the policy does not allow it")
            link.close()
        elif link.is_sender:
            assert link.source.address == f"requests/{SOURCE}"
            self.requests = link
        else:
            link.flow(20)

    def on_message(self, event: Any) -> None:
        if event.link.target.address.startswith("answers/"):
            outcome = self.outcomes.pop(0) if self.outcomes else "accept"
            if outcome == "drop":
                event.connection.transport.close_tail()
                event.connection.transport.close_head()
                return
            self.parts.append((outcome, event.message, decode_part(bytes(event.message.body))))
            event.delivery.update({"accept": 0x24, "release": 0x26}[outcome])
        else:
            event.delivery.update(0x24)
        event.delivery.settle()
        event.link.flow(1)


@pytest.fixture
def service(tmp_path):
    handler = Handler(lambda request: (0, "x" * request.arguments["characters"]))
    request_service = RequestService(SOURCE, ["status"], {"status": handler}, KnownRequests(tmp_path))
    yield request_service
    request_service.stop(30)


def test_requests_are_answered_next_to_batches_over_lost_connections_and_refused_links(ends, service, monkeypatch):
    monkeypatch.setattr(links, "ATTACH_AGAIN_SECONDS", 0.1)
    monkeypatch.setattr(links, "_SEND_AGAIN_SECONDS", 0.1)
    bridge = ends(Bridge)
    bridge.refuses = True
    edge = ends(Edge, f"amqp://127.0.0.1:{bridge.port}", requests=service)
    # An interconnect that does not take the links of requests stops nothing.
    edge.put(sealed(1, 5))
    edge.acknowledged(at(5))
    bridge.refuses = False
    eventually(lambda: bridge.requests is not None and bridge.requests.credit == 8, saying="the edge gives credit")

    # Parts that were given back, or lost with the connection, come again.
    bridge.outcomes = ["accept", "release", "drop"]
    request = new_request(SOURCE, "status", "ann", 60, {"characters": 100_000})
    bridge.ask(encode(request))
    eventually(lambda: service.answers.is_empty and len(bridge.parts) > 4, saying="all parts are accepted")
    collector = Collector(request)
    values = [collector.add(part) for outcome, _, part in bridge.parts if outcome == "accept"]
    assert [content.data for content in values if content is not None] == ["x" * 100_000]
    message = bridge.parts[0][1]
    assert (message.correlation_id, message.address) == (request.id, f"answers/{SOURCE}")
    assert message.expiry_time > request.deadline / 1000

    # More of them than the edge handles at a time, of another source, and none at all; batches go on.
    eventually(lambda: bridge.requests.credit == 8)
    asked = [new_request(SOURCE, "status", "ann", 60, {"characters": 1}) for _ in range(8)]
    for each in asked:
        bridge.ask(encode(each))
    eventually(lambda: {part.id for _, _, part in bridge.parts} >= {each.id for each in asked})
    eventually(lambda: bridge.requests.credit == 8, saying="the credit comes back")
    edge.put(sealed(6, 9))
    edge.acknowledged(at(9))
