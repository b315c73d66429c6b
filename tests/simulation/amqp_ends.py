"""AMQP as a program sees it: the ends of connections, links and deliveries, with the names that Proton's have.

What one end does is a frame, which reaches the other end's loop (amqp_loop.py) a little later, in order, unless the wire is cut
before. As in Proton: credit is what the receiver gave, less what was read; a delivery is on its link until it is settled; what is
on a connection that is lost has no outcome; and that a link is closed is written behind all else of a turn. Not here: sessions,
flow by bytes, deliveries that are aborted, TLS.
"""

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from proton import Condition, Endpoint

from tests.simulation.network import Wire
from tests.simulation.world import world

_numbers = itertools.count(1)
_LOST = Condition("amqp:connection:framing-error", "cut")


class Terminus:
    """The source or the target of a link."""

    def __init__(self, address: str | None = None) -> None:
        self.address = address

    def copy(self, other: "Terminus") -> None:
        """Take another one's address."""
        self.address = other.address


class Transport:
    """What there is to a connection below AMQP: nobody is authenticated."""

    authenticated = encrypted = False

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self.condition: Any = None
        self.frames_input = 0
        self.idle_timeout = self.max_frame_size = self.channel_max = 0

    def require_auth(self, _required: bool) -> None:
        """Nobody is asked for it."""

    def sasl(self) -> Any:
        """Return what takes any mechanism."""
        return SimpleNamespace(allowed_mechs=lambda _mechanisms: None)

    def close_tail(self) -> None:
        """Read no more."""
        self._connection.abort()

    close_head = close_tail


class Connection:
    """One end of a connection."""

    def __init__(self, loop: Any, wire: Wire, side: int) -> None:
        self.loop, self.wire, self.side = loop, wire, side
        self.container = self.remote_container = ""
        self.condition: Any = None
        self.remote_condition: Any = None
        self.state = Endpoint.LOCAL_UNINIT | Endpoint.REMOTE_UNINIT
        self.transport: Transport | None = Transport(self)
        self.links: list[Link] = []
        self.far: Connection | None = None
        self.url = SimpleNamespace(host=wire.name, port=5672)
        #: Whether a frame to the other side may be overtaken by a later one.
        self.is_unordered = False
        self._hash = next(_numbers)
        wire.on_lost[side] = lambda: loop.put(self.lost)

    def __hash__(self) -> int:
        return self._hash

    def send(self, step: Callable[["Connection"], None], *, overtaking: bool = False) -> None:
        """Have a step taken at the other end."""
        world.scheduler.check()
        if self.transport is None:
            return

        def arrive() -> None:
            far = self.far
            if far is not None:
                far.loop.put(lambda: far.take(step))

        self.wire.send(1 - self.side, arrive, overtaking=overtaking and self.is_unordered)

    def take(self, step: Callable[["Connection"], None]) -> None:
        """Take a step that came from the other end, unless this one is over."""
        if self.transport is not None:
            self.transport.frames_input += 1
            step(self)

    def open(self) -> None:
        """Open it."""
        self._enter(Endpoint.LOCAL_ACTIVE)
        container = self.container
        self.loop.happen("on_connection_local_open", self)

        def opened(far: "Connection") -> None:
            far.remote_container = container
            far.enter_remote(Endpoint.REMOTE_ACTIVE)
            far.loop.happen("on_connection_remote_open", far)

        self.send(opened)

    def close(self) -> None:
        """Close it; it is over when the other side has, too."""
        if self.state & Endpoint.LOCAL_CLOSED or self.transport is None:
            return
        condition = self.condition
        self.loop.end_turn()

        def closed(far: "Connection") -> None:
            far.remote_condition = condition
            far.enter_remote(Endpoint.REMOTE_CLOSED)
            if far.state & Endpoint.LOCAL_CLOSED:
                far.wire.alive = False
                far.end()
            else:
                far.loop.happen("on_connection_remote_close", far)

        self.send(closed)
        self._enter(Endpoint.LOCAL_CLOSED)
        if self.state & Endpoint.REMOTE_CLOSED:
            self.end()

    def abort(self) -> None:
        """End it at once."""
        if self.transport is not None:
            self.wire.cut(quiet=self.side)
            self.end()

    def lost(self) -> None:
        """Note that it is cut."""
        if self.transport is not None:
            self.transport.condition = _LOST
            self.loop.happen("on_transport_error", self)
            self.end()

    def end(self) -> None:
        """End: nothing comes any more."""
        if self.transport is not None and self not in self.loop.ending:
            self.loop.ending.append(self)
            self.loop.happen("on_transport_closed", self)

    def _enter(self, state: int) -> None:
        self.state = state | self.state & ~(Endpoint.LOCAL_UNINIT | Endpoint.LOCAL_ACTIVE | Endpoint.LOCAL_CLOSED)

    def enter_remote(self, state: int) -> None:
        """Note the other end's state."""
        self.state = state | self.state & (Endpoint.LOCAL_UNINIT | Endpoint.LOCAL_ACTIVE | Endpoint.LOCAL_CLOSED)


class Link:
    """One end of a link."""

    def __init__(self, connection: Connection, name: str, *, is_sender: bool) -> None:
        self.connection, self.name = connection, name
        self.is_sender, self.is_receiver = is_sender, not is_sender
        self.source, self.target = Terminus(), Terminus()
        self.remote_source, self.remote_target = Terminus(), Terminus()
        self.snd_settle_mode = self.remote_snd_settle_mode = 0
        self.max_message_size = self.remote_max_message_size = 0
        self.condition: Any = None
        self.remote_condition: Any = None
        self.state = Endpoint.LOCAL_UNINIT | Endpoint.REMOTE_UNINIT
        self.credit = 0
        #: The other end; known from the first of the two attaches on.
        self.far: Link | None = None
        self._current: Delivery | None = None
        self._hash = next(_numbers)
        connection.links.append(self)

    def __hash__(self) -> int:
        return self._hash

    def open(self) -> None:
        """Attach it."""
        if not self.state & Endpoint.LOCAL_UNINIT:
            return
        self.state = Endpoint.LOCAL_ACTIVE | self._remote
        source, target, largest = self.source.address, self.target.address, self.max_message_size
        self.connection.loop.happen("on_link_local_open", self.connection, self)

        def attached(connection: Connection) -> None:
            link = self.far
            if link is None:
                link = self.far = Link(connection, self.name, is_sender=not self.is_sender)
                link.far = self
            link.remote_source, link.remote_target = Terminus(source), Terminus(target)
            link.remote_max_message_size = largest
            link.state = link.state & ~Endpoint.REMOTE_UNINIT | Endpoint.REMOTE_ACTIVE
            connection.loop.happen("on_link_remote_open", connection, link)

        self.connection.send(attached)

    def close(self) -> None:
        """Detach it."""
        if self.state & Endpoint.LOCAL_CLOSED:
            return
        self.state = Endpoint.LOCAL_CLOSED | self._remote
        condition = self.condition

        def closed(connection: Connection) -> None:
            link = self.far
            if link is not None:
                link.remote_condition = condition
                link.state = Endpoint.REMOTE_CLOSED | link.state & (
                    Endpoint.LOCAL_UNINIT | Endpoint.LOCAL_ACTIVE | Endpoint.LOCAL_CLOSED
                )
                connection.loop.happen("on_link_remote_close", connection, link)

        self.connection.loop.write_last(lambda: self.connection.send(closed))

    @property
    def _remote(self) -> int:
        return self.state & (Endpoint.REMOTE_UNINIT | Endpoint.REMOTE_ACTIVE | Endpoint.REMOTE_CLOSED)

    # A receiver's end.

    def flow(self, count: int) -> None:
        """Give credit."""
        self.credit += count

        def flowed(connection: Connection) -> None:
            link = self.far
            if link is not None:
                link.credit += count
                connection.loop.happen("on_link_flow", connection, link)

        self.connection.send(flowed)

    def recv(self, _most: int) -> bytes:
        """Return what came of the present delivery."""
        assert self._current is not None
        delivery = self._current
        data, delivery.data, delivery.pending = delivery.data, b"", 0
        return data

    def arrive(self, delivery: "Delivery") -> None:
        """Have a delivery handled."""
        self._current = delivery
        self.connection.loop.happen("on_delivery", self.connection, self, delivery)

    # A sender's end.

    def delivery(self, tag: str) -> "Delivery":
        """Begin one."""
        self._current = Delivery(self, tag)
        return self._current

    def stream(self, data: bytes) -> None:
        """Give its bytes."""
        assert self._current is not None
        self._current.data = data

    def advance(self) -> None:
        """End the present delivery: it is sent, or was read."""
        delivery = self._current
        assert delivery is not None
        self.credit -= 1
        delivery.readable = False
        if self.is_sender:
            data, half = delivery.data, len(delivery.data) // 2
            if not self.connection.is_unordered and self.connection.wire.network.splits():
                self.connection.send(lambda _connection: self._transfer(delivery, data[:half], is_part=True))
                self.connection.send(lambda _connection: self._transfer(delivery, data[half:]))
            else:
                self.connection.send(lambda _connection: self._transfer(delivery, data), overtaking=True)

    def _transfer(self, delivery: "Delivery", data: bytes, *, is_part: bool = False) -> None:
        """Have the other end read a delivery, or a part of it."""
        assert self.far is not None
        arrived = delivery.far
        if arrived is None:
            arrived = delivery.far = Delivery(self.far, delivery.tag)
            arrived.far = delivery
        arrived.data, arrived.pending, arrived.readable, arrived.partial = data, len(data), True, is_part
        self.far.arrive(arrived)

    def send(self, message: Any, tag: str) -> "Delivery":
        """Send a message."""
        delivery = self.delivery(tag)
        self.stream(message.encode())
        self.advance()
        return delivery

    def drained(self) -> int:
        """Nobody drains."""
        return 0


class Delivery:
    """One end of a delivery."""

    def __init__(self, link: Link, tag: str) -> None:
        self.link, self.tag = link, tag
        self.data: bytes = b""
        self.pending = 0
        self.readable = self.partial = self.aborted = self.updated = self.settled = False
        self.local_state = self.remote_state = 0
        self.local = SimpleNamespace(condition=None, undeliverable=False)
        self.remote = SimpleNamespace(condition=None, undeliverable=False)
        self.far: Delivery | None = None
        self._hash = next(_numbers)

    def __hash__(self) -> int:
        return self._hash

    @property
    def remote_condition(self) -> Any:
        """Why it was rejected."""
        return self.remote.condition

    def update(self, state: int) -> None:
        """Set its outcome, which `settle` sends."""
        self.local_state = state

    def settle(self) -> None:
        """Forget it; its receiver's end has the outcome sent."""
        if self.settled:
            return
        self.settled = True
        if self.link.is_sender:
            return
        state, outcome = self.local_state, self.local

        def settled(connection: Connection) -> None:
            sent = self.far
            if sent is not None and not sent.settled:
                sent.remote_state, sent.remote, sent.updated = int(state), outcome, True
                # As in Proton: that the other side has settled it is seen here.
                sent.settled = True
                connection.loop.happen("on_delivery", connection, sent.link, sent)

        self.link.connection.send(settled)
