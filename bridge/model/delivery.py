"""What passes between the receiver, which owns AMQP, and the sources, which own Kafka.

A delivery goes from the receiver's thread to its source's thread with a ticket; an outcome comes back with the same ticket. No
Proton object leaves the receiver's thread.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from headrace.amqp.links import Accept, Outcome, Reject, Release

__all__ = ["Accept", "Deliverer", "Delivery", "Granted", "Inbox", "Outcome", "Reject", "Release"]


class Delivery(NamedTuple):
    """One AMQP message of a source, not yet settled."""

    #: The receiver's number for it.
    ticket: int
    #: The receiver's number for the link that it came on.
    link: int
    properties: Mapping[str, Any] | None
    content_encoding: str | None
    body: bytes


class Inbox:
    """Deliveries of one session on their way from the receiver's thread to a lane's.

    Those of a link that is gone can be forgotten. Bounded by credit: no more can be in it than the receiver gave credit for on
    the one link that is alive.
    """

    def __init__(self, arrived: Callable[[], None] = lambda: None) -> None:
        self._arrived = arrived
        self._deliveries: deque[Delivery] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        """Return how many deliveries wait."""
        return len(self._deliveries)

    def put(self, delivery: Delivery) -> bool:
        """Add a delivery; return False, and do nothing, when the inbox is closed."""
        with self._changed:
            if self._closed:
                return False
            self._deliveries.append(delivery)
            self._changed.notify()
        self._arrived()
        return True

    def take(self, seconds: float = 0) -> Delivery | None:
        """Return the oldest delivery, waiting for one up to `seconds`; None when none came, or at once when closed."""
        with self._changed:
            if not self._deliveries and seconds > 0:
                until = time.monotonic() + seconds
                while not self._deliveries and not self._closed and (left := until - time.monotonic()) > 0:
                    self._changed.wait(left)
            return self._deliveries.popleft() if self._deliveries and not self._closed else None

    def drop(self, link: int) -> None:
        """Forget the deliveries of a link that is gone: the edge sends them again."""
        with self._changed:
            self._deliveries = deque(delivery for delivery in self._deliveries if delivery.link != link)

    def clear(self) -> list[Delivery]:
        """Take all that waits, even when closed."""
        with self._changed:
            taken = list(self._deliveries)
            self._deliveries.clear()
            return taken

    def close(self) -> None:
        """Take and give no more deliveries, and wake those that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Granted(Protocol):
    """What deliveries of a source go to: a session (bridge/source/session.py)."""

    @property
    def source(self) -> str:
        """The source, `region/name`."""

    @property
    def inbox(self) -> Inbox:
        """Where its deliveries wait."""


class Deliverer(Protocol):
    """The receiver, for any thread."""

    def settle(self, outcomes: list[tuple[int, Outcome]]) -> None:
        """Settle deliveries by ticket; a ticket whose link is gone is passed over."""

    def grant(self, session: Granted) -> None:
        """Let the source's edge send to a session."""

    def revoke(self, session: Granted) -> None:
        """Give the session's edge no credit beyond what it has."""

    def refuse(self, source: str, condition: str, description: str) -> None:
        """Close the source's link, and any that comes later, with an error that the edge can show."""

    def admit(self, source: str) -> None:
        """Take the source's links again that `refuse` closed."""
