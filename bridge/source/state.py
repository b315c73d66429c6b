"""A source at the bridge: a thread that takes its deliveries through the chain into Kafka and gives back their outcomes.

A source that waits for Kafka, or for an operator, holds up no other one. After any error it trusts nothing: what is not
committed is released, the source is taken over again, and goes on from what Kafka says. Made and stopped by the bridge.
"""

import logging
import random
import threading
import time

from bridge.amqp.delivery import Accept, Deliverer, Delivery, Outcome, Reject, Release
from bridge.kafka.client import Fenced, TooLarge
from bridge.kafka.committer import Committer
from bridge.kafka.table_router import NoTopic
from bridge.metrics import Complete, SourceMetrics, number
from bridge.source.chain import Gap, Next, Repeat, Stale, judge
from bridge.source.gap import GapWatch
from bridge.source.inbox import Inbox
from headrace import logs
from headrace.backoff import Backoff
from headrace.batch import Batch, decode
from headrace.errors import CorruptInput, NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.position import Position

_log = logging.getLogger(__name__)

#: A transaction ends at this size whatever the clock says, in compressed bytes and in records.
_LARGEST_BYTES = 2 * 1024 * 1024
_MOST_RECORDS = 10_000
#: Seconds between attempts while an operator is needed: what they do is noticed without a restart.
_OPERATOR_PAUSE = 5.0
_AGAIN = "Trying again. If it lasts, 'headrace bridge doctor' says what is wrong."


class Source(threading.Thread):
    """The thread of one source."""

    def __init__(
        self,
        name: str,
        committer: Committer,
        deliverer: Deliverer,
        inbox: Inbox,
        figures: SourceMetrics,
        *,
        transaction_seconds: float,
        recommit_seconds: float,
    ) -> None:
        super().__init__(name=f"source {name}", daemon=True)
        #: The source, `region/name`.
        self.source = name
        self.inbox = inbox
        self.figures = figures
        #: What went wrong that nobody expected; the bridge ends with it.
        self.failure: BaseException | None = None
        self._committer = committer
        self._deliverer = deliverer
        self._transaction_seconds = transaction_seconds
        self._recommit_seconds = recommit_seconds
        self._stopping = threading.Event()
        self._backoff = Backoff(first=0.2, longest=5.0)
        self._gaps = GapWatch(name)
        self._tail: Position | None = None
        self._outcomes: list[tuple[int, Outcome]] = []
        self._bytes = 0
        self._records = 0
        self._trouble = ""
        #: What the newest batch with figures told, of those in the open transaction.
        self._complete: Complete | None = None

    def stop(self) -> None:
        """Finish the open transaction, release the rest, and end."""
        self._stopping.set()
        self.inbox.close()

    def run(self) -> None:
        """Serve until stopped or taken over."""
        logs.about(self.source)
        try:
            while not self._stopping.is_set():
                try:
                    self._serve()
                except Fenced as error:
                    self._set_back(error)
                    if self._taken_over():
                        return
                except ReplicationError as error:
                    self._set_back(error)
                    operator = isinstance(error, NeedsOperator)
                    self._stopping.wait(_OPERATOR_PAUSE if operator else self._backoff.pause())
            self.figures.state, self.figures.reason = "stopped", ""
        except BaseException as error:  # noqa: BLE001 - the bridge ends with it.
            _log.exception("%s: unexpected error", self.source)
            self.failure = error
        finally:
            self._release()
            self._committer.abandon()

    def _serve(self) -> None:
        self._tail = self._committer.take_over()
        self._backoff.reset()
        self.figures.state, self.figures.reason = "serving", ""
        self.figures.position = str(self._tail or "")
        at = self._tail or "no position: its first batch must start an epoch"
        # Whether a table has its topic by now is tried every few seconds.
        again = self._trouble.startswith(NoTopic.__name__)
        _log.log(logging.DEBUG if again else logging.INFO, "%s: taken over at %s", self.source, at)
        self._deliverer.give_credit(self.source)
        while not self._stopping.is_set():
            idle = self._committer.committed_at + self._recommit_seconds - time.monotonic()
            delivery = self.inbox.take(max(0.0, min(idle, 60.0)))
            if delivery is not None:
                self._transaction(delivery)
            elif idle <= 0 and not self._stopping.is_set():
                self._committer.commit(self._tail)

    def _transaction(self, delivery: Delivery | None) -> None:
        """Take deliveries until the queue is empty or the transaction is old or large enough; commit; settle them all."""
        self._bytes = self._records = 0
        while delivery is not None:
            self._take(delivery)
            delivery = None if self._is_full() else self.inbox.take(0)
        self._commit()
        self.figures.settle(self._complete)
        settled, self._outcomes, self._complete = self._outcomes, [], None
        self._trouble = ""
        self._deliverer.settle(settled)

    def _commit(self) -> None:
        if self._committer.is_open:
            began = time.monotonic()
            self._committer.commit(self._tail)
            self.figures.commit(self._records, time.monotonic() - began)
            self.figures.position = str(self._tail)

    def _is_full(self) -> bool:
        if self._bytes > _LARGEST_BYTES or self._records > _MOST_RECORDS:
            return True
        committer = self._committer
        return committer.is_open and time.monotonic() - committer.began_at >= self._transaction_seconds

    def _take(self, delivery: Delivery) -> None:
        """Judge one delivery and write what of it is new."""
        figures = self.figures
        try:
            batch = self._decode(delivery)
        except CorruptInput as error:
            figures.hear({}, len(delivery.body))
            figures.undecodable += 1
            self._reject(delivery, "amqp:decode-error", f"{error.message}. {error.hint}".rstrip(" "))
            return
        figures.hear(batch.figures, len(delivery.body))
        if batch.figures:
            _log.debug("%s: edge says %s", self.source, batch.figures)
        verdict = judge(self._tail, batch)
        if isinstance(verdict, Next | Repeat) and batch.figures:
            lag, commit_ms = number(batch.figures, "captured_lag_seconds"), number(batch.figures, "commit_ms")
            self._complete = Complete(figures.heard_at, lag or 0.0, commit_ms or 0.0)
        if isinstance(verdict, Gap):
            figures.released += 1
            figures.gaps += 1
            self._gap(delivery, verdict)
        elif isinstance(verdict, Stale):
            self._reject(
                delivery,
                "headrace:stale-epoch",
                f"the batch is of epoch {verdict.epoch:08x}, the source is at {verdict.tail}: an edge with an old checkpoint "
                "is alive. Stop it, and see 'headrace edge init --adopt'",
            )
        elif isinstance(verdict, Next):
            self._write(delivery, batch, verdict)
        else:
            figures.repeats += 1
            self._outcomes.append((delivery.ticket, Accept()))

    def _gap(self, delivery: Delivery, gap: Gap) -> None:
        returns = self._gaps.returns
        self._outcomes.append((delivery.ticket, Release(self._gaps.met(gap))))
        if self._gaps.lasting:
            self.figures.state = "gap"
            self.figures.reason = f"the edge goes on after {gap.follows}, what is before that is missing: see the log"
        if returns == 0 and self._gaps.returns == 1 and self._committer.fenced_by():
            # What is missing here another bridge has written.
            raise Fenced(f"{self.source} has moved on without this bridge")

    def _decode(self, delivery: Delivery) -> Batch:
        batch = decode(delivery.properties, delivery.content_encoding, delivery.body)
        if batch.source != self.source:
            raise CorruptInput(
                f"a batch of {batch.source!r} came on the link of {self.source!r}",
                hint="Give every edge its own source name.",
            )
        return batch

    def _write(self, delivery: Delivery, batch: Batch, verdict: Next) -> None:
        if verdict.starts_epoch:
            _log.warning("%s: epoch %08x begins after %s", self.source, batch.last.epoch, self._tail or "nothing")
        self._gaps.closed(batch.follows)
        self.figures.state, self.figures.reason = "serving", ""
        self._outcomes.append((delivery.ticket, Accept()))
        try:
            self._committer.write(batch, verdict.begin)
        except TooLarge as error:
            self._outcomes.pop()
            self._reject(
                delivery,
                "headrace:record-too-large",
                f"a record between {batch.first} and {batch.last} is larger than the topic's max.message.bytes. "
                "Raise it on the topic, then start the edge again",
            )
            raise Retryable("a record is too large for the topic: the batches around it go back") from error
        except CorruptInput as error:
            self._outcomes.pop()
            self._reject(
                delivery, "headrace:no-table", f"between {batch.first} and {batch.last} {error.message}. {error.hint}"
            )
            return
        except NoTopic:
            # Nothing of the batch is written. What comes before it goes on its way: the edge will be asked for this one alone.
            self._commit()
            raise
        self._tail = batch.last
        self._bytes += len(delivery.body)
        self._records += len(batch) - verdict.begin

    def _reject(self, delivery: Delivery, condition: str, description: str) -> None:
        self.figures.rejected += 1
        _log.error("%s: batch rejected at %s: %s", self.source, self._tail or "no position", description)
        self._outcomes.append((delivery.ticket, Reject(condition, description)))

    def _set_back(self, error: ReplicationError) -> None:
        """Trust nothing any more: no credit, no producer, nothing accepted that is not committed."""
        self._deliverer.withhold_credit(self.source)
        self._committer.abandon()
        self._release()
        self._complete = None
        operator = isinstance(error, NeedsOperator)
        trouble = f"{type(error).__name__} {error.message}"
        if trouble != self._trouble:
            level = logging.ERROR if operator else logging.WARNING
            _log.log(level, "%s: %s. %s", self.source, error.message, error.hint or _AGAIN)
        self._trouble = trouble
        # After the log: who sees the state finds there what to do.
        self.figures.set_back("needs an operator" if operator else "waiting for Kafka", error.message)

    def _release(self) -> None:
        """Send back everything that waits for an outcome; what was rejected stays rejected."""
        waiting: list[tuple[int, Outcome]] = [
            (ticket, outcome if isinstance(outcome, Reject) else Release()) for ticket, outcome in self._outcomes
        ]
        self._outcomes = []
        waiting += [(delivery.ticket, Release()) for delivery in self.inbox.clear()]
        self.figures.released += len(waiting)
        self._deliverer.settle(waiting)

    def _taken_over(self) -> bool:
        """Whether another bridge has the source now; Kafka's own time limit for transactions looks the same at first."""
        # The other one makes its name known in its first transaction: leave it the time.
        pause, other = random.uniform(1.0, 2.0), None  # noqa: S311 - spreading load, not guarding a secret.
        while other is None and not self._stopping.wait(pause):
            try:
                other = self._committer.fenced_by()
            except (NotConnected, Retryable):
                # Not knowing is no reason to fence somebody.
                pause = self._backoff.pause()
        if not other:
            return False
        self.figures.state, self.figures.reason = "taken over", f"by bridge {other}"
        _log.error(
            "%s: taken over by bridge %s; this one serves it no more. Two bridges must not serve one source: stop one of them.",
            self.source,
            other,
        )
        self._deliverer.refuse(self.source, "amqp:resource-locked", f"{self.source} is served by bridge {other}")
        return True
