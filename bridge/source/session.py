"""A session: one period in which this bridge serves a source, from a position read in Kafka until an error or a revocation.

Whatever belongs to a session ends with it: its queue of deliveries, its credit, its last position. So nothing that a former
session does late, such as a commit that was in doubt, can touch its successor. Made by the registry (bridge/source/registry.py).
"""

import time
from collections.abc import Callable

from bridge.model.delivery import Inbox
from bridge.model.ports import Committed, Partition
from bridge.model.withheld_release import Release
from bridge.model.withheld_tables import NOTHING


class Session:
    """What is known while a source is served. `held`, `queued` and `closed` are written by the ready queue only."""

    def __init__(
        self,
        source: str,
        token: int,
        committed: Committed,
        notify: Callable[["Session"], None],
        *,
        isolated: bool = False,
    ) -> None:
        self.source = source
        #: The lease under which the position was read (bridge/source/ownership.py).
        self.token = token
        #: The last committed position; None while none is known.
        self.tail = committed.position
        #: The offset to commit for each partition of the source.
        self.offsets: dict[Partition, int] = dict(committed.offsets)
        self.inbox = Inbox(lambda: notify(self))
        #: Its withheld tables by the last committed transaction, and what of them is released.
        self.withheld = committed.withheld or NOTHING
        self.release = Release()
        #: Whether deliveries wait until it was looked what can be released: the next one may end the session before that.
        self.looks_first = False
        #: Whether the position has to be committed although there are no records: at the start, and now and then.
        self.dirty = True
        #: When the position was last committed, by the monotonic clock.
        self.committed_at = time.monotonic()
        #: Whether its transactions hold nothing else: something could not be written, and it may have been this source.
        self.isolated = isolated
        #: Whether a lane has it; whether it waits for one; whether it is over.
        self.held = self.queued = self.closed = False

    @property
    def has_work(self) -> bool:
        """Whether a lane should take it."""
        waiting = len(self.release) if self.release.table else 0 if self.looks_first else len(self.inbox)
        return not self.closed and (self.dirty or waiting > 0)
