"""Gaps of a source: each is logged once, the edge is slowed down while it lasts, and an operator is called when it lasts.

Called by a lane for every gap that the chain finds.
"""

import logging
import time

from bridge.model.chain import Gap
from headrace.backoff import Backoff
from headrace.position import Position

_log = logging.getLogger(__name__)

#: A gap that going back has not closed by then is an operator's matter, in seconds.
_LASTING = 10.0

_UNKNOWN = (
    "%s: the edge goes on after %s, but neither committed offsets nor records in Kafka know a position of this source. "
    "Nothing is taken. If the stream's records were removed on purpose, start a new epoch with "
    "'headrace edge init --adopt --new-epoch' and copy the tables again; else restore the topic."
)
_STAYS = (
    "%s: the edge goes on after %s, Kafka holds the source up to %s, and going back has not brought what is between. "
    "Nothing is taken. If the edge's state was restored from a copy or lost, run 'headrace edge init --adopt' with the "
    "position from 'headrace bridge positions'; if the log is gone, start a new epoch and copy the tables again."
)


class GapWatch:
    """What is known of the gap that a source is in, if it is in one."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._follows: Position | None = None
        self._since = 0.0
        self._is_logged = False
        self._pause = 0.0
        self._backoff = Backoff(first=0.1, longest=5.0)
        #: How often the edge went back and came to the same gap again.
        self.returns = 0

    @property
    def lasting(self) -> bool:
        """Whether there is a gap that going back has not closed: an operator was called."""
        return self._is_logged

    def met(self, gap: Gap) -> float:
        """Take note of a gap; return for how many seconds the delivery's credit is to be withheld."""
        if self._follows is None:
            self._since = time.monotonic()
            self._follows = gap.follows
            if gap.tail is not None:
                _log.info("%s: batch after %s released, tail is %s: going back", self._source, gap.follows, gap.tail)
        elif gap.follows <= self._follows:
            # The edge went back and came to the same place.
            self._follows = gap.follows
            self._pause = self._backoff.pause()
            self.returns += 1
        if not self._is_logged and (gap.tail is None or time.monotonic() - self._since > _LASTING):
            self._is_logged = True
            if gap.tail is None:
                _log.error(_UNKNOWN, self._source, gap.follows)
            else:
                _log.error(_STAYS, self._source, gap.follows, gap.tail)
        return self._pause

    def closed(self, follows: Position) -> None:
        """Take note that a batch was the next link: there is no gap any more."""
        if self._follows is None:
            return
        if self._is_logged:
            _log.warning("%s: the gap is closed, going on after %s", self._source, follows)
        self._follows = None
        self._is_logged = False
        self._pause = 0.0
        self.returns = 0
        self._backoff.reset()
