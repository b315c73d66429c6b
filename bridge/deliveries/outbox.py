"""What one delivery has to send: filled by its Kafka thread, emptied by the thread that speaks AMQP.

Joins the order of records and their commit (both of bridge/deliveries/pending.py) under one lock: a record's offset is settled
when a receiver accepted it or its dead letter is in Kafka, and never otherwise. Knows no socket and no client; errors of its
callers cannot make it settle anything.
"""

import threading
import time
from collections.abc import Callable

from bridge.deliveries.pending import Entry, PartitionOffsets, Pending, State
from bridge.deliveries.record import AddressTemplate, DeliveryMetrics, Record, Undeliverable
from headrace import doors
from headrace.configuration.sections import Delivery
from headrace.waiting import jitter

#: Conditions of dead letters that the bridge itself gives.
NO_ADDRESS, TOO_LARGE, TOO_OLD = "headrace:no-address", "amqp:link:message-size-exceeded", "headrace:expired"
UNREADABLE = "headrace:unreadable"
_DESCRIPTION = 500
#: Waiting addresses that the status names.
_SHOWN = 5


class Outbox:
    """One delivery's records between Kafka and AMQP; safe for threads."""

    def __init__(
        self,
        name: str,
        settings: Delivery,
        figures: DeliveryMetrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[int], float] | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.template = AddressTemplate(settings.address)
        self._figures = figures
        self._clock = clock
        self._lock = threading.Lock()
        self._pending = Pending(settings.window, pause or _pause)
        self._offsets: dict[int, PartitionOffsets] = {}
        #: Records that wait in each partition, by offset: their size and timestamp.
        self._waiting: dict[int, dict[int, tuple[int, int]]] = {}
        self._bytes: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._condemned: list[Entry] = []
        #: Addresses with something new to send, and why others wait, where that is known.
        self._fresh: set[str] = set()
        self._notes: dict[str, str] = {}
        self._stopped = False

    # The Kafka side.

    def assign(self, partition: int) -> None:
        """Note that a partition is this bridge's from now on."""
        with self._lock:
            self._forget(partition)
            self._offsets[partition], self._waiting[partition] = PartitionOffsets(), {}
            self._bytes[partition] = 0
            self._count()

    def revoke(self, partition: int) -> None:
        """Forget a partition: what is in transit is no more of ours, and its offsets are committed no more."""
        with self._lock:
            self._forget(partition)
            self._count()

    def read(self, record: Record) -> None:
        """Take a record to be delivered; one of a partition that is not ours is passed over."""
        try:
            address, problem = self.template.address(record), ""
        except Undeliverable as error:
            address, problem = "", str(error)
        except Exception as error:  # noqa: BLE001 - whatever it raises, it is about this record alone.
            address, problem = "", doors.DELIVERY.refuse(error, record.topic).message
        with self._lock:
            offsets = self._offsets.get(record.partition)
            if offsets is None or not offsets.add(record.offset):
                return
            self._figures.read += 1
            self._waiting[record.partition][record.offset] = record.size, record.timestamp
            self._bytes[record.partition] += record.size
            entry = Entry(record, address)
            self._pending.add(entry)
            if problem:
                self._condemn(entry, NO_ADDRESS, problem)
            else:
                self._fresh.add(address)
            self._count()

    def reach(self, partition: int, end: int) -> None:
        """Note that there is no record below `end` that was not read."""
        with self._lock:
            if partition in self._offsets:
                self._offsets[partition].reach(end)

    def take_fresh(self) -> list[str]:
        """Return the addresses that have something new to send since the last call."""
        with self._lock:
            addresses, self._fresh = list(self._fresh), set()
            return addresses

    def is_full(self, partition: int) -> bool:
        """Return whether a partition must not be read on now."""
        with self._lock:
            return self._share(partition) >= 1.0

    def has_space(self, partition: int) -> bool:
        """Return whether a partition that was full may be read on: half of what it may hold is free."""
        with self._lock:
            return self._share(partition) <= 0.5

    def committable(self) -> dict[int, int]:
        """Return the offset to commit of each partition in which it moved since `committed`."""
        with self._lock:
            by_partition = {partition: offsets.committable for partition, offsets in self._offsets.items()}
            return {
                partition: offset
                for partition, offset in by_partition.items()
                if offset is not None and offset > self._committed.get(partition, -1)
            }

    def committed(self, offsets: dict[int, int]) -> None:
        """Note what was committed."""
        with self._lock:
            self._committed |= {
                partition: offset for partition, offset in offsets.items() if partition in self._offsets
            }

    def note_failed_commit(self) -> None:
        """Note that a commit failed: all of it is committable again."""
        with self._lock:
            self._committed.clear()

    def expire(self, before: int) -> None:
        """Make dead letters of waiting records with a timestamp below `before`, in milliseconds since 1970."""
        with self._lock:
            for entry in list(self._pending.overdue(before)):
                hours = self.settings.dead_letter_after_hours
                self._condemn(entry, TOO_OLD, f"nobody accepted it within {hours:g} hours")

    def take_condemned(self) -> list[Entry]:
        """Return the records to write to the dead-letter topic, each once."""
        with self._lock:
            entries, self._condemned = self._condemned, []
            return entries

    def note_buried(self, entry: Entry) -> None:
        """Note that a dead letter is in Kafka."""
        with self._lock:
            if self._pending.finish(entry):
                self._figures.dead_lettered += 1
                self._settle(entry)

    def bury_again(self, entry: Entry) -> None:
        """Have a dead letter that Kafka did not take written again."""
        with self._lock:
            if entry.state is State.CONDEMNED:
                self._condemned.append(entry)

    # The AMQP side.

    def take(self, address: str) -> Entry | None:
        """Return the next record for an address, None while there is none that may be sent."""
        with self._lock:
            entry = None if self._stopped else self._pending.take(address, self._clock())
            if entry is not None and entry.sends > 1:
                self._figures.redelivered += 1
            return entry

    def accepted(self, entry: Entry) -> None:
        """Note that a receiver has it."""
        with self._lock:
            if self._pending.finish(entry):
                self._figures.delivered += 1
                self._figures.rate.add(1)
                self._settle(entry)

    def returned(self, entry: Entry) -> None:
        """Have a record that came back sent again, after a pause (`due`)."""
        with self._lock:
            self._pending.returned(entry, self._clock())

    def due(self, address: str) -> float | None:
        """Return in how many seconds the next record that came back is sent again; None where none waits for that."""
        with self._lock:
            return None if self._stopped else self._pending.due(address, self._clock())

    def lost(self, entry: Entry) -> None:
        """Have a record whose link is gone sent again."""
        with self._lock:
            self._pending.lost(entry)

    def rejected(self, entry: Entry, condition: str, description: str) -> None:
        """Make a dead letter of a record that a receiver rejected, or that cannot be sent."""
        with self._lock:
            self._condemn(entry, condition, description)

    def addresses(self) -> list[str]:
        """Return the addresses that have records."""
        with self._lock:
            return self._pending.addresses()

    def note(self, address: str, reason: str) -> None:
        """Note why no receiver takes the records of an address; an empty reason: one does."""
        with self._lock:
            if reason:
                self._notes[address] = reason
            else:
                self._notes.pop(address, None)

    def look(self) -> None:
        """Bring the figures of waiting addresses up to date."""
        with self._lock:
            there = set(self._pending.addresses())
            self._notes = {address: reason for address, reason in self._notes.items() if address in there}
            self._figures.waiting_addresses = len(self._notes)
            self._figures.notes = [f"{address}: {reason}" for address, reason in sorted(self._notes.items())[:_SHOWN]]

    @property
    def on_the_way(self) -> int:
        """How many records are without an outcome."""
        with self._lock:
            return self._pending.on_the_way

    def stop(self) -> None:
        """Give nothing more to send."""
        with self._lock:
            self._stopped = True

    # Under the lock.

    def _condemn(self, entry: Entry, condition: str, description: str) -> None:
        if self._pending.condemn(entry):
            entry.condition, entry.description = condition[:_DESCRIPTION], description[:_DESCRIPTION]
            self._condemned.append(entry)

    def _settle(self, entry: Entry) -> None:
        partition, offset = entry.record.partition, entry.record.offset
        self._offsets[partition].settle(offset)
        size, _ = self._waiting[partition].pop(offset)
        self._bytes[partition] -= size
        if entry.address:
            # The next of its key, where nothing else would wake its address.
            self._fresh.add(entry.address)
        self._count()

    def _share(self, partition: int) -> float:
        offsets = self._offsets.get(partition)
        if offsets is None:
            return 0.0
        limit = self.settings.max_pending_megabytes << 20
        return max(offsets.span / self.settings.max_pending_records, self._bytes[partition] / limit)

    def _forget(self, partition: int) -> None:
        self._pending.drop(partition)
        self._offsets.pop(partition, None)
        self._waiting.pop(partition, None)
        self._bytes.pop(partition, None)
        self._committed.pop(partition, None)

    def _count(self) -> None:
        self._figures.assigned = len(self._offsets)
        self._figures.pending = sum(map(len, self._waiting.values()))
        oldest = [
            self._waiting[partition][offsets.oldest][1]
            for partition, offsets in self._offsets.items()
            if offsets.oldest is not None
        ]
        self._figures.oldest_ms = min(oldest, default=None)


def _pause(sends: int) -> float:
    return jitter(0.1 * 2 ** min(sends - 1, 10), longest=10.0)
