"""A delivery's thread: reads the topic into the outbox, writes dead letters, commits what is settled.

A partition that has too much waiting is paused until half of that is settled. What Kafka reports (a topic that is gone, rights
that are missing, brokers that are unavailable) is the delivery's state until it passes; neither sources nor other deliveries
stop for it. Made, started and stopped by bridge/deliveries/worker.py.

A dead letter of a delivery: the record as it was, with headers that name where it came from and why it is here. Pure.

All deliveries of a bridge: their outboxes, their threads, their figures. Made, started and stopped by the bridge.
"""

import datetime as dt
import logging
import time
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial

from bridge.deliveries.outbox import Outbox
from bridge.deliveries.pending import Entry
from bridge.deliveries.record import DeliveryMetrics, End, Headers, TopicReader
from bridge.kafka.lifetime import Lifetime
from bridge.kafka.producer import RecordWriter
from headrace.configuration.bridge import BridgeFile
from headrace.errors import NeedsOperator, ReplicationError
from headrace.logs import RateLimitedLog

#: What the names of the added headers begin with.
PREFIX = "headrace."


def headers(entry: Entry, now: dt.datetime) -> list[tuple[str, bytes | None]]:
    """Return the headers of a dead letter: the record's own, then ours.

    Ours replace those of an earlier dead letter, where one was produced to the topic again.
    """
    record = entry.record
    own: Headers = tuple(header for header in record.headers if not header[0].startswith(PREFIX))
    added = {
        "id": record.id,
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "address": entry.address,
        "condition": entry.condition,
        "description": entry.description,
        "sends": str(entry.sends),
        "at": now.isoformat(timespec="milliseconds"),
    }
    return [*own, *((PREFIX + name, value.encode()) for name, value in added.items())]


_log = logging.getLogger(__name__)

#: Records read before something else has its turn.
_MANY = 500
_COMMIT_SECONDS = 0.5
#: Seconds between two checks for old records, and for which a state is kept that nothing explains any more.
_EXPIRE_SECONDS, _CALM_SECONDS = 5.0, 5.0
_LOOK_SECONDS = 2.0
#: The pause before dead letters that Kafka did not take are written again, in seconds.
_DEAD_LETTER_SECONDS = 2.0


class Worker:
    """One delivery between Kafka and its outbox."""

    def __init__(
        self,
        file: BridgeFile,
        name: str,
        outbox: Outbox,
        figures: DeliveryMetrics,
        wake: Callable[[Outbox, Iterable[str]], None],
        *,
        open_reader: Callable[..., TopicReader] = TopicReader,
        open_writer: Callable[..., RecordWriter] = RecordWriter,
    ) -> None:
        self._name = name
        self._outbox = outbox
        self._figures = figures
        #: Has the addresses' records sent; from any thread.
        self._wake = wake
        self._settings = file.deliveries[name]
        self._topic, dead_letters = self._settings.topics(name)
        self._open_reader = partial(
            open_reader,
            file.kafka,
            file.delivery_group(name),
            self._topic,
            file.sharing.session_seconds,
            assigned=self._assigned,
            revoked=self._revoked,
        )
        self._reader = self._open_reader()
        self._lifetime = Lifetime(file.kafka)
        self._dead_letters = open_writer(file.kafka, dead_letters)
        self._dead_letters_at = 0.0
        self._partitions: set[int] = set()
        self._paused: set[int] = set()
        self._commit_at = self._expire_at = self._look_at = self._calm_at = 0.0
        self._problem = RateLimitedLog(_log.warning)
        self._dead = RateLimitedLog(_log.warning)

    def turn(self, seconds: float) -> None:
        """Do what is due; wait for records at most `seconds`."""
        try:
            if self._lifetime.is_over():
                self._renew()
            for event in self._reader.read(_MANY, seconds):
                if isinstance(event, End):
                    self._outbox.reach(*event)
                else:
                    self._outbox.read(event)
                    # At once: memory is bounded by this.
                    self._pause_full(event.partition)
            self._look_for_removed()
            self._commit()
            self._look()
        except ReplicationError as error:
            self._note(error)
        self._expire()
        self._write_dead_letters()
        self._resume()
        if fresh := self._outbox.take_fresh():
            self._wake(self._outbox, fresh)

    def _renew(self) -> None:
        """Leave the group, and join it with a new client: certificates and passwords are read when one is made."""
        fresh = self._open_reader()
        # The former one commits what is settled of its partitions.
        self._reader.close()
        self._reader = fresh

    def close(self, seconds: float) -> None:
        """Commit what is settled, and leave the group."""
        self._write_dead_letters()
        self._dead_letters.flush(seconds)
        try:
            self._reader.commit(self._outbox.committable(), wait=True)
        except ReplicationError as error:
            _log.warning("%s: what was delivered last is not committed, and will be sent again: %s", self._name, error)
        self._reader.close()
        self._figures.state, self._figures.reason = "stopped", ""

    def _assigned(self, partition: int) -> None:
        self._partitions.add(partition)
        self._paused.discard(partition)
        self._outbox.assign(partition)

    def _revoked(self, partition: int, lost: bool) -> None:
        """Give a partition up: the next bridge begins where this one committed."""
        try:
            settled = self._outbox.committable()
            if partition in settled and not lost:
                self._reader.commit({partition: settled[partition]}, wait=True)
        except ReplicationError as error:
            _log.warning("%s: not committed: %s", self._name, error.message)
        self._partitions.discard(partition)
        self._paused.discard(partition)
        self._outbox.revoke(partition)

    def _commit(self) -> None:
        now = time.monotonic()
        if self._reader.commit_failed():
            self._outbox.note_failed_commit()
        if now >= self._commit_at and (offsets := self._outbox.committable()):
            self._commit_at = now + _COMMIT_SECONDS
            self._reader.commit(offsets, wait=False)
            self._outbox.committed(offsets)

    def _look(self) -> None:
        """Look now and then whether all is well, where records alone would not show it."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        self._outbox.look()
        # Also those whose pause ended while there was no connection.
        self._wake(self._outbox, self._outbox.addresses())
        if not self._partitions:
            self._reader.check()
        self._lifetime.works()
        if now >= self._calm_at:
            self._figures.state, self._figures.reason = "delivering", ""

    def _look_for_removed(self) -> None:
        for partition, count in self._reader.count_removed().items():
            self._figures.removed += count
            _log.error(
                "%s: Kafka removed up to %d records of %s[%d] before they were delivered: its retention is too short",
                *(self._name, count, self._topic, partition),
            )

    def _write_dead_letters(self) -> None:
        self._dead_letters.poll()
        if time.monotonic() >= self._dead_letters_at:
            for entry in self._outbox.take_condemned():
                written = partial(self._dead_letter_written, entry)
                added = headers(entry, dt.datetime.now(dt.UTC))
                self._dead_letters.write(entry.record.key, entry.record.value, written, added)

    def _dead_letter_written(self, entry: Entry, error: ReplicationError | None) -> None:
        if error is None:
            self._outbox.note_buried(entry)
            # A receiver's description may hold what the record contains: it is in the dead letter alone.
            self._dead("%s: %s is a dead letter: %s", self._name, entry.record.id, entry.condition)
        else:
            self._dead_letters_at = time.monotonic() + _DEAD_LETTER_SECONDS
            self._outbox.bury_again(entry)
            self._note(error)

    def _expire(self) -> None:
        hours, now = self._settings.dead_letter_after_hours, time.monotonic()
        if hours and now >= self._expire_at:
            self._expire_at = now + _EXPIRE_SECONDS
            self._outbox.expire(int((time.time() - hours * 3600) * 1000))

    def _pause_full(self, partition: int) -> None:
        if partition in self._partitions - self._paused and self._outbox.is_full(partition):
            self._reader.pause(partition)
            self._paused.add(partition)

    def _resume(self) -> None:
        for partition in list(self._paused):
            if self._outbox.has_space(partition):
                self._reader.resume(partition)
                self._paused.discard(partition)
        self._figures.paused = len(self._paused)

    def _note(self, error: ReplicationError) -> None:
        self._figures.state = "needs an operator" if isinstance(error, NeedsOperator) else "waiting for Kafka"
        self._figures.reason = error.message
        self._calm_at = time.monotonic() + _CALM_SECONDS
        self._problem("%s: %s%s", self._name, error.message, error.hint and f". {error.hint}")


#: How long records in flight may take to be answered at the end, in seconds.
_LAST_OUTCOMES_SECONDS = 2.0
_LETTERS_SECONDS = 2.0
#: What the names of threads begin with.
_THREAD = "delivery "

#: Starts a thread: its name, and what it does repeatedly.
Start = Callable[[str, Callable[[], None]], None]


class Deliveries:
    """The deliveries of one bridge's file; there may be none."""

    def __init__(self, file: BridgeFile, wake: Callable[[Outbox, Iterable[str]], None]) -> None:
        self._file = file
        self._wake = wake
        self.figures = {name: DeliveryMetrics() for name in file.deliveries}
        self.outboxes = [Outbox(name, settings, self.figures[name]) for name, settings in file.deliveries.items()]
        #: Workers by the name of the thread.
        self._workers: dict[str, Worker] = {}

    def start(self, start: Start) -> None:
        """Start to read the topics."""
        for outbox in self.outboxes:
            worker = Worker(self._file, outbox.name, outbox, self.figures[outbox.name], self._wake)
            self._workers[name := _THREAD + outbox.name] = worker
            start(name, lambda worker=worker: worker.turn(0.1))  # type: ignore[misc]

    def note_hanging(self, hanging: Mapping[str, float]) -> None:
        """Show of whose thread nothing is heard, and for how long; it shows itself that it goes on."""
        for thread in self._workers.keys() & hanging.keys():
            figures = self.figures[thread.removeprefix(_THREAD)]
            figures.state = "waiting for Kafka"
            figures.reason = f"Kafka's client has not returned for {hanging[thread]:.0f} s"

    def finish(self) -> None:
        """Send no more, and wait a moment for the outcomes of what is in flight; the threads still run."""
        for outbox in self.outboxes:
            outbox.stop()
        until = time.monotonic() + _LAST_OUTCOMES_SECONDS
        while time.monotonic() < until and any(outbox.on_the_way for outbox in self.outboxes):
            time.sleep(0.02)

    def close(self, hanging: Container[str]) -> None:
        """Commit what is settled and leave the groups; not those of threads that hang, whose client is in use."""
        for thread, worker in self._workers.items():
            if thread not in hanging:
                worker.close(_LETTERS_SECONDS)
