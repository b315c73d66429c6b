"""Where messages wait for the one thread that handles them, and what is known of those that were accepted. Imports no AMQP.

Filled by the threads of connections, emptied by the command's own.
"""

import queue
from collections import OrderedDict
from typing import NamedTuple, Protocol

from headrace.amqp.links import Outcome
from headrace.receive.message import Received

#: How many ids are remembered, so that what is sent again is not handled again.
_REMEMBERED = 100_000


class Settler(Protocol):
    """A connection that takes outcomes, from any thread."""

    def settle(self, ticket: int, outcome: Outcome) -> None:
        """Settle one delivery; nothing happens when the connection is gone."""


class Waiting(NamedTuple):
    """A message that waits, with what settles it."""

    connection: Settler
    ticket: int
    message: Received


class Inbox:
    """The messages of all connections, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Waiting | Exception] = queue.SimpleQueue()
        self._accepted: OrderedDict[str, None] = OrderedDict()

    def put(self, waiting: Waiting) -> None:
        """Add a message."""
        self._waiting.put(waiting)

    def fail(self, error: Exception) -> None:
        """Have `take` raise an error."""
        self._waiting.put(error)

    def take(self, seconds: float) -> Waiting | None:
        """Return the next message, None when none comes in time; raise what `fail` was given."""
        try:
            found = self._waiting.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise found
        return found

    def take_all(self) -> list[Waiting]:
        """Return all messages that wait now."""
        found = []
        while (waiting := self.take(0)) is not None:
            found.append(waiting)
        return found

    def remember(self, message: Received) -> None:
        """Note that a message was accepted."""
        if message.id:
            self._accepted[message.id] = None
            if len(self._accepted) > _REMEMBERED:
                self._accepted.popitem(last=False)

    def contains(self, message: Received) -> bool:
        """Return whether a message was accepted before, by this process."""
        return message.id in self._accepted
