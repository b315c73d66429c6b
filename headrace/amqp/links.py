"""Messages and deliveries of links: what is read of a message, and what becomes of a delivery.

Senders and receivers are attached by `Loop.attach_sender` and `Loop.attach_receiver`. Nothing is sent settled and nothing is
accepted by itself. Called in the loop's thread.
"""

import logging
from typing import Any, NamedTuple

from headrace.amqp.transport import Condition, Delivery, Message, ProtonException

_log = logging.getLogger(__name__)


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


class Decoder:
    """Reads AMQP messages; used again and again, as making one costs more than using it."""

    def __init__(self) -> None:
        self._message = Message()

    def __call__(self, data: bytes) -> tuple[Any, str, bytes]:
        """Return application properties, content encoding and body.

        What is no AMQP message has no properties and an empty body: its decoder, such as headrace/batch.py, refuses it.
        """
        message = self._message
        try:
            message.decode(data)
            body = message.body
            # Binary is a view into memory that Proton frees.
            body = bytes(body) if isinstance(body, bytes | memoryview | bytearray) else b""
            return message.properties, str(message.content_encoding or ""), body
        except (ProtonException, UnicodeDecodeError, ValueError):
            _log.debug("a message could not be decoded", exc_info=True)
            return None, "", b""
