"""A lane: one transactional producer that commits records and positions of whatever sources are ready, many in one transaction.

A transaction names the group's generation, so the broker refuses a bridge that has lost its sources (design decision 4). After
any error nothing is trusted: the transaction is aborted, or the producer replaced and its id initialised again; the sessions in
it end, and their positions are read again. Sources that may be the reason go on in an isolated lane, one in a transaction, so
that the others go on at once. No thread of its own: one thread calls `turn`. Its phases are in bridge/lanes/transaction.py: where
a call does not return, whatever call it is, a successor has its sources.
"""

import logging
import time
from collections.abc import Collection
from typing import NamedTuple

from bridge.kafka.topics import RecordLimits
from bridge.lanes.part import Part
from bridge.lanes.transaction import COMMIT_SECONDS, HUNG_SECONDS, LaneState, Pacing, Phase, Transaction, Waiting
from bridge.metrics import LaneMetrics
from bridge.model.delivery import Deliverer
from bridge.model.ports import Fenced, OldGeneration, OpenProducer, PartitionsFailed, TransactionalProducer
from bridge.source.registry import NotOwner, SourceRegistry
from bridge.source.session import Session
from headrace.errors import NotConnected, ReplicationError, Retryable
from headrace.waiting import Backoff

_log = logging.getLogger(__name__)


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
        self._open_producer = open_producer
        self._registry = registry
        self._deliverer = deliverer
        self._limits = limits
        self._settings = settings
        self._producer: TransactionalProducer | None = None
        self._pacing = Pacing(settings.transaction_seconds)
        self._state = LaneState()
        self._backoff = Backoff(first=0.2, longest=5.0)
        self._open_at = 0.0
        self._swept = False

    def turn(self, seconds: float) -> None:
        """Commit at most one transaction, waiting for something to commit at most `seconds`."""
        if self._producer is not None and self._producer.is_stale() and not self._discard():
            return
        if (
            self._producer is None
            and not (self.isolated and self._swept and not self._state.waiting)
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
        if self._producer is None:
            # It waits there, for the next turn: a call that hangs would hold it.
            self._registry.ready.give_back([session])
            if not self._open(0):
                time.sleep(min(seconds, 0.1))
            return
        self._commit(session)

    @property
    def given_up(self) -> bool:
        """Whether it was given up because a call hung: its thread does nothing more."""
        return self._state.phase is Phase.GIVEN_UP

    def hangs(self) -> bool:
        """Whether a call to Kafka has not returned for far too long."""
        return self._state.hangs()

    def give_up(self) -> "Lane | None":
        """Leave the thread that hangs behind; return a lane with the same transactional id, which aborts what this one left.

        None where the call has returned after all.
        """
        taken = self._state.give_up()
        if taken is None:
            return None
        transaction, is_unsettled = taken
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
        successor._state.waiting = self._state.waiting
        successor.metrics = self.metrics
        if is_unsettled and transaction is not None:
            error = NotConnected(f"Kafka: no answer within {HUNG_SECONDS:.0f} s")
            successor._state.waiting += self._fail(transaction.parts, error, frozenset(), rest=False)
            successor.metrics.aborted += 1
        if transaction is not None:
            self._registry.ready.give_back([part.session for part in transaction.parts])
        return successor

    def close(self) -> None:
        """Give the producer up, unless a call hangs."""
        if self._state.phase in {Phase.IDLE, Phase.CLOSED} and self._discard():
            self.state = "stopped"

    def _open(self, seconds: float) -> bool:
        """Initialise the transactional id, which ends what its former producer left open; return whether it worked."""
        if (left := self._open_at - time.monotonic()) > 0:
            time.sleep(min(left, seconds))
            return False
        state = self._state
        if not state.enter(Phase.OPENING):
            return False
        try:
            producer = self._open_producer(self.transactional_id)
        except ReplicationError as error:
            if state.enter(Phase.CLOSED):
                self._open_at = time.monotonic() + self._backoff.pause()
                self._note("waiting for Kafka", error)
            return False
        if not state.enter(Phase.IDLE):
            producer.discard()
            return False
        self._producer = producer
        self.state, self.reason = "serving", ""
        waiting, state.waiting = state.waiting, []
        self._registry.recover(waiting)
        return True

    def _commit(self, session: Session) -> None:
        """Collect what is ready, beginning with a session, commit it, and settle it."""
        settings, state = self._settings, self._state
        transaction = Transaction(self._client, self._pacing, isolated=self.isolated)
        state.transaction = transaction
        if not state.enter(Phase.COLLECTING):
            return
        error: ReplicationError | None = None
        seconds = 0.0
        try:
            transaction.collect(session, self._registry, self._limits, settings.transaction_seconds)
            if not state.enter(Phase.COMMITTING):
                return
            seconds = transaction.commit(self._registry, settings.bridge)
        except ReplicationError as caught:
            error = caught
        if not state.enter(Phase.SETTLING):
            return
        is_idle = self._failed(transaction, error) if error is not None else self._committed(transaction, seconds)
        if is_idle:
            self._registry.ready.give_back([part.session for part in transaction.parts])
            state.transaction = None

    @property
    def _client(self) -> TransactionalProducer:
        assert self._producer is not None
        return self._producer

    def _committed(self, transaction: Transaction, seconds: float) -> bool:
        parts = transaction.committed
        if parts:
            self._backoff.reset()
            sources = [part.session.source for part in parts]
            self._pacing.note_end(sources, seconds, is_full=transaction.is_full)
            self.metrics.commit(sum(part.records for part in parts), len(parts), len(transaction.partitions), seconds)
        outcomes = [outcome for part in transaction.parts for outcome in part.commit(seconds)]
        self._deliverer.settle(outcomes)
        self._end_refused(transaction.parts)
        return self._state.enter(Phase.IDLE)

    def _end_refused(self, parts: list[Part]) -> None:
        """End the sessions whose next batch cannot be written, until it can: what comes behind it waits at the edge."""
        for part in parts:
            if part.refused is not None:
                self._registry.states[part.session.source].needs_records = True
                # Before the registry's first answer there is nothing to report.
                is_known = not isinstance(part.refused, Retryable)
                waiting = self._registry.failed(part.session, part.refused, rest=is_known)
                self._registry.recover([waiting] if waiting is not None else [])

    def _failed(self, transaction: Transaction, error: ReplicationError) -> bool:
        """End the sessions, abort, and have the positions read again once the transaction is known to be over.

        Returns False when a call did not return in time: the lane was given up.
        """
        parts, state = transaction.parts, self._state
        self.metrics.aborted += 1
        suspects, rest = self._suspects(parts, error)
        level = logging.DEBUG if suspects else logging.WARNING
        _log.log(level, "lane %s: aborted, %d sources go back: %s", self.transactional_id, len(parts), error.message)
        # From here on they are a successor's, if the abort hangs.
        state.waiting += self._fail(parts, error, suspects, rest=rest)
        problem = self._abort(error) if transaction.has_begun else None
        if self.given_up:
            return False
        if problem is not None:
            return self._discard(problem)
        if not state.enter(Phase.IDLE):
            return False
        self._pacing.note_end()
        waiting, state.waiting = state.waiting, []
        self._registry.recover(waiting)
        return True

    def _fail(self, parts: list[Part], error: ReplicationError, suspects: Collection[str], *, rest: bool) -> Waiting:
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
            suspects = [part for part in written if not part.partitions.isdisjoint(error.failed)]
            return frozenset(part.session.source for part in suspects), True
        if isinstance(error, Fenced | OldGeneration | NotOwner | NotConnected):
            return frozenset(), False
        return frozenset(part.session.source for part in written), len(written) == 1

    def _abort(self, error: ReplicationError) -> ReplicationError | None:
        """Abort; return why the producer is of no more use, None when it is."""
        if isinstance(error, Fenced | NotConnected):
            return error
        self._state.enter(Phase.ABORTING)
        try:
            self._client.abort(COMMIT_SECONDS)
        except ReplicationError as failed:
            return failed
        return None

    def _discard(self, problem: ReplicationError | None = None) -> bool:
        """Give the producer up, because of a problem if there is one; return False when that did not end in time."""
        if not self._state.enter(Phase.DISCARDING):
            return False
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.discard()
        # Its last reference: the client is destroyed here, which may take long.
        del producer
        if not self._state.enter(Phase.CLOSED):
            return False
        if problem is not None:
            self._open_at = time.monotonic() + self._backoff.pause()
            self._note("waiting for Kafka", problem)
        return True

    def _note(self, state: str, error: ReplicationError) -> None:
        if error.message != self.reason:
            _log.warning("lane %s: %s. %s", self.transactional_id, error.message, error.hint or "Trying again.")
        self.state, self.reason = state, error.message
