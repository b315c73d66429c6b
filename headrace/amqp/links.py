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


class Decoder:
    """Reads AMQP messages; used again and again, as making one costs more than using it."""

    def __init__(self) -> None:
        self._message = Message()

    def __call__(self, data: bytes | bytearray, whose: str = "") -> tuple[Any, str, bytes]:
        """Return application properties, content encoding and body.

        What is no AMQP message has no properties and an empty body: its decoder, such as headrace/batch.py, refuses it. `whose`
        is the source, for the log.
        """
        message = self._message
        try:
            if len(data) > LARGE:
                ahead, body = split(data)
                message.decode(ahead)
            else:
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


#: Of a larger message all sections but its body, which are small in ours, have no more bytes than this.
LARGE = 1 << 20
#: How a section begins, how those of a large body of bytes or text do, and how many bytes are ahead of that body; the types of
#: the other sections, by how many bytes say their size.
_SECTION, _BODY_HEAD = b"\x00\x53", 8
_BODIES = (b"\x00\x53\x75\xb0", b"\x00\x53\x77\xb0", b"\x00\x53\x77\xb1")
_SIZED = {0x45: 0, 0xC0: 1, 0xC1: 1, 0xD0: 4, 0xD1: 4}


def split(data: bytes | bytearray) -> tuple[bytes | bytearray, bytes]:
    """Return what is ahead of the body of a large message, and the body; raise CorruptInput where that is not near its beginning.

    Proton would keep copies of its own; and what is ahead of the body becomes values several times as large.
    """
    at = 0
    while at < LARGE and data[at : at + 2] == _SECTION and data[at + 3] in _SIZED:
        size = _SIZED[data[at + 3]]
        at += 4 + size + int.from_bytes(data[at + 4 : at + 4 + size], "big")
    start = at + _BODY_HEAD
    end = start + int.from_bytes(data[start - 4 : start], "big")
    if at >= LARGE or not data.startswith(_BODIES, at) or end > len(data):
        raise CorruptInput("the body of a large message is not one of bytes or text, near its beginning")
    return data[:at], bytes(memoryview(data)[start:end])
