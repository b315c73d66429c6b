"""What passes between the receiver, which owns AMQP, and the sources, which own Kafka.

A delivery goes from the receiver's thread to its source's thread with a ticket; an outcome comes back with the same ticket. No
Proton object leaves the receiver's thread.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headrace.amqp.links import Accept, Outcome, Reject, Release

if TYPE_CHECKING:
    from bridge.source.inbox import Inbox

__all__ = ["Accept", "Deliverer", "Delivery", "Granted", "Outcome", "Reject", "Release"]


class Delivery(NamedTuple):
    """One AMQP message of a source, not yet settled."""

    #: The receiver's number for it.
    ticket: int
    #: The receiver's number for the link that it came on.
    link: int
    properties: Mapping[str, Any] | None
    content_encoding: str | None
    body: bytes


class Granted(Protocol):
    """What deliveries of a source go to: a session (bridge/source/session.py)."""

    @property
    def source(self) -> str:
        """The source, `region/name`."""

    @property
    def inbox(self) -> "Inbox":
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
