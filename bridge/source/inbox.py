"""The inbox: deliveries of one session on their way from the receiver's thread to a lane's.

Bounded by credit: no more can be in it than the receiver gave credit for on the one link that is alive.
"""

import threading
import time
from collections import deque
from collections.abc import Callable

from bridge.amqp.delivery import Delivery


class Inbox:
    """A queue that can forget the deliveries of a link that is gone."""

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
        """Take and give no more deliveries, and wake whoever waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
