"""When a lane begins its next transaction: not while Kafka still ends the one before, and with several sources not at once.

A transaction costs Kafka some milliseconds whatever it holds, so many small ones fill a processor that fewer, larger ones would
leave idle. A lane that serves several sources therefore lets more of them become ready before it takes them: for a multiple of
the time that its last transaction took, so that a slow Kafka gets fewer. Called by the lane's thread.
"""

import time
from collections.abc import Callable, Collection

#: A commit returns before Kafka has ended the transaction. One that begins in the meantime is retried by the client after 20 ms,
#: so the next one waits for at least this long, in seconds.
ENDING_SECONDS = 0.004
#: How many times as long as its last transaction took a lane waits for more sources.
_TIMES = 2.0


class Pacing:
    """The pauses between one lane's transactions."""

    def __init__(self, longest: float, clock: Callable[[], float] = time.monotonic) -> None:
        #: The longest time that a lane waits for more sources, in seconds.
        self._longest = longest
        self._clock = clock
        self._ended_at = 0.0
        self._gathering = 0.0
        # The source of the last transaction, where it had one alone.
        self._only: str | None = None

    def ended(self, sources: Collection[str] = (), seconds: float = 0.0, *, is_full: bool = False) -> None:
        """Note that a transaction has ended.

        Args:
            sources: those that it was of; none when it was aborted.
            seconds: how long Kafka took for it.
            is_full: whether it reached a limit, so that more is waiting already.
        """
        self._ended_at = self._clock()
        only, self._only = self._only, next(iter(sources)) if len(sources) == 1 else None
        # A source that is alone gathers at its edge, which sends when nothing is in flight.
        is_alone = self._only is not None and self._only == only
        self._gathering = 0.0 if is_full or is_alone else min(self._longest, _TIMES * seconds)

    @property
    def until_collecting(self) -> float:
        """Seconds until the lane may take sources for the next transaction."""
        return max(0.0, self._ended_at + self._gathering - self._clock())

    @property
    def until_beginning(self) -> float:
        """Seconds until Kafka may be asked to begin the next transaction."""
        return max(0.0, self._ended_at + ENDING_SECONDS - self._clock())

    def gather(self) -> None:
        """Let sources become ready."""
        if (seconds := self.until_collecting) > 0:
            time.sleep(seconds)

    def wait_for_end(self) -> None:
        """Let Kafka end the transaction before."""
        if (seconds := self.until_beginning) > 0:
            time.sleep(seconds)
