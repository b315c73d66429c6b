"""One session with the database: has its log read and decoded, fills the outbox, confirms what is acknowledged.

Guarantees that the checkpoint is durable before anything is confirmed to the source; that nothing is confirmed beyond what is
acknowledged; that a session keeps nothing of the one before it: what was not acknowledged is read again. Assumes that one
session runs at a time. The agent makes one for each connection and runs it in its own thread.
"""

import logging
import select
import time
from collections.abc import Callable

from edge.delivery.outbox import Outbox
from edge.engine import Engine
from edge.observability.figures import Figures
from edge.progress.checkpoint import Progress
from edge.progress.notes import PassedTransactions, RecordSettings
from edge.records.avro_records import AvroRecords
from edge.records.batcher import Batcher, SealedBatch
from edge.records.cloud_events import CloudEvents
from edge.snapshot.active_plan import ActivePlan
from edge.snapshot.coordinator import SnapshotCoordinator
from edge.snapshot.store import SnapshotStore
from edge.snapshot.table_history import TableHistory
from headrace.batch import Figures as BatchFigures
from headrace.configuration.edge import EdgeFile
from headrace.errors import CorruptInput, NeedsOperator, NotConnected
from headrace.waiting import Wakeup

_log = logging.getLogger(__name__)

#: The server hears from the edge at least so often, in seconds.
_STATUS_SECONDS = 2.0
#: A reply that the server requests is sent after at most so long, in seconds.
_REPLY_SECONDS = 0.05
#: A server requests a reply about twice a minute. One that requests one after the other is shutting down: after so long, in
#: seconds, the edge disconnects.
_SHUTDOWN_SECONDS = 3.0
#: A server that does not answer for so long, in seconds, is gone; from a quarter of that on a reply is requested.
_SILENCE_SECONDS = 120.0
#: Figures travel at most so often, in seconds.
_FIGURES_SECONDS = 1.0
#: Between two lines of figures in the log, in seconds.
_LOG_SECONDS = 60.0


class CaptureSession:
    """A running session; `run` returns when `stopping` is true and raises what ended it otherwise."""

    def __init__(
        self,
        config: EdgeFile,
        engine: Engine,
        progress: Progress,
        outbox: Outbox,
        figures: Figures,
        wakeup: Wakeup,
        former_pid: int,
        settings: RecordSettings,
        *,
        history: TableHistory,
    ) -> None:
        self._config = config
        self._history = history
        self._settings = settings
        self._passed = PassedTransactions(engine.state.folder)
        self._passed.begin(progress.checkpoint.position.epoch)
        self._pass_flag = "--lsn" if config.source.postgresql is not None else "--gtid"
        self._progress = progress
        self._outbox = outbox
        self._figures = figures
        self._wakeup = wakeup
        self._address = engine.address
        self._session = engine.open(progress.checkpoint, former_pid)
        self.pid = self._session.pid
        now = time.monotonic()
        self._put_at = self._confirmed_at = self._logged_at = self._heard_at = now
        self._figures_at = 0.0
        self._open_since: float | None = None
        self._reached = self._confirmed = self._replies_requested = self._frames = 0
        self._requested_at = self._requests_since = 0.0
        self._snapshots: SnapshotCoordinator | None = None
        try:
            self._begin(engine)
        except BaseException:
            self.close()
            raise

    def _begin(self, engine: Engine) -> None:
        """Start the stream where the checkpoint is, with nothing of a session before."""
        source, records = self._config.source, self._config.records
        tail = self._progress.restart()
        checkpoint = self._progress.checkpoint
        self._batcher = Batcher(
            source=source.name,
            tail=tail,
            repeat_schema_until=self._settings.begin(checkpoint.position, self._session.log_end),
            target_bytes=self._config.batches.kilobytes * 1024,
            avro=AvroRecords(placeholders=records.unavailable == "placeholder") if records.format == "avro" else None,
            events=CloudEvents(source.name) if records.cloudevents else None,
            figures=self._due_figures,
        )
        # What this process has sent, and what a former one may have.
        sent_until = max(self._settings.sent_until, self._outbox.sent.commit)
        self._history.begin(checkpoint.position.epoch, sent_until)
        self._session.start(checkpoint, self._batcher, self._history)
        active = ActivePlan(
            SnapshotStore(engine.state.folder, source.name), checkpoint.position.epoch, self._history.copied
        )
        self._figures.snapshot, self._figures.failed_copies = active.plan.figures, active.plan.failures
        copied_from = self._session.snapshots()
        if copied_from is not None:
            self._snapshots = SnapshotCoordinator(
                active,
                copied_from,
                acknowledged=lambda: self._outbox.progress()[0],
                wake=self._wakeup.notify,
                aim_bytes=self._config.snapshot.chunk_kilobytes * 1024,
            )
        self._figures.database_connections += 1
        self._figures.database_connected, self._figures.database_problem = 1, ""
        # A server that has nothing to send may not report for long how far it has read.
        self._figures.read_lsn = self._progress.confirmed
        _log.info("reading the log of %s from %s, the next batch follows %s", self._address, checkpoint.place, tail)

    def run(self, stopping: Callable[[], bool]) -> None:
        """Capture until `stopping` is true; raise what ends the session otherwise."""
        log_and_wakeup, wakeup = select.poll(), select.poll()
        log_and_wakeup.register(self._session.fileno(), select.POLLIN)
        for poll in (log_and_wakeup, wakeup):
            poll.register(self._wakeup.fileno(), select.POLLIN)
        outbox, read, take = self._outbox, self._session.read, self._batcher.take
        while True:
            self._wakeup.clear()
            if stopping():
                return
            outbox.check()
            outbox.check_reopening()
            full = outbox.full
            try:
                fed = 0 if full else read(time.time_ns() // 1_000_000)
            except (CorruptInput, NeedsOperator) as error:
                self._note_stop(error)
                raise
            if fed and self._snapshots is not None:
                self._snapshots.save_moved()
            if closed := take():
                self._put(closed)
            now = time.monotonic()
            wait = self._run_due(now, dry=not fed and not full)
            if self._snapshots is not None:
                wait = min(wait, self._snapshots.run_due(now))
            # A session may have work without a frame, as a prepared transaction that is decoded.
            self._listen(now, heard=bool(full or fed))
            if not fed:
                (wakeup if full else log_and_wakeup).poll(wait * 1000)

    def _note_stop(self, error: CorruptInput | NeedsOperator) -> None:
        """Note the transaction that was being decoded when an error ended that, and add the last resort to the error."""
        transaction = self._session.present
        if not transaction or not error.is_of_content:
            return
        self._passed.stop_at(transaction)
        last = f"The last resort, which gives up this transaction's changes: headrace edge pass {self._pass_flag} {transaction}"
        error.hint = f"{error.hint} {last}".strip()

    def finish(self, seconds: float) -> None:
        """Read no more, wait at most `seconds` until what was read is acknowledged, and confirm it."""
        if self._batcher.open_bytes and not self._session.in_transaction:
            self._seal()
        poll = select.poll()
        poll.register(self._wakeup.fileno(), select.POLLIN)
        deadline = time.monotonic() + seconds
        while not self._outbox.empty and (left := deadline - time.monotonic()) > 0:
            self._wakeup.clear()
            self._outbox.check()
            self._report(time.monotonic())
            poll.poll(min(left, _STATUS_SECONDS) * 1000)
        self._progress.save_now()
        self._confirm(time.monotonic())
        self._session.flush(1.0)

    def close(self) -> None:
        """Leave the database, whatever else fails."""
        try:
            if self._snapshots is not None:
                self._snapshots.close()
        finally:
            self._figures.database_connected = 0
            self._history.close()
            self._session.close()

    def _run_due(self, now: float, *, dry: bool) -> float:
        """Do what is due in addition to reading; return for how many seconds nothing will be."""
        wait = self._report(now)
        figures = self._figures
        figures.turned_at = now
        self._history.save_due()
        figures.unacknowledged_batches, figures.unacknowledged_bytes = self._outbox.batches, self._outbox.bytes
        figures.unsettled = self._outbox.unsettled
        if now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            _log.info("%s", figures, extra={"figures": figures.for_batch()})
        batcher, session = self._batcher, self._session
        if dry and batcher.open_bytes and not session.in_transaction:
            self._open_since = self._open_since or now
            linger = self._open_since + self._outbox.linger - now
            if linger > 0:
                return min(wait, linger)
            self._seal()
        if not batcher.open_bytes:
            if (reached := session.passed) > self._reached:
                self._reached = self._figures.read_lsn = reached
                self._outbox.note(reached)
            idle = now - self._put_at
            if idle < self._config.heartbeat_seconds:
                return min(wait, self._config.heartbeat_seconds - idle)
            if self._outbox.empty and not session.in_transaction:
                self._figures_at = 0.0
                self._put([batcher.empty()])
        return wait

    def _seal(self) -> None:
        self._open_since = None
        sealed = self._batcher.seal()
        if sealed is not None:
            self._put([sealed])

    def _put(self, batches: list[SealedBatch]) -> None:
        self._put_at = time.monotonic()
        figures = self._figures
        figures.captured_batches += len(batches)
        count = sum(batch.count for batch in batches)
        figures.captured += count
        figures.captured_bytes += sum(batch.raw_bytes for batch in batches)
        figures.captured_transactions += self._batcher.transactions
        self._batcher.transactions = 0
        figures.dead_letters += self._batcher.dead_letters
        self._batcher.dead_letters = 0
        figures.rate.add(count)
        if commit_ms := batches[-1].commit_ms:
            figures.commit_ms = commit_ms
            figures.captured_latency = time.time() - commit_ms / 1000
        figures.read_lsn = max(figures.read_lsn, batches[-1].confirm)
        self._settings.note_sent(batches[-1].last.commit + 1)
        self._outbox.put(batches)

    def _report(self, now: float) -> float:
        """Save progress and confirm it to the server, when due; return the seconds until that may be due again."""
        wait = self._progress.save(now)
        since = now - self._confirmed_at
        if self._session.replies_requested != self._replies_requested:
            if since < _REPLY_SECONDS:
                return _REPLY_SECONDS - since
            self._replies_requested = self._session.replies_requested
            self._check_shutdown(now)
            self._confirm(now)
        elif self._progress.confirmed != self._confirmed or since >= _STATUS_SECONDS:
            self._confirm(now)
        return _STATUS_SECONDS if wait is None else wait

    def _listen(self, now: float, *, heard: bool) -> None:
        """Notice a server that is silent although a reply was requested, as a half-open connection is."""
        if heard or self._session.frames != self._frames:
            self._frames, self._heard_at = self._session.frames, now
        elif now - self._heard_at > _SILENCE_SECONDS:
            raise NotConnected(f"nothing was heard from {self._address} for {_SILENCE_SECONDS:.0f} s")

    def _confirm(self, now: float) -> None:
        self._confirmed = self._figures.confirmed_lsn = self._progress.confirmed
        self._confirmed_at = now
        silent = now - self._heard_at > _SILENCE_SECONDS / 4
        self._session.confirm(self._confirmed, time.time_ns() // 1_000_000, wants_reply=silent)

    def _check_shutdown(self, now: float) -> None:
        """Disconnect from a server that shuts down: it waits for what only the far side's acknowledgement could confirm."""
        if now - self._requested_at > 1.0:
            self._requests_since = now
        self._requested_at = now
        if now - self._requests_since > _SHUTDOWN_SECONDS:
            raise NotConnected(f"the server of {self._address} is shutting down")

    def _due_figures(self) -> BatchFigures:
        now = time.monotonic()
        if now - self._figures_at < _FIGURES_SECONDS:
            return {}
        self._figures_at = now
        return self._figures.for_batch()
