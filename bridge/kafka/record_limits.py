"""How large a record each topic takes, as read from Kafka; shared by all lanes."""

import threading
import time
from collections.abc import Iterable, Mapping
from itertools import repeat

from bridge.kafka.topics import Wanted, check
from bridge.model.ports import Share
from headrace.errors import ReplicationError

#: Kafka's limit is on a batch of records, which has a frame around a single one.
FRAME_BYTES = 512
#: Seconds that a lane waits for an answer: only a record that is too large makes it ask.
_PATIENCE = 2.0
#: Seconds within which a topic is not asked about again: all that the lane's other sources have waits for the answer, and a batch
#: that says it is too large costs its sender nothing.
_AGAIN_SECONDS = 1.0


class RecordLimits:
    """The largest record of each topic, in bytes."""

    def __init__(self, admin: object, topics: Mapping[str, Wanted], limits: Mapping[str, int] | None = None) -> None:
        self._admin = admin
        self._topics = topics
        self._lock = threading.Lock()
        self._limits = dict(limits or {})
        # By topic: when it was asked about, and whether it had grown.
        self._asked: dict[str, tuple[float, bool]] = {}

    @property
    def smallest(self) -> int:
        """The smallest of all topics' limits."""
        return min(self._limits.values(), default=1 << 20)

    @property
    def largest(self) -> int:
        """The largest of all topics' limits."""
        return max(self._limits.values(), default=1 << 20)

    def load(self, limits: Mapping[str, int], topics: Mapping[str, Wanted] | None = None) -> None:
        """Take limits that were just read, and which topics there are."""
        with self._lock:
            self._topics = topics or self._topics
            self._limits = self._limits | dict(limits)

    def exceeded_by(self, share: Share) -> bool:
        """Whether a record is larger than its topic takes."""
        limit = self._limits.get(share.topic, 1 << 30) - FRAME_BYTES - _largest_headers(share)
        # Without a line of Python for each record.
        if (
            max(map(len, filter(None, share.values)), default=0) + max(map(len, filter(None, share.keys)), default=0)
            <= limit
        ):
            return False
        pairs = zip(share.keys, share.values, repeat(b""), strict=False)
        return any(len(key or empty) + len(value or empty) > limit for key, value, empty in pairs)

    def refresh(self, topics: Iterable[str]) -> bool:
        """Read the limits of some topics again, unless they were just read; return whether one has grown, or is not known."""
        now = time.monotonic()
        known, names = False, set()
        for name in topics:
            at, grown = self._asked.get(name, (-_AGAIN_SECONDS, False))
            if at + _AGAIN_SECONDS > now:
                known |= grown
            else:
                names.add(name)
        if not names:
            return known
        try:
            limits = check(self._admin, {name: self._topics[name] for name in names}, patience=_PATIENCE)
        except ReplicationError:
            return True
        found = {name: limits[name] > self._limits.get(name, 0) for name in names}
        self._asked |= {name: (now, grown) for name, grown in found.items()}
        self.load(limits)
        return known or any(found.values())


def _largest_headers(share: Share) -> int:
    """Return the size of a record's headers, of the one with the largest, in bytes."""
    given = share.headers.values() if share.headers else ()
    return max((sum(len(name) + len(value) for name, value in headers) for headers in given), default=0)
