"""Credit: each source's one living link, what came on it without an outcome yet, and the credit that it may have.

Sans-I/O: it calls links and deliveries that it is given, and imports no AMQP library. The rule of credit: what a link was given
and what waits for an outcome never exceed `credit` together, nor, as far as their sizes can be foreseen, the source's share of
memory; what comes above that is released at once. So sources that cannot commit cost bounded memory, all together. And a source
whose deliveries are rejected gets credit for a few of them a second, by whichever links: an honest edge stops at the first, and
to judge them costs the threads of all. Called by the receiver, in its thread only.
"""

import itertools
import time
from collections.abc import Callable
from typing import Any

from bridge.model.delivery import Delivery, Granted, Outcome, Reject, Release

#: Applies an outcome to a delivery of the AMQP library's.
Settle = Callable[[Any, Outcome], None]
#: Does something after some seconds.
Later = Callable[[float, Callable[[], None]], None]

#: Bodies that wait, in bytes: of one source, unless it is a single one; and of all, where each source still has an equal share.
MOST_OF_SOURCE, MOST_OF_ALL = 16 << 20, 64 << 20
#: Seconds until the credit is given again of a delivery for which there was no memory.
_FULL_SECONDS = 0.5
#: How long a source rests for each delivery that was rejected, and for how much of that it does not rest yet, in seconds.
_REJECTED_SECONDS, _TOLERATED_SECONDS = 0.125, 6.0
#: How quickly the size that is expected of a source's next message follows those that came.
_RISES, _FALLS = 0.5, 0.05


class Feed:
    """A source's link, and what came on it and has no outcome yet."""

    def __init__(self, number: int, source: str, link: Any, credit: int) -> None:
        self.number = number
        self.source = source
        self.link = link
        #: Credit to give as soon as the source may have it.
        self.owed = credit
        #: Sizes by ticket, in bytes; and their sum.
        self.tickets: dict[int, int] = {}
        self.bytes = 0
        #: What its next message is expected to have, in bytes: at first, that its whole credit fits.
        self.expected = MOST_OF_SOURCE / credit
        #: Whether its source rests, and it gets credit when that ends.
        self.rests = False


class CreditManager:
    """The feeds of all sources."""

    def __init__(self, credit: int, settle: Settle, later: Later, clock: Callable[[], float] = time.monotonic) -> None:
        self._credit = credit
        self._clock = clock
        self._settle = settle
        self._later = later
        self._numbers = itertools.count(1)
        self._feeds: dict[str, Feed] = {}
        self._unsettled: dict[int, tuple[Feed, Any]] = {}
        #: What all feeds hold, in bytes.
        self.bytes = 0
        #: The session that each source's deliveries go to: none, no credit.
        self._granted: dict[str, Granted] = {}
        #: By source: when all that it rests for rejected deliveries is over.
        self._rested_at: dict[str, float] = {}

    def of(self, source: str) -> Feed | None:
        """Return the feed of a source, None while no link is there."""
        return self._feeds.get(source)

    def all(self) -> list[Feed]:
        """Return the feeds that there are."""
        return list(self._feeds.values())

    def open(self, source: str, link: Any) -> Feed:
        """Take a link into use, and give it what credit the source may have."""
        feed = self._feeds[source] = Feed(next(self._numbers), source, link, self._credit)
        self._flow(feed)
        return feed

    def drop(self, feed: Feed) -> None:
        """Forget a link and what came on it: its edge sends that again."""
        if self._feeds.get(feed.source) is feed:
            del self._feeds[feed.source]
        for ticket in feed.tickets:
            self._unsettled.pop(ticket, None)
        self.bytes -= feed.bytes
        feed.tickets.clear()
        feed.bytes = 0
        if feed.source in self._granted:
            self._granted[feed.source].inbox.drop(feed.number)

    def received(self, feed: Feed, delivery: Any, properties: Any, encoding: str, body: bytes) -> None:
        """Put a delivery into the inbox of its source's session, with a ticket to settle it by.

        Release it when there is no session, or no memory for it.
        """
        ticket, size = next(self._numbers), len(body)
        feed.expected += (size - feed.expected) * (_RISES if size > feed.expected else _FALLS)
        is_full = self._is_full(feed, size)
        self._unsettled[ticket] = (feed, delivery)
        feed.tickets[ticket] = size
        feed.bytes += size
        self.bytes += size
        session = self._granted.get(feed.source)
        if is_full:
            self.settle([(ticket, Release(_FULL_SECONDS))])
        elif session is None or not session.inbox.put(Delivery(ticket, feed.number, properties, encoding, body)):
            self.settle([(ticket, Release())])

    def aborted(self, link: Any) -> None:
        """Give a link the credit again of a delivery that never came whole."""
        for feed in self._feeds.values():
            if feed.link == link:
                self._owe(feed, 1)

    def settle(self, outcomes: list[tuple[int, Outcome]]) -> None:
        """Settle deliveries by ticket, and give their credit again, at once or after the pause of a release."""
        owed: dict[tuple[int, float], tuple[Feed, int]] = {}
        for ticket, outcome in outcomes:
            if ticket not in self._unsettled:
                # Its link is gone.
                continue
            feed, delivery = self._unsettled.pop(ticket)
            size = feed.tickets.pop(ticket)
            feed.bytes -= size
            self.bytes -= size
            self._settle(delivery, outcome)
            if isinstance(outcome, Reject):
                now = self._clock()
                self._rested_at[feed.source] = max(now, self._rested_at.get(feed.source, now)) + _REJECTED_SECONDS
            pause = outcome.pause if isinstance(outcome, Release) else 0.0
            owed[feed.number, pause] = (feed, owed.get((feed.number, pause), (feed, 0))[1] + 1)
        for (_, pause), (feed, count) in owed.items():
            if pause:
                self._later(pause, lambda feed=feed, count=count: self._owe(feed, count))  # type: ignore[misc]
            else:
                self._owe(feed, count)

    def grant(self, session: Granted) -> None:
        """Let a source's edge send, now or when it comes, to this session and to no former one."""
        self._granted[session.source] = session
        if session.source in self._feeds:
            self._flow(self._feeds[session.source])

    def revoke(self, session: Granted) -> None:
        """Give a session's edge no more credit than it has; nothing happens when another session has taken its place."""
        if self._granted.get(session.source) is session:
            del self._granted[session.source]

    def revoke_all(self) -> None:
        """Give no more credit."""
        self._granted.clear()

    def _owe(self, feed: Feed, count: int) -> None:
        feed.owed += count
        if self._feeds.get(feed.source) is feed:
            self._flow(feed)

    def _flow(self, feed: Feed) -> None:
        if feed.owed and feed.source in self._granted and not self._rests(feed):
            count = min(feed.owed, self._messages_that_fit(feed))
            if count > 0:
                feed.link.flow(count)
                feed.owed -= count

    def _rests(self, feed: Feed) -> bool:
        """Whether a feed's source rests; then what it is owed comes when that ends."""
        left = self._rested_at.get(feed.source, 0.0) - self._clock() - _TOLERATED_SECONDS
        if left > 0 and not feed.rests:
            feed.rests = True
            self._later(left, lambda: self._wake(feed))
        return left > 0

    def _wake(self, feed: Feed) -> None:
        feed.rests = False
        self._owe(feed, 0)

    def _messages_that_fit(self, feed: Feed) -> int:
        """Return for how many more messages of a feed there is memory, beyond its present credit; one at least if it has none."""
        outstanding: int = feed.link.credit
        limit = MOST_OF_SOURCE if self.bytes <= MOST_OF_ALL // 2 else min(MOST_OF_SOURCE, self._share)
        count = int((limit - feed.bytes) / max(1.0, feed.expected)) - outstanding
        return max(count, 0 if outstanding > 0 or feed.tickets else 1)

    def _is_full(self, feed: Feed, size: int) -> bool:
        """Whether there is no memory for a message of a feed."""
        if feed.tickets and feed.bytes + size > MOST_OF_SOURCE:
            return True
        return bool(self.bytes) and self.bytes + size > MOST_OF_ALL and feed.bytes + size > self._share

    @property
    def _share(self) -> int:
        return MOST_OF_ALL // max(1, len(self._feeds))
