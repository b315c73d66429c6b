"""Sources without databases: batches made beforehand or at a steady rate, sent by the edge's own sender. A process of its own.

Arguments: the interconnect's URLs (comma), sources (comma), and `backlog RECORDS` or `steady RATE SECONDS TRANSACTIONS`. It says
`ready` and waits for a line. A backlog's end it tells in seconds. Values hold the monotonic clock, which all processes of a
machine share.
"""

import logging
import sys
import time
from collections.abc import Iterable

from edge.delivery.link import Sender
from edge.delivery.outbox import Outbox
from edge.observability.figures import Figures
from edge.records.batcher import Batcher, SealedBatch
from headrace.configuration.edge import Interconnect
from headrace.position import Position

#: What makes a record about as large as a row of eight columns in its envelope.
_PADDING = b"x" * 470


class Source:
    """One source's transactions, in batches."""

    def __init__(self, source: str) -> None:
        self.start = Position.start(int(time.time()))
        self._batcher = Batcher(source=source, tail=self.start)
        self._commit = 0
        #: When the open batch was opened, by the monotonic clock; 0 while nothing is in it.
        self.opened_at = 0.0

    def transaction(self, changes: int) -> None:
        """Add a transaction to the open batch."""
        self._commit += 1
        batcher = self._batcher
        batcher.begin(self._commit, 0)
        for ordinal in range(changes):
            value = b'{"t":%d,"padding":"%b%d"}' % (time.monotonic_ns(), _PADDING, self._commit * 7919 + ordinal)
            if len(value) > batcher.free_bytes and batcher.values:
                batcher.cut(ordinal)
            batcher.keys.append(b'{"id":%d}' % (self._commit * 1000 + ordinal))
            batcher.values.append(value)
            batcher.free_bytes -= len(value)
        batcher.commit(self._commit)
        self.opened_at = self.opened_at or time.monotonic()

    def take(self) -> list[SealedBatch]:
        """Return all that was added, in batches."""
        self.opened_at = 0.0
        batches = self._batcher.take()
        last = self._batcher.seal()
        return [*batches, last] if last is not None else batches


class Feed(Source):
    """One source and the edge's own sender."""

    def __init__(self, urls: list[str], source: str) -> None:
        super().__init__(source)
        self.outbox = Outbox(limit_bytes=1 << 32, tail=self.start, confirmed=0)
        self.sender = Sender(Interconnect(url=urls), source, self.outbox, Figures())
        self.sender.start()

    def close(self) -> None:
        """Close the open batch, if there is one, once the edge would."""
        if self.opened_at and time.monotonic() - self.opened_at >= self.outbox.linger:
            self.outbox.put(self.take())

    @property
    def is_open(self) -> bool:
        """Whether a batch is open."""
        return bool(self.opened_at)

    @property
    def idle(self) -> bool:
        """Whether everything was sent and accepted."""
        return not self.opened_at and self.outbox.empty


def wait_for_start() -> None:
    """Say that everything is prepared, and wait until it is wanted."""
    print("ready", flush=True)
    sys.stdin.readline()


def made(feed: Feed, records: int) -> Iterable[SealedBatch]:
    """Return a backlog, in transactions of fifty."""
    for _ in range(records // 50):
        feed.transaction(50)
    return feed.take()


def backlog(feed: Feed, records: int) -> None:
    """Send records that were made beforehand, and tell how long it took until all were accepted."""
    batches = list(made(feed, records))
    wait_for_start()
    began = time.monotonic()
    feed.outbox.put(batches)
    while not feed.outbox.empty:
        feed.outbox.check()
        time.sleep(0.002)
    print(time.monotonic() - began, flush=True)


def steady(feeds: list[Feed], rate: int, seconds: int, transactions: int) -> None:
    """Send so many changes a second for each source, in so many transactions, the sources one after the other.

    A batch is closed when an edge would close it: at once when nothing is on the way, else when it has gathered for a while.
    """
    wait_for_start()
    began = time.monotonic()
    waiting: list[Feed] = []
    for step in range(seconds * transactions):
        for number, feed in enumerate(feeds):
            due = began + (step + number / len(feeds)) / transactions
            time.sleep(max(0.0, due - time.monotonic()))
            feed.transaction(rate // transactions)
            waiting.append(feed)
            for each in waiting:
                each.close()
            waiting = [each for each in waiting if each.is_open]
    while not all(feed.idle for feed in feeds):
        for feed in feeds:
            feed.close()
            feed.outbox.check()
        time.sleep(0.01)
    print(time.monotonic() - began, flush=True)


def main(urls: str, sources: str, kind: str, *sizes: str) -> None:
    """Feed."""
    # A source looks for the bridge that serves it, and says so.
    logging.disable(logging.WARNING)
    feeds = [Feed(urls.split(","), source) for source in sources.split(",")]
    if kind == "backlog":
        backlog(feeds[0], int(sizes[0]))
    else:
        steady(feeds, *map(int, sizes))
    for feed in feeds:
        feed.sender.stop(5)


if __name__ == "__main__":
    main(*sys.argv[1:])
