"""What passes between the receiver, which owns AMQP, and the sources, which own Kafka.

A delivery goes from the receiver's thread to its source's thread with a ticket; an outcome comes back with the same ticket. No
Proton object leaves the receiver's thread.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol


class Delivery(NamedTuple):
    """One AMQP message of a source, not yet settled."""

    #: The receiver's number for it.
    ticket: int
    #: The receiver's number for the link that it came on.
    link: int
    properties: Mapping[str, Any] | None
    content_encoding: str | None
    body: bytes


class Accept(NamedTuple):
    """Its records are committed in Kafka."""


class Release(NamedTuple):
    """Not taken: the edge sends again, in order, from its oldest batch that is not accepted."""

    #: Seconds until its credit is given again.
    pause: float = 0.0


class Reject(NamedTuple):
    """Nobody can pass it: the edge stops and shows the description to its operator."""

    condition: str
    description: str


Outcome = Accept | Release | Reject


class Deliverer(Protocol):
    """What a source asks of the receiver, from any thread."""

    def settle(self, outcomes: list[tuple[int, Outcome]]) -> None:
        """Settle deliveries by ticket; a ticket whose link is gone is passed over."""

    def give_credit(self, source: str) -> None:
        """Let the source's edge send."""

    def withhold_credit(self, source: str) -> None:
        """Give no credit to the source's edge beyond what it has."""

    def refuse(self, source: str, condition: str, description: str) -> None:
        """Close the source's link, and any that comes later, with an error that the edge can show."""
