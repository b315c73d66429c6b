"""Replaces Proton's loop at edges and bridges: calls the real handlers with what the simulated network brings."""

from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from headrace.errors import ReplicationError
from tests.simulation.amqp_ends import Connection, Link
from tests.simulation.network import Network, Wire
from tests.simulation.scheduler import Task
from tests.simulation.world import world

#: How likely a turn ends although more has come.
_TURN_ENDS = 0.5
#: The network of the present run.
present: dict[str, Network] = {}


class Events:
    """What happens at the ends of one process, in order, and what handles it at once: a router's, or the base of a loop."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self._steps: deque[Callable[[], None]] = deque()
        self._happened: deque[tuple[str, Any]] = deque()
        self._handlers: list[Any] = []
        self._busy = False
        # What is written behind all else of a turn.
        self._last: list[Callable[[], None]] = []
        #: Connections whose end is still to be handled.
        self.ending: list[Connection] = []

    def put(self, step: Callable[[], None]) -> None:
        """Have a step taken."""
        self._steps.append(step)
        if not self._busy:
            self._busy = True
            while self._steps:
                self._steps.popleft()()
                self.handle()
            self.end_turn()
            self._busy = False

    def write_last(self, step: Callable[[], None]) -> None:
        """Have a step taken at the end of the present turn."""
        self._last.append(step)

    def end_turn(self) -> None:
        """Write what is written last."""
        last, self._last = self._last, []
        for step in last:
            step()

    def happen(self, name: str, connection: Connection, link: Any = None, delivery: Any = None) -> None:
        """Have the handlers' methods of this name called, after those of what happened before."""
        event = SimpleNamespace(connection=connection, link=link, delivery=delivery, session=None)
        self._happened.append((name, event))

    def handle(self) -> None:
        """Call the handlers."""
        if not self._handlers:
            self._handlers = list(_with_children(self._handler))
        while self._happened:
            name, event = self._happened.popleft()
            event.transport = event.connection.transport
            try:
                for each in self._handlers:
                    if (method := getattr(each, name, None)) is not None:
                        method(event)
            except (ReplicationError, OSError):
                raise
            except Exception as error:
                if not hasattr(self._handler, "refused"):
                    raise
                self._handler.refused(event, error)
            if name == "on_transport_closed":
                event.connection.transport = None
                self.ending.remove(event.connection)

    def accept(self, far: Connection) -> None:
        """Take a connection that comes."""
        connection = Connection(self, far.wire, 1)
        connection.far, far.far = far, connection

        def bound() -> None:
            if connection.wire.alive:
                self.happen("on_connection_bound", connection)

        self.put(bound)


def _with_children(handler: Any) -> Iterator[Any]:
    yield handler
    for each in getattr(handler, "handlers", ()):
        yield from _with_children(each)


class _Acceptor:
    """Where connections come in."""

    def __init__(self, url: str, loop: "Loop", port: int) -> None:
        self._url, self._loop, self.port = url, loop, port
        present["network"].at[url] = loop

    def close(self) -> None:
        """Let none in any more."""
        if present["network"].at.get(self._url) is self._loop:
            del present["network"].at[self._url]


class Loop(Events):
    """headrace.amqp.transport.Loop, in a task of its process."""

    def __init__(self, handler: Any, name: str) -> None:
        super().__init__(handler)
        self._name = name
        self._waiters: deque[Task] = deque()
        self._stopped = self._woken = False
        self._acceptor: _Acceptor | None = None
        self._connections: list[Connection] = []
        #: Counts of handshakes are real connections' affair.
        self.sockets = SimpleNamespace(expect=lambda _transport: None, know=lambda _transport: None)
        world.scheduler.current.process.on_death.append(self._die)  # type: ignore[union-attr]

    def put(self, step: Callable[[], None]) -> None:
        """Have a step taken, in the loop's task."""
        self._steps.append(step)
        world.scheduler.wake(self._waiters)

    def run(self) -> None:
        """Run until it is stopped."""
        scheduler = world.scheduler
        if (begin := getattr(self._handler, "on_begin", None)) is not None:
            begin()
        self.handle()
        self.end_turn()
        while not self._stopped:
            if not self._steps:
                scheduler.wait(self._waiters, None)
            scheduler.point()
            while self._steps and not self._stopped:
                self._steps.popleft()()
                self.handle()
                # What has come meanwhile is of the same turn, or of the next one.
                if self._stopped or not self._steps or scheduler.random.random() < _TURN_ENDS:
                    self.end_turn()
                scheduler.point()

    def connect(self, url: str, **_: Any) -> Connection:
        """Connect to whoever is there at a URL."""
        network = present["network"]
        wire = Wire(network, f"{self._name} to {url}")
        connection = Connection(self, wire, 0)
        connection.container = self._name
        self._connections.append(connection)
        there = network.at.get(url)
        if there is None or network.scheduler.now < network.unreachable_until:
            wire.alive = False
            network.scheduler.after(network.travel(), lambda: self.put(connection.lost))
        else:
            wire.send(1, lambda: there.accept(connection))
        connection.open()
        return connection

    def listen(self, host: str, port: int) -> _Acceptor:
        """Let connections in."""
        self._acceptor = _Acceptor(f"amqp://{host}:{port}", self, port)
        return self._acceptor

    def accept(self, far: Connection) -> None:
        """Take a connection that comes."""
        super().accept(far)
        assert far.far is not None
        self._connections = [each for each in self._connections if each.transport is not None]
        self._connections.append(far.far)

    def attach_sender(self, connection: Connection, address: str, name: str) -> Link:
        """Attach a sender."""
        link = Link(connection, name, is_sender=True)
        link.target.address = address
        link.open()
        return link

    def attach_receiver(self, connection: Connection, address: str, name: str) -> Link:
        """Attach a receiver."""
        link = Link(connection, name, is_sender=False)
        link.source.address = address
        link.open()
        return link

    def after(self, seconds: float, step: Callable[[], None]) -> None:
        """Take a step later."""
        world.scheduler.after(seconds, lambda: self.put(step))

    def stop(self) -> None:
        """End the run."""
        self._stopped = True
        world.scheduler.wake(self._waiters)

    def wake(self) -> None:
        """Have `on_wake` called."""
        world.scheduler.point()
        if not self._woken:
            self._woken = True
            self.put(self._wake_up)

    def _wake_up(self) -> None:
        self._woken = False
        self._handler.on_wake()

    def close(self) -> None:
        """Leave nothing behind."""
        self._die()
        self._stopped = True

    def _die(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
        for each in self._connections:
            each.wire.cut(quiet=each.side)
