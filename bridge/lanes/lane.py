"""A lane: one transactional producer that commits records and positions of whatever sources are ready, many in one transaction.

A transaction names the group's generation, so the broker refuses a bridge that has lost its sources (design decision 4). After
any error nothing is trusted: the transaction is aborted, or the producer replaced and its id initialised again; the sessions in
it end, and their positions are read again. Sources that may be the reason go on in an isolated lane, one in a transaction, so
that the others go on at once. No thread of its own: one thread calls `turn`.
"""

import logging
import threading
import time
from collections.abc import Collection
from typing import NamedTuple

from bridge.kafka.record_limits import RecordLimits
from bridge.lanes.lane_metrics import LaneMetrics
from bridge.lanes.pacing import Pacing
from bridge.lanes.part import Part
from bridge.lanes.transaction import COMMIT_SECONDS, Transaction
from bridge.model.delivery import Deliverer
from bridge.model.ports import Fenced, OldGeneration, OpenProducer, PartitionsFailed, TransactionalProducer
from bridge.source.ownership import NotOwner
from bridge.source.registry import SourceRegistry
from bridge.source.session import Session
from headrace.errors import NotConnected, ReplicationError, Retryable
from headrace.waiting import Backoff

_log = logging.getLogger(__name__)

#: A call that has not returned after so long never will, in seconds: librdkafka can hang when a broker dies in a commit.
HUNG_SECONDS = 20.0


class LaneSettings(NamedTuple):
    """What all lanes of a bridge share."""

    #: The bridge, as it is named in committed positions.
    bridge: str
    #: The longest time that a transaction collects batches, and that a lane waits for more sources, in seconds.
    transaction_seconds: float = 0.04


class Lane:
    """One transactional producer and what it does; `state` and `reason` are for people."""

    def __init__(
        self,
        transactional_id: str,
        open_producer: OpenProducer,
        registry: SourceRegistry,
        deliverer: Deliverer,
        limits: RecordLimits,
        settings: LaneSettings,
        *,
        isolated: bool = False,
    ) -> None:
        self.transactional_id = transactional_id
        self.isolated = isolated
        self.state, self.reason = "starting", ""
        self.metrics = LaneMetrics()
        #: Whether it was given up because a call hung: its thread does nothing more.
        self.given_up = False
        self._open_producer = open_producer
        self._registry = registry
        self._deliverer = deliverer
        self._limits = limits
        self._settings = settings
        self._producer: TransactionalProducer | None = None
        self._pacing = Pacing(settings.transaction_seconds)
        # What is collected or committed now.
        self._transaction: Transaction | None = None
        self._waiting: list[tuple[str, int, float]] = []
        self._lock = threading.Lock()
        self._backoff = Backoff(first=0.2, longest=5.0)
        self._open_at = 0.0
        self._busy_since: float | None = None
        self._swept = False

    def turn(self, seconds: float) -> None:
        """Commit at most one transaction, waiting for something to commit at most `seconds`."""
        if (
            self._producer is None
            and not (self.isolated and self._swept and not self._waiting)
            and not self._open(seconds)
        ):
            return
        if self.isolated and not self._swept:
            # What this lane left open in its former life is aborted; it connects again when it is needed.
            self._swept = True
            self.close()
            self.state = "not needed"
        self._pacing.gather()
        session = self._registry.ready.take(seconds, isolated=self.isolated)
        if session is None:
            return
        if self._producer is None and not self._open(0):
            self._registry.ready.give_back([session])
            time.sleep(min(seconds, 0.1))
            return
        self._commit(session)

    def hangs(self) -> bool:
        """Whether a call to Kafka has not returned for far too long."""
        since = self._busy_since
        return since is not None and time.monotonic() - since > HUNG_SECONDS

    def give_up(self) -> "Lane":
        """Leave the thread that hangs behind; return a lane with the same transactional id, which aborts what this one left."""
        with self._lock:
            self.given_up = True
            parts = self._transaction.parts if self._transaction is not None else []
            self._transaction = None
        successor = Lane(
            self.transactional_id,
            self._open_producer,
            self._registry,
            self._deliverer,
            self._limits,
            self._settings,
            isolated=self.isolated,
        )
        _log.error("lane %s: Kafka's client did not return; going on with a new one", self.transactional_id)
        error = NotConnected(f"Kafka: no answer within {HUNG_SECONDS:.0f} s")
        successor._waiting = [*self._waiting, *self._fail(parts, error, frozenset(), rest=False)]
        successor.metrics = self.metrics
        successor.metrics.aborted += 1
        return successor

    def close(self) -> None:
        """Give the producer up."""
        if self._producer is not None:
            self._producer.discard()
            self._producer = None
        self.state = "stopped"

    def _open(self, seconds: float) -> bool:
        """Initialise the transactional id, which ends what its former producer left open; return whether it worked."""
        if (left := self._open_at - time.monotonic()) > 0:
            time.sleep(min(left, seconds))
            return False
        self._busy_since = time.monotonic()
        try:
            producer = self._open_producer(self.transactional_id)
        except ReplicationError as error:
            self._open_at = time.monotonic() + self._backoff.pause()
            self._note("waiting for Kafka", error)
            return False
        finally:
            self._busy_since = None
        with self._lock:
            if self.given_up:
                producer.discard()
                return False
            self._producer = producer
            waiting, self._waiting = self._waiting, []
        self.state, self.reason = "serving", ""
        self._registry.recover(waiting)
        return True

    def _commit(self, session: Session) -> None:
        """Collect what is ready, beginning with a session, commit it, and settle it."""
        settings = self._settings
        self._transaction = transaction = Transaction(self._client, self._pacing, isolated=self.isolated)
        error: ReplicationError | None = None
        seconds = 0.0
        try:
            transaction.collect(session, self._registry, self._limits, settings.transaction_seconds)
            self._busy_since = time.monotonic()
            seconds = transaction.commit(self._registry, settings.bridge)
        except ReplicationError as caught:
            error = caught
        self._busy_since = None
        with self._lock:
            if self.given_up:
                return
            self._transaction = None
        if error is not None:
            self._failed(transaction, error)
        else:
            self._committed(transaction, seconds)

    @property
    def _client(self) -> TransactionalProducer:
        assert self._producer is not None
        return self._producer

    def _committed(self, transaction: Transaction, seconds: float) -> None:
        parts = transaction.committed
        if parts:
            self._backoff.reset()
            sources = [part.session.source for part in parts]
            self._pacing.ended(sources, seconds, is_full=transaction.is_full)
            self.metrics.commit(sum(part.records for part in parts), len(parts), len(transaction.partitions), seconds)
        outcomes = [outcome for part in transaction.parts for outcome in part.commit(seconds)]
        self._deliverer.settle(outcomes)
        self._end_refused(transaction.parts)
        self._registry.ready.give_back([part.session for part in transaction.parts])

    def _end_refused(self, parts: list[Part]) -> None:
        """End the sessions whose next batch cannot be written, until it can: what comes behind it waits at the edge."""
        for part in parts:
            if part.refused is not None:
                self._registry.states[part.session.source].needs_records = True
                # Before the registry's first answer there is nothing to report.
                is_known = not isinstance(part.refused, Retryable)
                waiting = self._registry.failed(part.session, part.refused, rest=is_known)
                self._registry.recover([waiting] if waiting is not None else [])

    def _failed(self, transaction: Transaction, error: ReplicationError) -> None:
        """Abort, end the sessions, and have the positions read again once the transaction is known to be over."""
        parts = transaction.parts
        self.metrics.aborted += 1
        suspects, rest = self._suspects(parts, error)
        level = logging.DEBUG if suspects else logging.WARNING
        _log.log(level, "lane %s: aborted, %d sources go back: %s", self.transactional_id, len(parts), error.message)
        waiting = self._fail(parts, error, suspects, rest=rest)
        if self._abort(error, has_begun=transaction.has_begun):
            self._pacing.ended()
            self._registry.recover(waiting)
        else:
            self._waiting += waiting
        self._registry.ready.give_back([part.session for part in parts])

    def _fail(
        self, parts: list[Part], error: ReplicationError, suspects: Collection[str], *, rest: bool
    ) -> list[tuple[str, int, float]]:
        waiting = []
        for part in parts:
            self._deliverer.settle(part.abort())
            source = part.session.source
            reason = error
            if isinstance(error, PartitionsFailed):
                own = [why for place, why in error.failed.items() if place in part.partitions]
                reason = own[0] if own else error
            is_suspect = source in suspects
            if is_suspect:
                self._registry.states[source].needs_records |= bool(part.partitions)
            waiting.append(self._registry.failed(part.session, reason, isolate=is_suspect, rest=is_suspect and rest))
        return [each for each in waiting if each is not None]

    def _suspects(self, parts: list[Part], error: ReplicationError) -> tuple[frozenset[str], bool]:
        """Return the sources of which one cannot be written, and whether it is certain that it is this one."""
        written = [part for part in parts if part.has_commit]
        if isinstance(error, PartitionsFailed):
            found = [part for part in written if not part.partitions.isdisjoint(error.failed)]
            return frozenset(part.session.source for part in found), True
        if isinstance(error, Fenced | OldGeneration | NotOwner | NotConnected):
            return frozenset(), False
        return frozenset(part.session.source for part in written), len(written) == 1

    def _abort(self, error: ReplicationError, *, has_begun: bool) -> bool:
        """Abort; return False when the producer had to be discarded."""
        if self._producer is None:
            return False
        if not has_begun:
            return True
        try:
            if isinstance(error, Fenced | NotConnected):
                raise error
            self._busy_since = time.monotonic()
            self._producer.abort(COMMIT_SECONDS)
        except ReplicationError as failed:
            self._producer.discard()
            self._producer = None
            self._open_at = time.monotonic() + self._backoff.pause()
            self._note("waiting for Kafka", failed)
            return False
        finally:
            self._busy_since = None
        return True

    def _note(self, state: str, error: ReplicationError) -> None:
        if error.message != self.reason:
            _log.warning("lane %s: %s. %s", self.transactional_id, error.message, error.hint or "Trying again.")
        self.state, self.reason = state, error.message
