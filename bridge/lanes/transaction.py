"""One transaction of a lane, with the records and positions of all sources that are ready, within bounds; and what the lane does
with it.

    CLOSED ──▶ OPENING ──▶ IDLE ──▶ COLLECTING ──▶ COMMITTING ──▶ SETTLING ──▶ IDLE
      ▲           │         │           └───────────────┬─────────────▲│
      └───────────┴─────────┴──── DISCARDING ◀──────────│─────────────┘▼
                                      ▲                 ▼          ABORTING ──▶ IDLE
                                      └──────── (any of them that calls Kafka) ──▶ GIVEN_UP

The transaction holds the parts of sources, also when a call fails in the middle, so that the lane can give each back to its edge.
The lane (bridge/lanes/lane.py) makes it, and decides what an error means.

The lane's thread enters phases; the bridge's main thread gives the lane up while it is in one that calls Kafka. Both under one
lock, so that what a transaction holds is always one lane's: once given up, a lane enters nothing more, and whatever its call
returns later is ignored.

A transaction costs Kafka some milliseconds whatever it holds, so many small ones fill a processor that fewer, larger ones would
leave idle. A lane that serves several sources therefore lets more of them become ready before it takes them: for a multiple of
the time that its last transaction took, so that a slow Kafka gets fewer. The next transaction never begins while Kafka still ends
the one before.
"""

import threading
import time
from collections.abc import Callable, Collection
from enum import Enum, auto

from bridge.kafka.topics import RecordLimits
from bridge.lanes.part import Part
from bridge.model.ports import Partition, TransactionalProducer
from bridge.source.registry import SourceRegistry
from bridge.source.session import Session

#: A commit returns before Kafka has ended the transaction. One that begins in the meantime is retried by the client after 20 ms,
#: so the next one waits for at least this long, in seconds.
ENDING_SECONDS = 0.004
#: How many times as long as its last transaction took a lane waits for more sources.
_TIMES = 2.0
#: Seconds after which a call counts as hung: librdkafka can hang when a broker dies in a commit.
HUNG_SECONDS = 20.0


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

    def note_end(self, sources: Collection[str] = (), seconds: float = 0.0, *, is_full: bool = False) -> None:
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


#: Seconds that Kafka may take for a commit before its outcome counts as unknown.
COMMIT_SECONDS = 8.0
#: A transaction costs Kafka about a millisecond for each partition in it.
_MOST_PARTITIONS = 100
#: Positions alone cost much less.
_MOST_SOURCES = 1000
#: A transaction ends at this size however short it has collected, in compressed bytes, in bytes once unpacked, and in records.
_LARGEST_BYTES, _LARGEST_UNPACKED = 2 * 1024 * 1024, 16 * 1024 * 1024
_MOST_RECORDS = 10_000


class Transaction:
    """What one transaction holds."""

    def __init__(self, producer: TransactionalProducer, pacing: Pacing, *, isolated: bool) -> None:
        self._producer = producer
        self._pacing = pacing
        self._isolated = isolated
        self.parts: list[Part] = []
        self.partitions: set[Partition] = set()
        self._bytes = self._unpacked = self._records = 0
        #: Whether Kafka's client has begun it.
        self.has_begun = False
        #: Whether its lane was given up: whatever a call that hung returns, it takes nothing more.
        self.is_over = False
        self._lock = threading.Lock()

    @property
    def committed(self) -> list[Part]:
        """The parts that have something to commit; the others hold repeats, or batches that are sent back."""
        return [part for part in self.parts if part.has_commit]

    @property
    def is_full(self) -> bool:
        """Whether it takes no other source."""
        return (
            self._isolated
            or self.is_over
            or self._bytes > _LARGEST_BYTES
            or self._unpacked > _LARGEST_UNPACKED
            or self._records > _MOST_RECORDS
            or len(self.partitions) >= _MOST_PARTITIONS
            or len(self.parts) >= _MOST_SOURCES
        )

    def end(self) -> None:
        """Take no other part from now on: those that it has are its successor's."""
        with self._lock:
            self.is_over = True

    def _add(self, part: Part) -> bool:
        with self._lock:
            if not self.is_over:
                self.parts.append(part)
            return not self.is_over

    def collect(self, session: Session | None, registry: SourceRegistry, limits: RecordLimits, seconds: float) -> None:
        """Take deliveries of sessions that are ready, in turn, until there are none, it is full, or `seconds` have passed."""
        until = time.monotonic() + seconds
        while session is not None:
            part = Part(session, registry.states[session.source], limits, registry.schemas)
            if not self._add(part):
                registry.ready.give_back([session])
                return
            self._take(part, until)
            self._bytes, self._records = self._bytes + part.bytes, self._records + part.records
            self._unpacked += part.unpacked
            self.partitions |= part.partitions
            if self.is_full or time.monotonic() >= until:
                return
            session = registry.ready.take(0)

    def commit(self, registry: SourceRegistry, bridge: str) -> float:
        """Commit it, if there is anything to commit; return the seconds that Kafka took."""
        parts = self.committed
        if not parts:
            return 0.0
        self._begin()
        began = time.monotonic()
        ends = self._flush(parts, began)
        positions = [each for part in parts for each in part.positions(ends, bridge)]
        leases = {part.session.source: part.session.token for part in parts}
        self._producer.commit(positions, registry.ownership.metadata_for(leases), COMMIT_SECONDS)
        return time.monotonic() - began

    def _flush(self, parts: list[Part], began: float) -> dict[Partition, int]:
        """Have Kafka take all records; return the offsets after them."""
        if not any(part.partitions for part in parts):
            return {}
        ends = self._producer.flush(COMMIT_SECONDS)
        # Where nothing was taken for a while, the commit waits for it; but where withheld records end goes with it.
        while not all(part.has_end(ends) for part in parts) and (left := began + COMMIT_SECONDS - time.monotonic()) > 0:
            ends = self._producer.flush(left)
        return ends

    def _take(self, part: Part, until: float) -> None:
        while (shares := part.next()) is not None:
            if shares:
                self._begin()
                for share in shares:
                    self._producer.produce(share)
            if (
                part.refused is not None
                or self.is_over
                or self._bytes + part.bytes > _LARGEST_BYTES
                or self._unpacked + part.unpacked > _LARGEST_UNPACKED
                or self._records + part.records > _MOST_RECORDS
                or time.monotonic() >= until
            ):
                return

    def _begin(self) -> None:
        if not self.has_begun:
            self._pacing.wait_for_end()
            self._producer.begin()
            self.has_begun = True


class Phase(Enum):
    """What a lane does."""

    #: It has no producer.
    CLOSED = auto()
    #: Its transactional id is initialised.
    OPENING = auto()
    #: It has a producer and waits for something to commit.
    IDLE = auto()
    #: It takes deliveries, and writes their records.
    COLLECTING = auto()
    COMMITTING = auto()
    #: Its edges are answered; no call to Kafka.
    SETTLING = auto()
    ABORTING = auto()
    #: Its producer is given up.
    DISCARDING = auto()
    #: A call did not return; a successor has its sources.
    GIVEN_UP = auto()


_NEXT = {
    Phase.CLOSED: {Phase.OPENING, Phase.CLOSED, Phase.DISCARDING},
    Phase.OPENING: {Phase.IDLE, Phase.CLOSED},
    Phase.IDLE: {Phase.COLLECTING, Phase.DISCARDING},
    Phase.COLLECTING: {Phase.COMMITTING, Phase.SETTLING},
    Phase.COMMITTING: {Phase.SETTLING},
    Phase.SETTLING: {Phase.IDLE, Phase.ABORTING, Phase.DISCARDING},
    Phase.ABORTING: {Phase.IDLE, Phase.DISCARDING},
    Phase.DISCARDING: {Phase.CLOSED},
    Phase.GIVEN_UP: set(),
}
_AT_KAFKA = frozenset({Phase.OPENING, Phase.COLLECTING, Phase.COMMITTING, Phase.ABORTING, Phase.DISCARDING})
#: In these no edge has been answered yet.
_UNSETTLED = frozenset({Phase.COLLECTING, Phase.COMMITTING})

#: What has positions read again: a source, its lease, and the seconds until then.
Waiting = list[tuple[str, int, float]]


class LaneState:
    """The phase of one lane, and what it holds."""

    def __init__(self) -> None:
        self.phase = Phase.CLOSED
        #: What is collected, committed or aborted now.
        self.transaction: Transaction | None = None
        #: The sources that go on once what their last transaction did is known: when the transactional id is initialised again.
        self.waiting: Waiting = []
        self._since = time.monotonic()
        self._lock = threading.Lock()

    def enter(self, phase: Phase) -> bool:
        """Go on with a phase; return False when the lane was given up meanwhile: then its thread touches nothing more."""
        with self._lock:
            if self.phase is Phase.GIVEN_UP:
                return False
            assert phase in _NEXT[self.phase], f"{self.phase.name} to {phase.name}"
            self.phase, self._since = phase, time.monotonic()
            return True

    def hangs(self) -> bool:
        """Whether a call to Kafka has not returned for far too long."""
        return self.phase in _AT_KAFKA and time.monotonic() - self._since > HUNG_SECONDS

    def give_up(self) -> tuple[Transaction | None, bool] | None:
        """Give the lane up if it is at Kafka; return its transaction, and whether its edges still have to be answered."""
        with self._lock:
            if self.phase not in _AT_KAFKA:
                # Its call has returned after all.
                return None
            is_unsettled, self.phase = self.phase in _UNSETTLED, Phase.GIVEN_UP
            if self.transaction is not None:
                self.transaction.end()
            return self.transaction, is_unsettled
