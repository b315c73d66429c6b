"""Which of an AMQP loop's sockets are ready, by poll: select, which Proton uses, has no descriptor above 1023.

A bridge of a few hundred sources has more than a thousand descriptors, most of them of Kafka's clients; an edge has what its
process was given. Takes the place of Proton's own selector, whose duties are those of the methods here. Of those who are in their
handshakes, whoever they are, a few at a time have their turn, so that the others do not wait for all of them.
"""

import math
import select
import time
from typing import Any

#: How many sockets in their handshakes are read in a turn: a handshake of TLS costs milliseconds.
NEWCOMERS = 2
_WRONG = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Polling:
    """Proton's selectables, and which of them can be read, written, or have reached their deadline."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._all: dict[Any, int] = {}
        self._by_descriptor: dict[int, Any] = {}
        # Those in their handshakes: whose turn was longest ago is first.
        self._newcomers: dict[Any, None] = {}

    def expect(self, selectable: Any) -> None:
        """Note one whose handshakes begin."""
        self._newcomers[selectable] = None

    def know(self, selectable: Any) -> None:
        """Note one whose handshakes are over."""
        self._newcomers.pop(selectable, None)

    def add(self, selectable: Any) -> None:
        """Watch one more."""
        self.update(selectable)

    def update(self, selectable: Any) -> None:
        """Watch one for what it waits for now."""
        # Proton's timer has none.
        descriptor = selectable.fileno()
        wanted = (select.POLLIN if selectable.reading else 0) | (select.POLLOUT if selectable.writing else 0)
        self._all[selectable] = descriptor
        if descriptor < 0:
            return
        if wanted:
            self._by_descriptor[descriptor] = selectable
            self._poll.register(descriptor, wanted)
        elif self._by_descriptor.get(descriptor) is selectable:
            self._forget(descriptor)

    def remove(self, selectable: Any) -> None:
        """Watch one no more."""
        descriptor = self._all.pop(selectable, -1)
        self._newcomers.pop(selectable, None)
        if self._by_descriptor.get(descriptor) is selectable:
            self._forget(descriptor)

    def close(self) -> None:
        """Close all of them."""
        for selectable in list(self._all):
            self.remove(selectable)
            selectable.close()

    def _forget(self, descriptor: int) -> None:
        del self._by_descriptor[descriptor]
        self._poll.unregister(descriptor)

    def select(self, timeout: float | None) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait, at most `timeout` seconds and to the next deadline, and return the readable, the writable and the expired."""
        # Looked at each time: the deadline of Proton's timers changes without an update.
        ends = min([selectable.deadline or math.inf for selectable in self._all], default=math.inf)
        if ends < math.inf:
            left = max(0.0, ends - time.time())
            timeout = left if timeout is None else min(timeout, left)
        readable, writable, waiting = [], [], set()
        # Rounded up: woken too early, the loop would spin.
        for descriptor, events in self._poll.poll(None if timeout is None else int(timeout * 1000) + 1):
            selectable = self._by_descriptor.get(descriptor)
            if selectable is None:
                continue
            if events & (select.POLLIN | _WRONG) and selectable.reading:
                if selectable in self._newcomers:
                    waiting.add(selectable)
                else:
                    readable.append(selectable)
            if events & (select.POLLOUT | _WRONG) and selectable.writing:
                writable.append(selectable)
        if waiting:
            for selectable in [each for each in self._newcomers if each in waiting][:NEWCOMERS]:
                readable.append(selectable)
                self._newcomers[selectable] = self._newcomers.pop(selectable)
        now = time.time()
        expired = [each for each in self._all if each.deadline and each.deadline < now] if ends < now else []
        return readable, writable, expired


class Polled:
    """What Proton's handler of sockets lacks, to be mixed into it; this module imports no Proton."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = Polling()

    def expect(self, transport: Any) -> None:
        """Note a connection whose handshakes begin."""
        if (selectable := _socket_of(transport)) is not None:
            self._selector.expect(selectable)

    def know(self, transport: Any) -> None:
        """Note a connection whose handshakes are over."""
        self._selector.know(_socket_of(transport))

    def close(self) -> None:
        """Close the sockets that are left when the loop has ended: Proton closes those alone whose other side has answered."""
        self._selector.close()

    def on_selectable_expired(self, event: Any) -> None:
        """Look after a connection whose time has come, unless it ended in the same moment: Proton would fail, and its loop."""
        if event.selectable._transport is not None:  # noqa: SLF001 - as in Proton's own handler.
            super().on_selectable_expired(event)  # type: ignore[misc]


def _socket_of(transport: Any) -> Any:
    """Return what is polled of a transport; None once it is closed."""
    return getattr(transport, "_selectable", None)
