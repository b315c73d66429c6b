"""The edge agent: from log to interconnect and back, until it is stopped.

Guarantees that the two connections fail and recover apart from each other; that a lost database session leaves nothing behind
but the checkpoint; that stopping waits for what is in flight, and confirms it. Raises what only an operator can pass.
"""

import logging
import select
import time

from edge.answers.handlers import EdgeService, request_service
from edge.delivery.link import Sender
from edge.delivery.outbox import Heartbeat, Outbox
from edge.engine import CheckpointChanged, LogTaken, StreamFailed
from edge.engine_registry import engine_of
from edge.observability.figures import Figures
from edge.progress.checkpoint import Checkpoint, Progress
from edge.progress.notes import RecordSettings
from edge.progress.spool import Spool, spool_limit
from edge.progress.spooler import Spooler
from edge.session import CaptureSession
from edge.snapshot.table_history import TableHistory
from headrace.configuration.edge import EdgeFile
from headrace.errors import ConfigurationError, CorruptInput, NeedsOperator, NotConnected, Retryable
from headrace.metrics.endpoint import Endpoint
from headrace.position import Position
from headrace.waiting import Backoff, Wakeup

_log = logging.getLogger(__name__)

_CLOSE_SECONDS = 3.0
#: A session that lasted so long, in seconds, was a success even where nothing was acknowledged, as of an idle source.
_LONG_SECONDS = 60.0
#: So many equal failures to decode the log at the same place are an operator's matter: about five minutes.
_EQUAL_FAILURES = 10
#: How long a request that is being handled may take at the end, in seconds.
_REQUESTS_SECONDS = 1.0


class _Failures:
    """How often the server failed to decode its log at the same place, and how long to wait before the next attempt."""

    def __init__(self) -> None:
        self._last: tuple[str, Position] | None = None
        self._count = 0
        self._backoff = Backoff(first=1.0, longest=60.0)

    def pause(self, error: StreamFailed, reached: Position) -> float:
        """Return the seconds to wait; raise NeedsOperator after so many equal failures that it will not pass by itself."""
        if self._last != (error.message, reached):
            self._last, self._count = (error.message, reached), 0
            self._backoff.reset()
        self._count += 1
        if self._count >= _EQUAL_FAILURES and not error.may_pass:
            raise error.lasting() from error
        return self._backoff.pause()


class Agent:
    """One source's edge. `run` blocks; `stop` may be called from any thread or a signal handler.

    `stop_seconds`: how long stopping waits for acknowledgements. `timeout_seconds`: how long a log that somebody else reads
    is waited for; None for as long as the server may take to notice that a former edge is gone.
    """

    def __init__(self, config: EdgeFile, *, stop_seconds: float = 10.0, timeout_seconds: float | None = None) -> None:
        self._config = config
        self._stop_seconds = stop_seconds
        self._timeout_seconds = timeout_seconds
        self._stopping = False
        self._wakeup = Wakeup()
        self._engine = engine_of(config)
        self._state = self._engine.state
        self.figures = Figures.from_config(config)
        #: Where metrics, health and status are answered while `run` runs, if they are.
        self.endpoint: Endpoint | None = None

    def stop(self) -> None:
        """Make `run` return soon."""
        self._stopping = True
        self._wakeup.notify()

    def run(self) -> None:
        """Capture and send until stopped; raise NeedsOperator or CorruptInput when a person has to act."""
        with self._state.locked():
            checkpoint = self._checkpoint()
            outbox = Outbox(
                limit_bytes=self._config.batches.window_megabytes << 20,
                tail=checkpoint.position,
                confirmed=checkpoint.confirmed,
            )
            outbox.wake_capture = self._wakeup.notify
            spooler = self._spooler(checkpoint, outbox)
            progress = Progress(self._state, checkpoint, outbox, self._engine.advanced)
            settings = RecordSettings(self._state.folder, self._config)
            history = TableHistory(
                self._state.folder,
                self._config.source.name,
                copies=self._config.snapshot.after_alter == "copy",
                warned=self.figures.warned,
            )
            self.figures.accepted_place = outbox.accepted_place
            self._heartbeat = Heartbeat(self._config, outbox, self.figures)
            service = EdgeService(self._config.source.name, self.figures, lambda: progress.checkpoint.acknowledged)
            requests = request_service(self._config, service, lambda: progress.checkpoint)
            sender = Sender(self._config.interconnect, self._config.source.name, outbox, self.figures, requests)
            if self._config.metrics.listen is not None:
                self.endpoint = Endpoint(self._config.metrics.listen, service)
            watch = self._engine.watch(lambda: progress.checkpoint, self.figures, outbox)
            spooler.start()
            sender.start()
            try:
                self._capture(progress, outbox, settings, history)
                progress.save_now()
                if outbox.empty:
                    settings.stopped(progress.checkpoint, outbox.sent)
                self._heartbeat.final("stopped", "")
            except (NeedsOperator, CorruptInput) as error:
                self.figures.undecodable += isinstance(error, CorruptInput)
                self._heartbeat.final("needs an operator", error.message, lambda: self._stopping)
                raise
            finally:
                watch.stop()
                sender.stop(_CLOSE_SECONDS)
                if requests is not None:
                    requests.stop(_REQUESTS_SECONDS)
                spooler.stop()
                if self.endpoint is not None:
                    self.endpoint.stop()
            position, place = progress.checkpoint.acknowledged, progress.checkpoint.place
            _log.info("stopped: acknowledged %s, confirmed %s, %d batches left", position, place, outbox.batches)

    def _checkpoint(self) -> Checkpoint:
        checkpoint: Checkpoint | None = self._state.read(self._config.source.name)
        if checkpoint is None or checkpoint.stage != "made":
            raise NeedsOperator(
                f"source {self._config.source.name} is not initialised: no finished checkpoint in {self._state.path}",
                hint=f"Run 'headrace edge init --config {self._config.path}'.",
            )
        return checkpoint

    def _spooler(self, checkpoint: Checkpoint, outbox: Outbox) -> Spooler:
        """Take up the spool, of which all that the checkpoint relies on has to be there."""
        settings = self._config.spool
        largest = spool_limit(self._state.folder)
        if settings.megabytes > largest:
            raise ConfigurationError(
                f"[spool] megabytes = {settings.megabytes} is more than the volume of {self._state.folder} can have",
                hint=f"Set it to at most {largest}, or give the state folder a larger volume.",
            )
        spool = Spool(self._state.folder, self._config.source.name, settings.megabytes << 20)
        spool.open(checkpoint.position, checkpoint.promised, checkpoint.confirmed)
        if len(spool):
            _log.info("the spool has %d batches, up to %s: they are sent first", len(spool), spool.end)
        return Spooler(spool, outbox, self.figures, after_seconds=settings.after_seconds)

    def _capture(self, progress: Progress, outbox: Outbox, settings: RecordSettings, history: TableHistory) -> None:
        """Run one session after another until stopped."""
        backoff, failures = Backoff(first=0.1, longest=10.0), _Failures()
        taken_since, former_pid = 0.0, 0
        reached, opened_at = progress.checkpoint.tail, 0.0
        while not self._stopping:
            capture = None
            try:
                capture = CaptureSession(
                    self._config,
                    self._engine,
                    progress,
                    outbox,
                    self.figures,
                    self._wakeup,
                    former_pid,
                    settings,
                    history=history,
                )
                taken_since, former_pid = 0.0, capture.pid
                opened_at = time.monotonic()
                capture.run(lambda: self._stopping)
                capture.finish(self._stop_seconds)
            except LogTaken as error:
                taken_since = taken_since or time.monotonic()
                timeout = error.may_last if self._timeout_seconds is None else self._timeout_seconds
                if time.monotonic() - taken_since > timeout:
                    raise error.lasting() from error
                self._pause(backoff.pause(), error, progress, outbox)
            except CheckpointChanged as error:
                try:
                    progress.replace(error.checkpoint, until=error.until)
                    _log.warning("%s", error.message)
                except Retryable as full:
                    self._pause(backoff.pause(), full, progress, outbox)
            except (NotConnected, Retryable) as error:
                # A session that opened and ended where the one before did was no success.
                lasted = time.monotonic() - opened_at if capture is not None else 0.0
                if progress.checkpoint.tail != reached or lasted > _LONG_SECONDS:
                    backoff.reset()
                reached = progress.checkpoint.tail
                pause = backoff.pause()
                if isinstance(error, StreamFailed):
                    pause = failures.pause(error, reached)
                self._pause(pause, error, progress, outbox)
            finally:
                if capture is not None:
                    capture.close()

    def _pause(self, seconds: float, error: NotConnected | Retryable, progress: Progress, outbox: Outbox) -> None:
        """Wait before the next session; what was read before is sent and acknowledged meanwhile."""
        _log.warning("%s; trying again in %.1f s", error.message, seconds)
        self.figures.database_problem = error.message
        poll = select.poll()
        poll.register(self._wakeup.fileno(), select.POLLIN)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._wakeup.clear()
            if self._stopping:
                return
            outbox.check()
            progress.save(time.monotonic())
            self._heartbeat.tick()
            poll.poll(min(left, self._config.heartbeat_seconds) * 1000)
