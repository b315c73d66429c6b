"""A part: what one transaction holds of one source. It takes deliveries through the chain and keeps their outcomes; or, while the
source's session releases a withheld table, what was withheld of it.

Nothing of it counts before the transaction is committed: the session's position moves then, and the outcomes go to the edge. Made
and used by one lane (bridge/lanes/lane.py) for one transaction.
"""

import logging
import time
from collections.abc import Mapping, Sequence

from bridge.kafka.topics import RecordLimits
from bridge.metrics import Complete, number
from bridge.model.chain import Gap, Next, Repeat, Stale, judge
from bridge.model.delivery import Accept, Delivery, Outcome, Reject, Release
from bridge.model.ports import Partition, PartitionsFailed, PositionCommit, Share
from bridge.model.position_text import WithheldTable, position_text
from bridge.routing.partitioner import TableRefused
from bridge.routing.registered_schemas import SchemaIds
from bridge.routing.withheld_records import divide, whole
from bridge.source.session import Released, Session
from bridge.source.state import SourceState
from headrace import doors
from headrace.batch import Batch, TooLarge, decode, unpacked_size
from headrace.errors import CorruptInput, NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.logs import printable

_log = logging.getLogger(__name__)

#: Bytes by which an unpacked batch may exceed the largest record of its topics: an edge adds 4 MB, and keys.
_BESIDES_BYTES = 16 << 20
#: An epoch is when its log was made: no edge's clock is ahead by more, in seconds.
_CLOCK_SECONDS = 2 * 86_400.0
#: The pause of an edge whose batch found no memory, in seconds.
_MEMORY_SECONDS = 1.0


class Part:
    """The deliveries of one session in one transaction."""

    def __init__(self, session: Session, state: SourceState, limits: RecordLimits, schemas: SchemaIds) -> None:
        self.session = session
        self._schemas = schemas
        #: Why its session has to end after this transaction: the schemas of a batch in Avro are not registered.
        self.refused: ReplicationError | None = None
        self._state = state
        self._limits = limits
        #: The position and the withheld tables after this transaction; where withheld records end is known once they are written.
        self.tail = session.tail
        self.withheld = session.withheld
        #: Records of deliveries; those that are released were counted when they came.
        self.records = 0
        self.bytes = 0
        #: What their bodies hold once they are unpacked, in bytes.
        self.unpacked = 0
        #: The partitions that records go to.
        self.partitions: set[Partition] = set()
        self._outcomes: list[tuple[int, Outcome]] = []
        self._complete: Complete | None = None
        # Why tables are withheld since this transaction, by table.
        self._reasons: dict[str, str] = {}

    @property
    def has_commit(self) -> bool:
        """Whether there is something to commit."""
        return (
            bool(self.partitions)
            or self.session.dirty
            or (self.tail, self.withheld) != (self.session.tail, self.session.withheld)
        )

    def next(self) -> Sequence[Share] | None:
        """Return the records to write of what comes next; None when nothing waits."""
        if self.session.release.table:
            step = self.session.release.take()
            return None if step is None else self.release(step)
        delivery = None if self.session.looks_first else self.session.inbox.take()
        return None if delivery is None else self.take(delivery)

    def release(self, step: Released) -> Sequence[Share]:
        """Go on with the release of a withheld table; return the records to write."""
        release, withheld = self.session.release, self.withheld.tables.get(step.table)
        if withheld is None or withheld.next != step.begin:
            # The step is of a state that is over: the release begins again from the committed one.
            release.end()
            return ()
        shares: Sequence[Share] = ()
        complete = withheld.complete
        if step.batch is not None:
            complete = step.batch.last
            try:
                shares = whole(step.batch, 0, self._state.route, self._schemas)
            except TableRefused as refused:
                # Its schema was altered once more, while it was withheld.
                self._reasons[step.table] = refused.message
                release.end()
                return ()
            except (NotConnected, Retryable, NeedsOperator, CorruptInput) as error:
                self.refused = error
                return ()
            except Exception as error:  # noqa: BLE001 - whatever it raises, it is about what came in that batch.
                self.refused = doors.WITHHELD.refuse(error, self.session.source)
                return ()
            if large := [share.topic for share in shares if self._limits.exceeded_by(share)]:
                # It concerns this table alone; where the topic takes it now, the release goes on at the next check.
                if not self._limits.refresh(share.topic for share in shares):
                    release.put_off(step.table)
                    self._state.refused(
                        self.session,
                        step.table,
                        f"a withheld record is larger than max.message.bytes of {large[0]}: raise it on the topic; the bridge "
                        "goes on by itself",
                    )
                release.end()
                return ()
        # As long as this transaction withholds more of it, its end is not known.
        is_done = step.next >= self.session.withheld.end and self._state.route.withheld_place not in self.partitions
        if is_done:
            self.withheld = self.withheld.without(step.table)
        else:
            self.withheld = self.withheld.put(step.table, WithheldTable(complete, step.next))
        self.bytes += step.size
        self.partitions |= {(share.topic, share.partition) for share in shares}
        return shares

    def take(self, delivery: Delivery) -> Sequence[Share]:
        """Judge one delivery; return the records to write. Whatever it raises becomes its outcome."""
        count = len(self._outcomes)
        try:
            return self._take(delivery)
        except MemoryError:
            del self._outcomes[count:]
            self._outcomes.append((delivery.ticket, Release(_MEMORY_SECONDS)))
        except Exception as error:  # noqa: BLE001 - nothing is changed before all of the batch was checked.
            del self._outcomes[count:]
            self._refuse(delivery, error, "headrace:unreadable")
        return ()

    def _take(self, delivery: Delivery) -> Sequence[Share]:
        figures = self._state.figures
        try:
            batch = self._decode(delivery)
        except TooLarge as error:
            figures.hear({}, len(delivery.body))
            self._too_large(delivery, error)
            return ()
        except CorruptInput as error:
            figures.hear({}, len(delivery.body))
            figures.undecodable += 1
            self._refuse(delivery, error, "amqp:decode-error")
            return ()
        except NeedsOperator as error:
            figures.hear({}, len(delivery.body))
            figures.undecodable += 1
            self._refuse(delivery, error, "headrace:unknown-version")
            return ()
        figures.hear(batch.figures, len(delivery.body))
        verdict = judge(self.tail, batch)
        if isinstance(verdict, Next | Repeat) and batch.figures:
            lag, commit_ms = number(batch.figures, "captured_lag_seconds"), number(batch.figures, "commit_ms")
            self._complete = Complete(figures.heard_at, lag or 0.0, commit_ms or 0.0)
        if isinstance(verdict, Next):
            return self._next(delivery, batch, verdict)
        if isinstance(verdict, Gap):
            self._outcomes.append((delivery.ticket, Release(self._state.note_gap(verdict))))
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

    def has_end(self, ends: Mapping[Partition, int]) -> bool:
        """Whether offsets after its records have the one that a commit needs."""
        place = self._state.route.withheld_place
        return place not in self.partitions or place in ends

    def positions(self, ends: dict[Partition, int], bridge: str) -> list[PositionCommit]:
        """Return what a bridge commits for the source's partitions, given the offsets after its records.

        Raises NotConnected where Kafka has not reported the end of withheld records, PartitionsFailed where others are beyond it.
        """
        if not self.has_end(ends):
            raise NotConnected(f"Kafka: withheld records of {self.session.source} were not taken in time")
        self.session.offsets |= {place: end for place, end in ends.items() if place in self.session.offsets}
        place = self._state.route.withheld_place
        if place is not None and place in self.partitions:
            if ends[place] <= self.withheld.end:
                # What was committed of it would lead nowhere.
                raise PartitionsFailed(
                    {place: NeedsOperator(f"Kafka: the topic {place[0]} was made again while the bridge ran")}
                )
            self.withheld = self.withheld._replace(end=ends[place])
        text = position_text(self.session.source, self.tail, bridge, self.withheld, self._state.route.partitions)
        return [PositionCommit(*place, offset, text) for place, offset in self.session.offsets.items()]

    def commit(self, seconds: float) -> list[tuple[int, Outcome]]:
        """Note that the transaction is committed, if there was anything to commit; return the outcomes."""
        session, figures = self.session, self._state.figures
        if self.has_commit:
            session.tail, session.withheld, session.dirty = self.tail, self.withheld, False
            if session.release.table and session.release.table not in session.withheld.tables:
                session.release.end()
            self._state.withhold(session, self._reasons)
            self._state.committed(session, self.records, self.unpacked, seconds, wrote=bool(self.partitions))
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
        largest = self._limits.largest + _BESIDES_BYTES
        batch = decode(delivery.properties, delivery.content_encoding, delivery.body, largest)
        if batch.source != self.session.source:
            raise CorruptInput(
                f"a batch of {batch.source!r} came on the link of {self.session.source!r}",
                hint="Give every edge its own source name.",
            )
        epoch = self.tail.epoch if self.tail is not None else 0
        if batch.last.epoch > max(time.time() + _CLOCK_SECONDS, epoch + 1):
            raise CorruptInput(
                f"the batch is of epoch {batch.last.epoch:08x}, which is in the future",
                hint="Correct the clock of the edge's machine, and see 'headrace edge init'.",
            )
        return batch

    def _too_large(self, delivery: Delivery, error: TooLarge) -> None:
        """Refuse a batch that unpacks to more than the source's topics can take, unless they take more now."""
        topics = self._state.route.topics
        grown = self._limits.refresh(topics)
        if grown and unpacked_size(delivery.body) <= self._limits.largest + _BESIDES_BYTES:
            # The edge sends it again.
            self._outcomes.append((delivery.ticket, Release()))
            return
        hint = f"Raise max.message.bytes on the topic {self._state.route.topic}, then start the edge again."
        self._refuse(delivery, CorruptInput(error.message, hint=hint), "headrace:record-too-large")

    def _next(self, delivery: Delivery, batch: Batch, verdict: Next) -> Sequence[Share]:
        tables = self._state.route.tables
        if self._state.names is not None:
            try:
                self._state.names.check(batch, verdict.begin)
            except CorruptInput as error:
                self._refuse(delivery, error, "headrace:other-source")
                return ()
        try:
            # An empty batch starts an epoch, too: then the position moves without records.
            shares, withheld, reasons = divide(
                batch, verdict.begin, self._state.route, self._schemas, self.withheld, self.tail or batch.follows
            )
            shares = [share for share in shares if share.values]
        except (NotConnected, Retryable, NeedsOperator) as error:
            self.refused = error
            self._outcomes.append((delivery.ticket, Release()))
            return ()
        except CorruptInput as error:
            self._refuse(
                delivery,
                CorruptInput(f"between {batch.first} and {batch.last} {error.message}", hint=error.hint),
                "headrace:no-table",
            )
            return ()
        if tables is not None:
            self._state.figures.without_topic = tables.without_topic
        if large := [share.topic for share in shares if self._limits.exceeded_by(share)]:
            if self._limits.refresh(share.topic for share in shares):
                # The topic takes larger records now: the edge sends the batch again.
                self._outcomes.append((delivery.ticket, Release()))
            else:
                self._reject(
                    delivery,
                    "headrace:record-too-large",
                    f"a record between {batch.first} and {batch.last} is larger than the topic's max.message.bytes. "
                    f"Raise it on the topic {large[0]}, then start the edge again",
                )
            return ()
        if verdict.starts_epoch:
            _log.warning("%s: epoch %08x begins after %s", batch.source, batch.last.epoch, self.tail or "nothing")
        self._state.next_link(batch.follows)
        self._outcomes.append((delivery.ticket, Accept()))
        self.tail, self.withheld = batch.last, withheld
        self._reasons |= reasons
        self.bytes += len(delivery.body)
        self.unpacked += unpacked_size(delivery.body)
        self.records += len(batch) - verdict.begin
        self.partitions |= {(share.topic, share.partition) for share in shares}
        return shares

    def _refuse(self, delivery: Delivery, error: Exception, condition: str) -> None:
        """Reject a delivery that cannot be what it should be, as its door has it."""
        answer = doors.BATCH.refuse(error, self.session.source)
        # It may name what came, and the log of its receiver is read by others.
        self._reject(delivery, condition, printable(f"{answer.message}. {answer.hint}".rstrip(" ")))

    def _reject(self, delivery: Delivery, condition: str, description: str) -> None:
        self._state.figures.rejected += 1
        _log.error("%s: batch rejected at %s: %s", self.session.source, self.tail or "no position", description)
        self._outcomes.append((delivery.ticket, Reject(condition, description)))
