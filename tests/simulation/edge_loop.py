"""Replaces Proton's loop at an edge: calls the real connection's handlers with what the simulated network brings."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from proton import Endpoint

from tests.simulation.network import Network, Parcel, Sender, Wire
from tests.simulation.scheduler import Task
from tests.simulation.world import world

#: The network of the present run.
present: dict[str, Network] = {}


def parcel(batch: Any, _source: str, _address: str) -> Parcel:
    """Stand in for `message`."""
    return Parcel(batch.properties, "zstd", batch.body)


class EdgeLink:
    """The edge's end of its link; events are put into its loop."""

    def __init__(self, loop: "EdgeLoop", url: str, address: str) -> None:
        self._loop = loop
        self.credit = 0
        self.state = Endpoint.LOCAL_ACTIVE | Endpoint.REMOTE_UNINIT
        self.remote_condition: Any = None
        self.is_sender = True
        self.target = self.remote_target = SimpleNamespace(address=address)
        self.connection = SimpleNamespace(
            close=self._close_connection, state=Endpoint.REMOTE_ACTIVE, remote_condition=None
        )
        network = present["network"]
        self.wire = Wire(network, f"{address} to {url}")
        self.wire.on_lost[0] = self._lost
        world.scheduler.current.process.on_death.append(lambda: self.wire.cut(quiet=0))  # type: ignore[union-attr]
        self._sender = Sender(self.wire, address)
        self._sender.edge = self
        far = self._far = network.at.get(url)
        if far is None or network.scheduler.now < network.unreachable_until:
            self.wire.alive = False
            network.scheduler.after(network.travel(), self._lost)
        else:
            self.wire.send(1, self._attach)

    def _attach(self) -> None:
        self._far.attach(self._sender)

    # What the edge does.

    def send(self, message: Parcel, tag: str) -> None:
        world.scheduler.check()
        self.credit -= 1
        self.wire.send(1, lambda: self._far.transfer(self._sender, tag, message))

    def drained(self) -> int:
        return 0

    def close(self) -> None:
        world.scheduler.check()
        self.wire.send(1, lambda: self._far.detach(self._sender))

    def _close_connection(self) -> None:
        world.scheduler.check()

        def answered() -> None:
            self.wire.cut(quiet=0)
            self._loop.event("on_transport_closed", SimpleNamespace(connection=self.connection))

        self.wire.send(1, lambda: self.wire.send(0, answered))

    # What comes.

    def opened(self) -> None:
        self.state = Endpoint.LOCAL_ACTIVE | Endpoint.REMOTE_ACTIVE
        self._loop.event("on_link_remote_open", SimpleNamespace(link=self))

    def flowed(self, count: int) -> None:
        self._loop.event(
            "on_link_flow", SimpleNamespace(link=self), lambda: setattr(self, "credit", self.credit + count)
        )

    def settled(self, tag: str, state: Any, condition: Any) -> None:
        delivery = SimpleNamespace(
            updated=True,
            tag=tag,
            remote_state=state,
            settled=True,
            remote=SimpleNamespace(condition=condition),
            settle=lambda: None,
        )
        self._loop.event("on_delivery", SimpleNamespace(delivery=delivery, link=self))

    def closed(self, condition: Any) -> None:
        self.remote_condition = condition
        self.state = Endpoint.LOCAL_ACTIVE | Endpoint.REMOTE_CLOSED
        self._loop.event("on_link_remote_close", SimpleNamespace(link=self))

    def _lost(self) -> None:
        self.state = Endpoint.LOCAL_ACTIVE | Endpoint.REMOTE_CLOSED
        transport = SimpleNamespace(
            condition=SimpleNamespace(name="amqp:connection:framing-error", description="cut"),
            close_head=lambda: None,
            close_tail=lambda: None,
        )
        self._loop.event("on_transport_error", SimpleNamespace(transport=transport, connection=self.connection))
        self._loop.event("on_transport_closed", SimpleNamespace(connection=self.connection, transport=transport))


class _Connection:
    """The connection of a loop, which has one link: its state is the link's."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.link: EdgeLink | None = None

    @property
    def state(self) -> int:
        return int(self.link.connection.state) if self.link is not None else Endpoint.REMOTE_UNINIT

    def close(self) -> None:
        if self.link is not None:
            self.link.connection.close()


class EdgeLoop:
    """The loop of one connection."""

    def __init__(self, connection: Any, name: str) -> None:
        self._connection = connection
        self._events: deque[tuple[str, Any, Callable[[], None] | None]] = deque()
        self._waiters: deque[Task] = deque()
        self._stopped = False
        self._woken = False
        self._link: EdgeLink | None = None

    def run(self) -> None:
        scheduler = world.scheduler
        self._connection.on_begin()
        while not self._stopped:
            if not self._events:
                scheduler.wait(self._waiters, None)
            scheduler.point()
            while self._events and not self._stopped:
                name, event, before = self._events.popleft()
                if before is not None:
                    before()
                if callable(event):
                    event()
                else:
                    getattr(self._connection, name)(event)
                scheduler.point()

    def event(self, name: str, event: Any, before: Callable[[], None] | None = None) -> None:
        self._events.append((name, event, before))
        world.scheduler.wake(self._waiters)

    def connect(self, url: str, **_: Any) -> "_Connection":
        self._outgoing = _Connection(url)
        return self._outgoing

    def attach_sender(self, connection: "_Connection", address: str, _name: str) -> EdgeLink:
        self._link = connection.link = EdgeLink(self, connection.url, address)
        return self._link

    def after(self, seconds: float, step: Callable[[], None]) -> None:
        world.scheduler.after(seconds, lambda: self.event("timer", step))

    def stop(self) -> None:
        self._stopped = True
        world.scheduler.wake(self._waiters)

    def wake(self) -> None:
        world.scheduler.point()
        if not self._woken:
            self._woken = True
            self.event("wake", self._wake_up)

    def _wake_up(self) -> None:
        self._woken = False
        self._connection.on_wake()

    def close(self) -> None:
        if self._link is not None:
            self._link.wire.cut(quiet=0)
        self._stopped = True
