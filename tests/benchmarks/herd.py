"""Edges that come back in the same second, over a distance: the time until all are attached and have credit.

`python -m tests.benchmarks.herd --edges 1000`: a bridge's real receiver with mutual TLS in a process of its own, and edges in one
thread, each with a connection of its own whose every answer takes a round trip. One that is refused comes again after the pause
of an edge's. No Kafka: sources have credit from the start.
"""

import heapq
import itertools
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
from proton import SASL, SSL, Collector, Connection, Event, SSLDomain, Transport

from bridge.amqp.receiver import Receiver
from bridge.model.ports import Committed
from bridge.source.session import Session
from headrace.certificates.command import Authority
from headrace.configuration.bridge import Interconnect
from headrace.process import PROCESS, raise_open_files
from headrace.waiting import Backoff

_LONGEST_SECONDS = 900.0


def _name(number: int) -> str:
    return f"herd/s{number}"


def serve(folder: str, edges: int) -> None:
    """Be the bridge, until nobody reads what it prints."""
    raise_open_files()
    files = Path(folder)
    own = files / "bridge.pem"
    interconnect = Interconnect(
        listen="127.0.0.1:0",
        authority=files / "authority.pem",
        certificate=own,
        key=own.with_suffix(".key"),
        identities={"edge": ["herd/*"]},
    )
    sources = {_name(number): None for number in range(edges)}
    receiver = Receiver(interconnect, sources, "herd")
    receiver.start()
    for source in sources:
        receiver.grant(Session(source, 1, Committed(None, "", "", {}), lambda _session: None))
    PROCESS.begin()
    print(receiver.port, flush=True)
    sys.stdin.readline()
    print(time.process_time(), flush=True)
    receiver.stop(2.0)


class Newcomer:
    """An edge that wants to attach."""

    def __init__(self, herd: "Herd", number: int) -> None:
        self._herd, self._source = herd, _name(number)
        self._backoff = Backoff(first=0.2, longest=10.0)
        self._socket: socket.socket | None = None
        self.is_attached = False

    def connect(self) -> None:
        """Connect, and ask for a link."""
        self._herd.attempts += 1
        self._socket = socket.socket()
        self._socket.setblocking(False)
        self._socket.connect_ex(("127.0.0.1", self._herd.port))
        self._collector, self._connection, self._transport = Collector(), Connection(), Transport()
        self._connection.collect(self._collector)
        self._connection.container, self._connection.hostname = self._source, "localhost"
        self._connection.user = "edge"
        SASL(self._transport).allowed_mechs("EXTERNAL")
        SSL(self._transport, self._herd.domain).peer_hostname = "localhost"
        self._transport.bind(self._connection)
        self._connection.open()
        session = self._connection.session()
        session.open()
        self._link = session.sender(self._source)
        self._link.target.address = self._link.source.address = f"cdc/{self._source}"
        self._link.open()
        self._herd.watch(self._socket, self)
        # A connection takes a round trip, too.
        self._herd.later(self._write)

    def read(self) -> None:
        """Take what came, once it has travelled."""
        assert self._socket is not None
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
        else:
            transport = self._transport
            self._herd.later(lambda: self._take(transport, data))

    def _take(self, transport: Transport, data: bytes) -> None:
        if transport is not self._transport or self._socket is None:
            return
        try:
            transport.push(data)
        except Exception:  # noqa: BLE001 - Proton's, of a connection that is over.
            self._lose()
            return
        while (event := self._collector.peek()) is not None:
            if event.type in {Event.LINK_REMOTE_CLOSE, Event.CONNECTION_REMOTE_CLOSE, Event.TRANSPORT_ERROR}:
                self._lose()
                return
            self._collector.pop()
        self.is_attached = self._link.credit > 0
        self._write()

    def tick(self, now: float) -> None:
        """Send a sign of life when it is due."""
        if self.is_attached and self._transport.tick(now) >= 0:
            self._write()

    def _write(self) -> None:
        if self._socket is None:
            return
        try:
            while (pending := self._transport.pending()) > 0:
                self._transport.pop(self._socket.send(self._transport.peek(pending)))
        except BlockingIOError:
            self._herd.later(self._write)
        except OSError:
            self._lose()

    def _lose(self) -> None:
        if self._socket is not None:
            self._herd.forget(self._socket)
            self._socket.close()
            self._socket, self.is_attached = None, False
            self._herd.later(self.connect, self._backoff.pause())


class Herd:
    """All edges of this process."""

    def __init__(self, folder: Path, port: int, edges: int, distance: float) -> None:
        self.port, self._distance, self.attempts = port, distance, 0
        self.domain = SSLDomain(SSLDomain.MODE_CLIENT)
        self.domain.set_credentials(str(folder / "edge.pem"), str(folder / "edge.key"), None)
        self.domain.set_trusted_ca_db(str(folder / "authority.pem"))
        self._selector = selectors.DefaultSelector()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._edges = [Newcomer(self, number) for number in range(edges)]

    def watch(self, connection: socket.socket, edge: Newcomer) -> None:
        """Have an edge read what comes."""
        self._selector.register(connection, selectors.EVENT_READ, edge)

    def forget(self, connection: socket.socket) -> None:
        """Watch a connection no more."""
        self._selector.unregister(connection)

    def later(self, step: Callable[[], None], seconds: float | None = None) -> None:
        """Take a step after some seconds, or a round trip."""
        at = time.monotonic() + (self._distance if seconds is None else seconds)
        heapq.heappush(self._later, (at, next(self._numbers), step))

    @property
    def attached(self) -> int:
        """How many edges have credit."""
        return sum(edge.is_attached for edge in self._edges)

    def run(self) -> float:
        """Have all come within a second; return the seconds until all are attached."""
        for number, edge in enumerate(self._edges):
            self.later(edge.connect, number / len(self._edges))
        began = look_at = time.monotonic()
        while True:
            for key, _ in self._selector.select(0.005):
                key.data.read()
            now = time.monotonic()
            while self._later and self._later[0][0] <= now:
                heapq.heappop(self._later)[2]()
            if now >= look_at:
                look_at = now + 0.25
                for edge in self._edges:
                    edge.tick(now)
                if self.attached == len(self._edges):
                    return now - began
                if now - began > _LONGEST_SECONDS:
                    raise SystemExit(f"{self.attached} of {len(self._edges)} attached after {_LONGEST_SECONDS:.0f} s")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--edges", default=1000, show_default=True)
@click.option("--distance", default=0.2, show_default=True, help="A round trip, in seconds.")
@click.option("--serve", "folder", hidden=True)
def main(edges: int, distance: float, folder: str | None) -> None:
    """Measure, and print what was seen."""
    if folder is not None:
        serve(folder, edges)
        return
    raise_open_files()
    with tempfile.TemporaryDirectory() as name:
        authority = Authority(Path(name))
        authority.server("bridge", ["localhost"])
        authority.client("edge")
        command = [sys.executable, "-m", "tests.benchmarks.herd", "--serve", name, "--edges", str(edges)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as bridge:
            assert bridge.stdin is not None
            assert bridge.stdout is not None
            herd = Herd(Path(name), int(bridge.stdout.readline()), edges, distance)
            seconds, own = herd.run(), time.process_time()
            bridge.stdin.write("\n")
            bridge.stdin.flush()
            cpu = float(bridge.stdout.readline())
            print(
                f"{edges} edges over {distance * 1000:.0f} ms: all attached after {seconds:.1f} s, {herd.attempts} connections; "
                f"CPU: bridge {cpu:.1f} s, edges {own:.1f} s"
            )


if __name__ == "__main__":
    main()
