"""Messages and deliveries of links: what is read of a message, and what becomes of a delivery.

Senders and receivers are attached by `Loop.attach_sender` and `Loop.attach_receiver`. Nothing is sent settled and nothing is
accepted by itself. Called in the loop's thread.
"""

from typing import Any, NamedTuple

from headrace import doors
from headrace.amqp import sections
from headrace.amqp.transport import Condition, Delivery
from headrace.errors import CorruptInput

#: A sender has sent more than it was given credit for.
TRANSFER_LIMIT = "amqp:link:transfer-limit-exceeded"


class Accept(NamedTuple):
    """It is processed, durably."""


class Release(NamedTuple):
    """Not taken: the sender sends again, in order, from its oldest message that is not accepted."""

    #: Seconds until its credit is given again.
    pause: float = 0.0


class Reject(NamedTuple):
    """Nobody can process it: the sender stops and shows the description to its operator."""

    condition: str
    description: str


Outcome = Accept | Release | Reject


def settle(delivery: Any, outcome: Outcome) -> None:
    """Report to the sender what became of a delivery."""
    if isinstance(outcome, Accept):
        delivery.update(Delivery.ACCEPTED)
    elif isinstance(outcome, Reject):
        delivery.local.condition = Condition(outcome.condition, outcome.description)
        delivery.update(Delivery.REJECTED)
    else:
        delivery.update(Delivery.RELEASED)
    delivery.settle()


def release(delivery: Any) -> None:
    """Give a delivery back."""
    settle(delivery, Release())


def close(link: Any, condition: str, description: str) -> None:
    """Close a link with a reason."""
    link.condition = Condition(condition, description)
    link.close()


class Arriving:
    """Reads the deliveries of one link while they arrive: Proton announces a largest message, and takes larger ones."""

    def __init__(self, most: int) -> None:
        """`most` is the size of the largest message that is read, in bytes."""
        self._most = most
        # What came of the delivery that is not complete: one block that grows, where to join parts would need twice their size.
        self._data = bytearray()

    @property
    def size(self) -> int:
        """What came of the delivery that is not complete, in bytes."""
        return len(self._data)

    def read(self, link: Any, delivery: Any) -> bytes | bytearray | None:
        """Read what came of a delivery; return all of it once it is complete, and None before.

        Raises CorruptInput for one that is too large, or that the link has no credit for: the link is to be closed.
        """
        is_whole = not delivery.partial
        data = link.recv(delivery.pending) or b""
        if self.size + len(data) > self._most:
            self.drop()
            raise CorruptInput(f"a message is larger than {self._most} bytes")
        if not is_whole:
            self._data += data
            return None
        link.advance()
        if link.credit < 0:
            self.drop()
            raise CorruptInput("more messages came than there was credit for")
        if self._data:
            whole, self._data = self._data, bytearray()
            whole += data
            return whole
        return data

    def drop(self) -> None:
        """Forget what came: the delivery was aborted, or its link is closed."""
        self._data = bytearray()


def discard(link: Any, delivery: Any) -> None:
    """Read a delivery of a link that is not in use, and keep nothing of it; give it back once it is complete."""
    link.recv(delivery.pending)
    if not delivery.partial:
        link.advance()
        release(delivery)


def decode(data: bytes | bytearray, whose: str = "") -> tuple[dict[Any, Any] | None, str, bytes]:
    """Return a message's application properties, content encoding and body.

    What is no AMQP message has no properties and an empty body: its decoder, such as headrace/batch.py, refuses it. `whose` is
    the source, for the log.
    """
    try:
        found = sections.read(data)
    except Exception as error:  # noqa: BLE001 - whatever it raises, it is about this message alone.
        doors.MESSAGE.refuse(error, whose)
        return None, "", b""
    return found.application, found.content_encoding, found.body if isinstance(found.body, bytes) else b""
