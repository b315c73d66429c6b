"""Very many simulated edges in one thread: at a steady rate, each with a connection of its own. A process of its own.

The edge's own sender has a thread and a loop for each source, and costs 1 to 1.6 ms of CPU a small batch: on the machine of the
bridge that they feed, some hundreds of them fill a processor, and a measurement shows them instead of the bridge. These take a
third of that, with the making of the records. Arguments and answers
are those of tests/benchmarks/feeder.py with `steady`. An edge is served by whichever of the URLs takes its link; what is released
or lost is sent again, in order, from the oldest batch that is not accepted.
"""

import select
import selectors
import socket
import sys
import time
from collections import deque
from urllib.parse import urlsplit

from proton import Collector, Connection, Delivery, Endpoint, Event, Link, Transport

from edge.delivery.link import message
from edge.records.batcher import SealedBatch
from tests.benchmarks.feeder import Source

#: As long as an edge at most leaves a batch open while others are on the way, in seconds.
_LINGER_SECONDS = 0.05
#: Before an address is tried again, and before what was released is sent again, in seconds.
_PAUSE_SECONDS = 0.1
#: How long everything may take to be accepted once nothing is added any more, in seconds.
_DRAIN_SECONDS = 60.0


class Edge(Source):
    """One source, its connection and what of it is not accepted."""

    def __init__(self, urls: list[str], source: str, selector: selectors.BaseSelector) -> None:
        super().__init__(source)
        self._urls = deque(urls)
        self._name = source
        self._selector = selector
        self._waiting: deque[SealedBatch] = deque()
        #: How many of those, from the first on, were sent on this link; the number of the next delivery; the first one's.
        self._sent = self._next = self._first = 0
        self._resume_at = 0.0
        self._link: Link | None = None
        self._socket: socket.socket | None = None
        self.connect()

    @property
    def is_idle(self) -> bool:
        """Whether everything was sent and accepted."""
        return not self._waiting and not self.opened_at

    def connect(self) -> None:
        """Connect to the next address, and attach."""
        url = urlsplit(self._urls[0])
        self._urls.rotate(-1)
        assert url.hostname is not None
        assert url.port is not None
        self._socket = socket.create_connection((url.hostname, url.port), 10)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._collector, self._connection, self._transport = Collector(), Connection(), Transport()
        self._connection.collect(self._collector)
        self._connection.container, self._connection.hostname = f"bench {self._name}", url.hostname
        self._transport.bind(self._connection)
        self._connection.open()
        session = self._connection.session()
        session.open()
        self._link = session.sender(f"bench {self._name}")
        self._link.target.address = self._link.source.address = f"cdc/{self._name}"
        self._link.open()
        self._sent = 0
        self._selector.register(self._socket, selectors.EVENT_READ, self)
        self._write()

    def flush(self, now: float) -> None:
        """Close the open batch once an edge would, and send what may be sent."""
        if self.opened_at and (not self._waiting or now - self.opened_at >= _LINGER_SECONDS):
            self._waiting.extend(self.take())
        if self._link is None:
            if now >= self._resume_at:
                self.connect()
            return
        if now < self._resume_at or not self._link.state & Endpoint.REMOTE_ACTIVE:
            return
        sent = self._sent
        while self._sent < len(self._waiting) and self._link.credit > 0:
            delivery = self._link.delivery(str(self._next))
            delivery.context = self._first + self._sent
            self._link.send(message(self._waiting[self._sent], self._name, f"cdc/{self._name}").encode())
            self._link.advance()
            self._sent, self._next = self._sent + 1, self._next + 1
        if self._sent > sent:
            self._write()

    def tick(self, now: float) -> None:
        """Let Proton send a sign of life when it is due."""
        if self._link is not None and self._transport.tick(now) >= 0:
            self._write()

    def read(self) -> None:
        """Take what came."""
        assert self._socket is not None
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        self._transport.push(data)
        while (event := self._collector.peek()) is not None:
            self._on(event)
            self._collector.pop()
        if self._link is None:
            self._lose()
        else:
            self._write()

    def _on(self, event: Event) -> None:
        if event.type == Event.DELIVERY:
            self._settled(event.delivery)
        elif event.type in {Event.LINK_REMOTE_CLOSE, Event.CONNECTION_REMOTE_CLOSE}:
            self._link = None

    def _settled(self, delivery: Delivery) -> None:
        if not delivery.updated:
            return
        number, outcome = delivery.context, delivery.remote_state
        delivery.settle()
        if outcome == Delivery.ACCEPTED:
            # Those before it are: a bridge accepts in order.
            while self._waiting and self._first <= number:
                self._waiting.popleft()
                self._first, self._sent = self._first + 1, max(0, self._sent - 1)
        elif outcome == Delivery.REJECTED:
            raise SystemExit(f"{self._name}: a batch was rejected: {delivery.remote.condition}")
        elif number >= self._first:
            self._sent, self._resume_at = 0, time.monotonic() + _PAUSE_SECONDS

    def _write(self) -> None:
        assert self._socket is not None
        try:
            while (pending := self._transport.pending()) > 0:
                self._transport.pop(self._socket.send(self._transport.peek(pending)))
        except OSError:
            # Full, or lost: the next look sees which.
            return

    def _lose(self) -> None:
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
        self._socket = self._link = None
        self._resume_at = time.monotonic() + _PAUSE_SECONDS


class Crowd:
    """All edges of this process."""

    def __init__(self, urls: list[str], sources: list[str]) -> None:
        self._selector = selectors.DefaultSelector()
        self._edges = [Edge(urls, source, self._selector) for source in sources]
        self._tick_at = 0.0

    def steady(self, rate: int, seconds: int, transactions: int) -> float:
        """Send so many changes a second for each source, in so many transactions, the sources one after the other."""
        began = time.monotonic()
        for step in range(seconds * transactions):
            for number, edge in enumerate(self._edges):
                self.serve(began + (step + number / len(self._edges)) / transactions)
                edge.transaction(rate // transactions)
                edge.flush(time.monotonic())
        until = time.monotonic() + _DRAIN_SECONDS
        while not all(edge.is_idle for edge in self._edges):
            if time.monotonic() > until:
                raise SystemExit(f"not everything was accepted within {_DRAIN_SECONDS:.0f} s")
            self.serve(time.monotonic() + 0.01)
        return time.monotonic() - began

    def serve(self, until: float) -> None:
        """Serve all connections until a moment, at least once."""
        while True:
            now = time.monotonic()
            for key, _ in self._selector.select(max(0.0, min(until - now, 0.02))):
                key.data.read()
                key.data.flush(time.monotonic())
            now = time.monotonic()
            if now >= self._tick_at:
                self._tick_at = now + 0.1
                for edge in self._edges:
                    edge.flush(now)
                    edge.tick(now)
            if now >= until:
                return


def main(urls: str, sources: str, kind: str, rate: str, seconds: str, transactions: str) -> None:
    """Feed."""
    assert kind == "steady"
    crowd = Crowd(urls.split(","), sources.split(","))
    print("ready", flush=True)
    # Attached, and kept alive, until it is wanted.
    while not select.select([sys.stdin], [], [], 0)[0]:
        crowd.serve(time.monotonic() + 0.1)
    sys.stdin.readline()
    print(crowd.steady(int(rate), int(seconds), int(transactions)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
