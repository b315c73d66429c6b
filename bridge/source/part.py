"""A part: what one transaction holds of one source. It takes deliveries through the chain and keeps their outcomes.

Nothing of it counts before the transaction is committed: the session's position moves then, and the outcomes go to the edge. Made
and used by one lane (bridge/kafka/lane.py) for one transaction.
"""

import logging
from collections.abc import Sequence

from bridge.amqp.delivery import Accept, Delivery, Outcome, Reject, Release
from bridge.kafka.partitioner import shares
from bridge.kafka.ports import Partition, PositionCommit, Share
from bridge.kafka.record_limits import RecordLimits
from bridge.metrics import Complete, number
from bridge.schemas import sharing_out
from bridge.schemas.registered import SchemaIds
from bridge.source.chain import Gap, Next, Repeat, Stale, judge
from bridge.source.session import Session
from bridge.source.state import SourceState
from headrace.batch import Batch, decode
from headrace.errors import CorruptInput, NeedsOperator, NotConnected, ReplicationError, Retryable

_log = logging.getLogger(__name__)


class Part:
    """The deliveries of one session in one transaction."""

    def __init__(self, session: Session, state: SourceState, limits: RecordLimits, schemas: SchemaIds) -> None:
        self.session = session
        self._schemas = schemas
        #: Why its session has to end after this transaction: the schemas of a batch in Avro are not registered.
        self.refused: ReplicationError | None = None
        self._state = state
        self._limits = limits
        #: The position after this transaction.
        self.tail = session.tail
        self.records = 0
        self.bytes = 0
        #: The partitions that records go to.
        self.partitions: set[Partition] = set()
        self._outcomes: list[tuple[int, Outcome]] = []
        self._complete: Complete | None = None

    @property
    def has_commit(self) -> bool:
        """Whether there is something to commit."""
        return bool(self.records) or self.session.dirty or self.tail != self.session.tail

    def take(self, delivery: Delivery) -> Sequence[Share]:
        """Judge one delivery; return the records to write."""
        figures = self._state.figures
        try:
            batch = self._decode(delivery)
        except CorruptInput as error:
            figures.hear({}, len(delivery.body))
            figures.undecodable += 1
            self._reject(delivery, "amqp:decode-error", f"{error.message}. {error.hint}".rstrip(" "))
            return ()
        except NeedsOperator as error:
            figures.hear({}, len(delivery.body))
            figures.undecodable += 1
            self._reject(delivery, "headrace:unknown-version", f"{error.message}. {error.hint}")
            return ()
        figures.hear(batch.figures, len(delivery.body))
        verdict = judge(self.tail, batch)
        if isinstance(verdict, Next | Repeat) and batch.figures:
            lag, commit_ms = number(batch.figures, "captured_lag_seconds"), number(batch.figures, "commit_ms")
            self._complete = Complete(figures.heard_at, lag or 0.0, commit_ms or 0.0)
        if isinstance(verdict, Next):
            return self._next(delivery, batch, verdict)
        if isinstance(verdict, Gap):
            self._outcomes.append((delivery.ticket, Release(self._state.met(verdict))))
        elif isinstance(verdict, Stale):
            self._reject(
                delivery,
                "headrace:stale-epoch",
                f"the batch is of epoch {verdict.epoch:08x}, the source is at {verdict.tail}: an edge with an old checkpoint "
                "is alive. Stop it, and see 'headrace edge init --adopt'",
            )
        else:
            figures.repeats += 1
            self._outcomes.append((delivery.ticket, Accept()))
        return ()

    def positions(self, ends: dict[Partition, int], text: str) -> list[PositionCommit]:
        """Return what to commit for the source's partitions, given the offsets after its records."""
        self.session.offsets |= {place: end for place, end in ends.items() if place in self.session.offsets}
        return [PositionCommit(*place, offset, text) for place, offset in self.session.offsets.items()]

    def commit(self, seconds: float) -> list[tuple[int, Outcome]]:
        """Note that the transaction is committed, if there was anything to commit; return the outcomes."""
        session, figures = self.session, self._state.figures
        if self.has_commit:
            session.tail, session.dirty = self.tail, False
            self._state.committed(session, self.records, seconds)
        figures.settle(self._complete)
        settled, self._outcomes = self._outcomes, []
        return settled

    def abort(self) -> list[tuple[int, Outcome]]:
        """Return the outcomes after an abort: nothing is accepted; what was rejected stays rejected."""
        outcomes: list[tuple[int, Outcome]] = [
            (ticket, outcome if isinstance(outcome, Reject) else Release()) for ticket, outcome in self._outcomes
        ]
        self._outcomes = []
        return outcomes

    def _decode(self, delivery: Delivery) -> Batch:
        batch = decode(delivery.properties, delivery.content_encoding, delivery.body)
        if batch.source != self.session.source:
            raise CorruptInput(
                f"a batch of {batch.source!r} came on the link of {self.session.source!r}",
                hint="Give every edge its own source name.",
            )
        return batch

    def _next(self, delivery: Delivery, batch: Batch, verdict: Next) -> Sequence[Share]:
        tables = self._state.route.tables
        try:
            # An empty batch starts an epoch, too: then the position moves without records.
            found = [share for share in self._shares(batch, verdict.begin) if share.values]
        except (NotConnected, Retryable, NeedsOperator) as error:
            self.refused = error
            self._outcomes.append((delivery.ticket, Release()))
            return ()
        except CorruptInput as error:
            text = f"between {batch.first} and {batch.last} {error.message}. {error.hint}"
            self._reject(delivery, "headrace:no-table", text)
            return ()
        if tables is not None:
            self._state.figures.without_topic = tables.without_topic
        if any(self._limits.exceeded_by(share) for share in found):
            if self._limits.refresh(share.topic for share in found):
                # The topic takes larger records by now: the edge sends the batch again.
                self._outcomes.append((delivery.ticket, Release()))
            else:
                self._reject(
                    delivery,
                    "headrace:record-too-large",
                    f"a record between {batch.first} and {batch.last} is larger than the topic's max.message.bytes. "
                    "Raise it on the topic, then start the edge again",
                )
            return ()
        if verdict.starts_epoch:
            _log.warning("%s: epoch %08x begins after %s", batch.source, batch.last.epoch, self.tail or "nothing")
        self._state.next_link(batch.follows)
        self._outcomes.append((delivery.ticket, Accept()))
        self.tail = batch.last
        self.bytes += len(delivery.body)
        self.records += len(batch) - verdict.begin
        self.partitions |= {(share.topic, share.partition) for share in found}
        return found

    def _shares(self, batch: Batch, begin: int) -> Sequence[Share]:
        """Return the records from `begin` on by topic and partition.

        Raises CorruptInput, and, for records in Avro, what keeps their schemas from being registered.
        """
        route = self._state.route
        if batch.written:
            return sharing_out.shares(batch, begin, route, self._schemas)
        return shares(batch, begin, route.topic, route.partitions, route.tables)

    def _reject(self, delivery: Delivery, condition: str, description: str) -> None:
        self._state.figures.rejected += 1
        _log.error("%s: batch rejected at %s: %s", self.session.source, self.tail or "no position", description)
        self._outcomes.append((delivery.ticket, Reject(condition, description)))
