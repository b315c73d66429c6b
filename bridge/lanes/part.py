"""A part: what one transaction holds of one source. It takes deliveries through the chain and keeps their outcomes; or, while the
source's session releases a withheld table, what was withheld of it.

Nothing of it counts before the transaction is committed: the session's position moves then, and the outcomes go to the edge. Made
and used by one lane (bridge/lanes/lane.py) for one transaction.
"""

import logging
import time
from collections.abc import Mapping, Sequence

from bridge.kafka.topics import RecordLimits
from bridge.metrics import Complete
from bridge.model.chain import Gap, Next, Repeat, Stale, WithheldTable, judge, position_text
from bridge.model.delivery import Accept, Delivery, Outcome, Reject, Release
from bridge.model.ports import Partition, PartitionsFailed, PositionCommit, Share
from bridge.routing.partitioner import TableRefused, share_out_whole
from bridge.routing.registered_schemas import BatchSchemas, BridgeSchemas
from bridge.routing.withheld_records import Divided, divide
from bridge.source.session import Released, Session
from bridge.source.state import SourceState
from headrace import doors
from headrace.batch import Batch, Figures, TooLarge, decode, unpacked_size
from headrace.errors import CorruptInput, NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.logs import escape_line

_log = logging.getLogger(__name__)

#: Bytes by which an unpacked batch may exceed the largest record of its topics: an edge adds 4 MB, and keys.
_BESIDES_BYTES = 16 << 20
#: An epoch is when its log was made: no edge's clock is ahead by more, in seconds.
_CLOCK_SECONDS = 2 * 86_400.0
#: The pause of an edge whose batch found no memory, in seconds.
_MEMORY_SECONDS = 1.0


class _NotTaken(Exception):  # noqa: N818 - an outcome, and no error of ours.
    """A delivery of which nothing is written, with its outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class Part:
    """The deliveries of one session in one transaction."""

    def __init__(self, session: Session, state: SourceState, limits: RecordLimits, schemas: BridgeSchemas) -> None:
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
        #: By ticket.
        self._outcomes: dict[int, Outcome] = {}
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
                shares = share_out_whole(step.batch, 0, self._state.route, BatchSchemas(self._schemas))
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
        self.partitions |= _places_of(shares)
        if is_done:
            self.withheld = self.withheld.without(step.table)
        else:
            self.withheld = self.withheld.put(step.table, WithheldTable(complete, step.next))
        self.bytes += step.size
        return shares

    def take(self, delivery: Delivery) -> Sequence[Share]:
        """Judge one delivery; return the records to write. Whatever is raised becomes its outcome."""
        # Where its lane is given up meanwhile, its edge sends it again.
        self._outcomes[delivery.ticket] = Release()
        outcome: Outcome = Accept()
        shares: Sequence[Share] = ()
        try:
            shares = self._take(delivery)
        except _NotTaken as reason:
            outcome = reason.outcome
        except MemoryError:
            outcome = Release(_MEMORY_SECONDS)
        except Exception as error:  # noqa: BLE001 - nothing is changed before all of the batch was checked.
            outcome = self._refuse(error, "headrace:unreadable")
        self._outcomes[delivery.ticket] = outcome
        return shares

    def _take(self, delivery: Delivery) -> Sequence[Share]:
        batch, unpacked = self._decode(delivery)
        verdict = judge(self.tail, batch)
        if isinstance(verdict, Next | Repeat) and batch.figures:
            self._complete = self._state.figures.read_report()
        if isinstance(verdict, Gap):
            raise _NotTaken(Release(self._state.note_gap(verdict)))
        if isinstance(verdict, Stale):
            raise _NotTaken(
                self._reject(
                    "headrace:stale-epoch",
                    f"the batch is of epoch {verdict.epoch:08x}, the source is at {verdict.tail}: an edge with an old checkpoint "
                    "is alive. Stop it, and see 'headrace edge init --adopt'",
                )
            )
        if isinstance(verdict, Repeat):
            self._state.figures.repeats += 1
            return ()
        shares, withheld, reasons = self._divide(batch, verdict.begin)
        if verdict.starts_epoch:
            _log.warning("%s: epoch %08x begins after %s", batch.source, batch.last.epoch, self.tail or "nothing")
        self._state.next_link(batch.follows)
        partitions, reasons = self.partitions | _places_of(shares), self._reasons | reasons
        # From here on there is nothing for which memory may lack: the position would be committed without the records.
        self.tail, self.withheld, self.partitions, self._reasons = batch.last, withheld, partitions, reasons
        self.bytes += len(delivery.body)
        self.unpacked += unpacked
        self.records += len(batch) - verdict.begin
        return shares

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
        outcomes, self._outcomes = list(self._outcomes.items()), {}
        return outcomes

    def abort(self) -> list[tuple[int, Outcome]]:
        """Return the outcomes after an abort: nothing is accepted; what was rejected stays rejected."""
        outcomes, self._outcomes = list(self._outcomes.items()), {}
        return [(ticket, outcome if isinstance(outcome, Reject) else Release()) for ticket, outcome in outcomes]

    def _decode(self, delivery: Delivery) -> tuple[Batch, int]:
        """Return the batch of a delivery, and the size of its body once it is unpacked; note that it came."""
        figures, unpacked = self._state.figures, unpacked_size(delivery.body)
        reported: Figures = {}
        try:
            batch = decode(
                delivery.properties, delivery.content_encoding, delivery.body, self._limits.largest + _BESIDES_BYTES
            )
            self._check(batch)
            reported = batch.figures
        except TooLarge as error:
            # Unless the source's topics take more now: then the edge sends it again.
            if self._limits.refresh(self._state.route.topics) and unpacked <= self._limits.largest + _BESIDES_BYTES:
                raise _NotTaken(Release()) from error
            hint = f"Raise max.message.bytes on the topic {self._state.route.topic}, then start the edge again."
            corrupt = CorruptInput(error.message, hint=hint)
            raise _NotTaken(self._refuse(corrupt, "headrace:record-too-large")) from error
        except (CorruptInput, NeedsOperator) as error:
            figures.undecodable += 1
            condition = "amqp:decode-error" if isinstance(error, CorruptInput) else "headrace:unknown-version"
            raise _NotTaken(self._refuse(error, condition)) from error
        finally:
            figures.hear(reported, len(delivery.body))
        return batch, unpacked

    def _check(self, batch: Batch) -> None:
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

    def _divide(self, batch: Batch, begin: int) -> Divided:
        """Return what is written of a batch, from a record on, and what is withheld."""
        if self._state.names is not None:
            try:
                self._state.names.check(batch, begin)
            except CorruptInput as error:
                raise _NotTaken(self._refuse(error, "headrace:other-source")) from error
        route = self._state.route
        try:
            # An empty batch starts an epoch, too: then the position moves without records.
            schemas = BatchSchemas(self._schemas)
            divided = divide(batch, begin, route, schemas, self.withheld, self.tail or batch.follows)
        except (NotConnected, Retryable, NeedsOperator) as error:
            self.refused = error
            raise _NotTaken(Release()) from error
        except CorruptInput as error:
            corrupt = CorruptInput(f"between {batch.first} and {batch.last} {error.message}", hint=error.hint)
            raise _NotTaken(self._refuse(corrupt, "headrace:no-table")) from error
        if route.tables is not None:
            self._state.figures.without_topic = route.tables.without_topic
        shares = [share for share in divided.shares if share.values]
        if large := [share.topic for share in shares if self._limits.exceeded_by(share)]:
            if self._limits.refresh(share.topic for share in shares):
                # The topic takes larger records now: the edge sends the batch again.
                raise _NotTaken(Release())
            raise _NotTaken(
                self._reject(
                    "headrace:record-too-large",
                    f"a record between {batch.first} and {batch.last} is larger than the topic's max.message.bytes. "
                    f"Raise it on the topic {large[0]}, then start the edge again",
                )
            )
        return divided._replace(shares=shares)

    def _refuse(self, error: Exception, condition: str) -> Reject:
        """Reject a delivery that cannot be what it should be, as its door has it."""
        answer = doors.BATCH.refuse(error, self.session.source)
        # It may name what came, and the log of its receiver is read by others.
        return self._reject(condition, escape_line(f"{answer.message}. {answer.hint}".rstrip(" ")))

    def _reject(self, condition: str, description: str) -> Reject:
        self._state.figures.rejected += 1
        _log.error("%s: batch rejected at %s: %s", self.session.source, self.tail or "no position", description)
        return Reject(condition, description)


def _places_of(shares: Sequence[Share]) -> set[Partition]:
    return {(share.topic, share.partition) for share in shares}
