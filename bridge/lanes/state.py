"""What a lane is doing: its phases, which follows which, and what a successor gets of it when a call to Kafka does not return.

    CLOSED ──▶ OPENING ──▶ IDLE ──▶ COLLECTING ──▶ COMMITTING ──▶ SETTLING ──▶ IDLE
      ▲           │         │           └───────────────┬─────────────▲│
      └───────────┴─────────┴──── DISCARDING ◀──────────│─────────────┘▼
                                      ▲                 ▼          ABORTING ──▶ IDLE
                                      └──────── (any of them that calls Kafka) ──▶ GIVEN_UP

The lane's thread enters phases; the bridge's main thread gives the lane up while it is in one that calls Kafka. Both under one
lock, so that what a transaction holds is always one lane's: once given up, a lane enters nothing more, and whatever its call
returns later is ignored.

Metrics of each lane: a transaction is of many sources, so its size and cost are a lane's and no source's.
"""

import threading
import time
from dataclasses import dataclass
from enum import Enum, auto

from bridge.lanes.transaction import Transaction
from headrace.metrics.collector import Seconds, counter, histogram


@dataclass(slots=True)
class LaneMetrics:
    """Counts since the bridge started; written by the lane's thread alone."""

    transactions: int = counter("transactions_total", "Transactions committed.")
    aborted: int = counter("aborted_transactions_total", "Transactions aborted, or whose outcome was not known.")
    records: int = counter("records_total", "Records committed.")
    sources: int = counter("sources_total", "Sources in committed transactions, counted in each.")
    partitions: int = counter("partitions_total", "Partitions with records in committed transactions, counted in each.")
    commit_seconds: Seconds = histogram("commit_seconds", "How long Kafka took to commit a transaction.")  # noqa: RUF009

    def commit(self, records: int, sources: int, partitions: int, seconds: float) -> None:
        """Note a committed transaction."""
        self.transactions += 1
        self.records += records
        self.sources += sources
        self.partitions += partitions
        self.commit_seconds.add(seconds)


#: Seconds after which a call counts as hung: librdkafka can hang when a broker dies in a commit.
HUNG_SECONDS = 20.0


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
