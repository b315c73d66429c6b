"""An edge as the bridge sees one: a real AMQP peer that sends batches.

`Edge` goes back and sends again as the protocol asks; `send` sends given messages once and tells what became of each.
"""

import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from headrace.amqp.transport import Delivery, Message
from headrace.batch import CONTENT_ENCODING, CONTENT_TYPE, Batch, encode
from headrace.position import Position
from tests.amqp.peer import Peer
from tests.edge.source_log import Row, of


def message(batch: Batch, **changes: Any) -> Message:
    """Return the AMQP message of a batch, with some of its fields changed."""
    properties, body = encode(batch)
    fields: dict[str, Any] = {
        "address": f"cdc/{batch.source}",
        "content_type": CONTENT_TYPE,
        "content_encoding": CONTENT_ENCODING,
        "durable": True,
        "properties": properties,
        "body": body,
    }
    return Message(**(fields | changes))


class Outcome(NamedTuple):
    """What became of a delivery: `accepted`, `released`, `rejected`, `modified`; or `closed`, for the whole link."""

    state: str
    condition: str = ""
    description: str = ""


_STATES = {
    Delivery.ACCEPTED: "accepted",
    Delivery.REJECTED: "rejected",
    Delivery.RELEASED: "released",
    Delivery.MODIFIED: "modified",
}


class Sender(Peer):
    """Sends messages to one address, in order, as credit allows; says what became of each. One connection, one thread."""

    def __init__(
        self, port: int, address: str, messages: Iterable[Message] = (), container_id: str = "test-edge"
    ) -> None:
        super().__init__(container_id, auto_settle=True)
        self._address = address
        self._lock = threading.Condition()
        self._waiting = list(messages)
        self._numbers: dict[str, int] = {}
        self._sent = 0
        self._sender: Any = None
        #: By the message's number.
        self.outcomes: dict[int, Outcome] = {}
        #: Why the link is gone; None while it is there.
        self.closed: Outcome | None = None
        self._connection = self.loop.connect(f"amqp://127.0.0.1:{port}", trusted=None, credentials={})
        self.start()

    @property
    def credit(self) -> int:
        """How many more messages may be sent now."""
        return self._sender.credit if self._sender is not None else 0

    @property
    def unsettled(self) -> int:
        """How many messages are sent and have no outcome."""
        return self._sent - len(self.outcomes)

    def put(self, *messages: Message) -> None:
        """Send more messages."""
        with self._lock:
            self._waiting.extend(messages)
        self.do(self._send)

    def wait(self, condition: Callable[["Sender"], bool], seconds: float = 60) -> bool:
        """Return whether the condition came to hold in time; it is looked at after every event."""
        with self._lock:
            return self._lock.wait_for(lambda: condition(self), seconds)

    def all(self, seconds: float = 90) -> list[Outcome]:
        """Return the outcomes of all messages, in order, once each has one; the link's end counts for those without."""
        assert self.wait(lambda _: bool(self.closed) or len(self.outcomes) == len(self._waiting), seconds), (
            self.outcomes
        )
        return [self.outcomes.get(number, self.closed) for number in range(len(self._waiting))]

    def close(self) -> None:
        """Close the connection and end."""
        self.do(self._connection.close)
        self.join()

    def ended(self) -> None:
        self._end(Outcome("closed", "", "connection lost"))

    def _end(self, outcome: Outcome) -> None:
        with self._lock:
            self.closed = self.closed or outcome
            self._lock.notify_all()

    def on_connection_opened(self, event: Any) -> None:
        self.loop.attach_sender(event.connection, self._address, "sender")

    def on_link_opened(self, event: Any) -> None:
        self._sender = event.link
        self._send()

    def on_sendable(self, event: Any) -> None:
        self._send()

    def _send(self) -> None:
        with self._lock:
            while self._sender is not None and self._sender.credit > 0 and self._sent < len(self._waiting):
                delivery = self._sender.send(self._waiting[self._sent])
                self._numbers[delivery.tag] = self._sent
                self._sent += 1
            self._lock.notify_all()

    def on_settled(self, event: Any) -> None:
        remote = event.delivery.remote
        condition = remote.condition if event.delivery.remote_state == Delivery.REJECTED else None
        with self._lock:
            self.outcomes[self._numbers[event.delivery.tag]] = Outcome(
                _STATES.get(event.delivery.remote_state, "none"),
                condition.name if condition else "",
                condition.description if condition else "",
            )
            self._lock.notify_all()

    def on_link_error(self, event: Any) -> None:
        condition = event.link.remote_condition
        self._end(Outcome("closed", condition.name, condition.description))
        event.connection.close()

    def on_transport_closed(self, event: Any) -> None:
        self.loop.stop()


def send(port: int, address: str, messages: Sequence[Message], seconds: float = 90) -> list[Outcome]:
    """Send messages once, in this order, over one connection; return what became of each."""
    sender = Sender(port, address, messages)
    try:
        return sender.all(seconds)
    finally:
        sender.close()


class Edge(threading.Thread):
    """Sends rows until all are accepted: goes back after a release, connects again, cuts its batches anew each time."""

    def __init__(
        self, port: int, source: str, rows: Sequence[Row], *, sizes: Callable[[], int], window: int = 16
    ) -> None:
        super().__init__(daemon=True)
        self.port, self._source, self._rows = port, source, rows
        self._sizes, self._window = sizes, window
        self._messages: dict[int, tuple[Message, int]] = {}
        self._halt = threading.Event()
        #: Rows beyond these are not sent before this says so: a test may do something in the middle.
        self.upto = len(rows)
        #: Rows that are acknowledged.
        self.accepted = 0
        #: Its present link; None before the first one.
        self.link: Sender | None = None
        #: How often it went back, for any reason.
        self.went_back = 0
        #: What ended it; empty while it runs, `done` when all is acknowledged.
        self.end = ""

    def stop(self) -> None:
        """End after the next step."""
        self._halt.set()
        self.join(60)

    def finish(self, seconds: float = 180) -> None:
        """Send the rest, and wait until all is acknowledged."""
        self.upto = len(self._rows)
        self.join(seconds)
        assert self.end == "done", self.end

    def run(self) -> None:
        while not self._halt.is_set() and self.accepted < len(self._rows):
            self.link = sender = Sender(self.port, f"cdc/{self._source}")
            try:
                self._talk(sender)
            finally:
                sender.close()
            if self.end:
                return
            self.went_back += 1
            self._halt.wait(0.02)
        self.end = "done" if self.accepted == len(self._rows) else "stopped"

    def _talk(self, sender: Sender) -> None:
        """Send from the oldest row that is not acknowledged, over one connection, until that fails."""
        messages, acknowledged = 0, 0
        at, ends = self.accepted, list[int]()
        while not self._halt.is_set() and self.accepted < len(self._rows):
            while at < (upto := self.upto) and len(ends) - acknowledged < self._window:
                rows = self._rows[at : min(upto, at + self._sizes())]
                follows = self._rows[at - 1].position if at else Position.start(rows[0].position.epoch)
                sender.put(message(of(self._source, rows, follows)))
                at += len(rows)
                ends.append(at)
                messages += 1
            number = acknowledged
            sender.wait(lambda it, number=number: number in it.outcomes or it.closed is not None, 0.1)
            outcome = sender.outcomes.get(number, sender.closed)
            if outcome is None:
                continue
            if outcome.state == "accepted":
                self.accepted = ends[number]
                acknowledged += 1
            elif outcome.state == "rejected" or outcome.condition == "amqp:resource-locked":
                self.end = f"{outcome.condition}: {outcome.description}"
                return
            elif outcome.state == "closed":
                return
            else:
                # Everything behind it will be released too; then go back on the same link.
                self.went_back += 1
                expected = len(ends)
                sender.wait(lambda it, expected=expected: len(it.outcomes) >= expected or it.closed is not None, 5)
                at, acknowledged = self.accepted, len(ends)


class Roaming(Edge):
    """An edge that knows several bridges, by objects with a `port`, and tries the next when one has nothing for it."""

    def __init__(
        self, bridges: Collection[Any], source: str, rows: Sequence[Row], *, accepted: int = 0, **options: Any
    ) -> None:
        self._bridges = bridges
        self._next = itertools.count()
        super().__init__(0, source, rows, **options)
        self.accepted = accepted

    @property
    def port(self) -> int:
        bridges = list(self._bridges)
        return int(bridges[next(self._next) % len(bridges)].port)

    @port.setter
    def port(self, _port: int) -> None:
        pass

    def _talk(self, sender: Sender) -> None:
        super()._talk(sender)
        if self.end.startswith("amqp:resource-locked"):
            self.end = ""
