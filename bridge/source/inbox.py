"""The inbox: deliveries of one source on their way from the receiver's thread to the source's.

Bounded by credit: no more can be in it than the receiver gave credit for on the one link that is alive.
"""

import threading
import time
from collections import deque

from bridge.amqp.delivery import Delivery


class Inbox:
    """A queue that can forget the deliveries of a link that is gone."""

    def __init__(self) -> None:
        self._deliveries: deque[Delivery] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        """Return how many deliveries wait."""
        return len(self._deliveries)

    def put(self, delivery: Delivery) -> None:
        """Add a delivery."""
        with self._changed:
            self._deliveries.append(delivery)
            self._changed.notify()

    def take(self, seconds: float) -> Delivery | None:
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

    def open(self) -> None:
        """Give deliveries out again."""
        with self._changed:
            self._closed = False

    def close(self) -> None:
        """Give nothing out any more and wake who waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
