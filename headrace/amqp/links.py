"""Messages and deliveries of links: what is read of a message, and what becomes of a delivery.

Senders and receivers are attached by `Loop.attach_sender` and `Loop.attach_receiver`. Nothing is sent settled and nothing is
accepted by itself. Called in the loop's thread.
"""

from typing import Any, NamedTuple

from headrace import doors
from headrace.amqp.transport import Condition, Delivery, Message
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
        self._parts: list[bytes] = []
        #: What came of the delivery that is not complete, in bytes.
        self.size = 0

    def read(self, link: Any, delivery: Any) -> bytes | None:
        """Read what came of a delivery; return all of it once it is complete, and None before.

        Raises CorruptInput for one that is too large, or that the link has no credit for: the link is to be closed.
        """
        is_whole = not delivery.partial
        data = link.recv(delivery.pending) or b""
        if self.size + len(data) > self._most:
            self.drop()
            raise CorruptInput(f"a message is larger than {self._most} bytes")
        if not is_whole:
            self._parts.append(data)
            self.size += len(data)
            if len(self._parts) >= _MANY_PARTS:
                self._parts = [b"".join(self._parts)]
            return None
        link.advance()
        if link.credit < 0:
            self.drop()
            raise CorruptInput("more messages came than there was credit for")
        if self._parts:
            data = b"".join((*self._parts, data))
            self.drop()
        return data

    def drop(self) -> None:
        """Forget what came: the delivery was aborted, or its link is closed."""
        self._parts, self.size = [], 0


#: Parts that are kept apart: one of a byte each would cost much more than they hold.
_MANY_PARTS = 64


def discard(link: Any, delivery: Any) -> None:
    """Read a delivery of a link that is not in use, and keep nothing of it; give it back once it is complete."""
    link.recv(delivery.pending)
    if not delivery.partial:
        link.advance()
        release(delivery)


class Decoder:
    """Reads AMQP messages; used again and again, as making one costs more than using it."""

    def __init__(self) -> None:
        self._message = Message()

    def __call__(self, data: bytes, whose: str = "") -> tuple[Any, str, bytes]:
        """Return application properties, content encoding and body.

        What is no AMQP message has no properties and an empty body: its decoder, such as headrace/batch.py, refuses it. `whose`
        is the source, for the log.
        """
        message = self._message
        try:
            message.decode(data)
            body = message.body
            # Binary is a view into memory that Proton frees.
            body = bytes(body) if isinstance(body, bytes | memoryview | bytearray) else b""
            return message.properties, str(message.content_encoding or ""), body
        except Exception as error:  # noqa: BLE001 - whatever it raises, it is about this message alone.
            doors.MESSAGE.refuse(error, whose)
            # What it holds of the message is in an unknown state.
            self._message = Message()
            return None, "", b""
