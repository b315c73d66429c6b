"""The records of a delivery in order: those that wait for their receivers, and which offset may be committed. Pure.

The rule of order: of the records of one key at most one is in transit, and the next follows when that one is finished, that is
accepted or in the dead-letter topic. So a record that is sent again, whatever happened to it, is never overtaken by a later one
of its key, while other keys of the address, and other addresses, go on.

The rule of commits: the offset below which every record is settled. Memory is bounded by the caller, which stops to read when
`span` is too large. No clock, no socket, no lock.

A record as an AMQP message (docs/deliveries.md): id, address, its place in Kafka, and its value as the body.
"""

import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto

from bridge.deliveries.record import OrderKey, Record
from headrace.amqp.transport import Message, symbol


class State(Enum):
    """What a record is at."""

    #: For its turn, for credit, or for the pause after it came back.
    WAITING = auto()
    #: Without an outcome yet.
    SENT = auto()
    #: To be written to the dead-letter topic.
    CONDEMNED = auto()
    FINISHED = auto()
    #: Its partition was taken from this bridge, which does not settle it any more.
    DROPPED = auto()


class Entry:
    """A record on its way to an address."""

    __slots__ = ("address", "condition", "description", "record", "sends", "state")

    def __init__(self, record: Record, address: str) -> None:
        self.record = record
        #: Empty where the record has none: such a one is condemned at once.
        self.address = address
        self.state = State.WAITING
        #: How often it was sent.
        self.sends = 0
        #: Why it becomes a dead letter: an AMQP condition or one of ours, and a sentence.
        self.condition = self.description = ""


class _Line:
    """The records of one address."""

    def __init__(self) -> None:
        self.by_key: dict[OrderKey, deque[Entry]] = {}
        #: Keys whose first record may be sent, in turn; only such as have records.
        self.ready: OrderedDict[OrderKey, None] = OrderedDict()
        #: Keys whose first record came back, by the time at which it is sent again.
        self.paused: list[tuple[float, int, OrderKey]] = []
        #: How many are in transit.
        self.sent = 0


class Pending:
    """The records of one delivery."""

    def __init__(self, window: int, pause: Callable[[int], float]) -> None:
        self._window = window
        #: Returns the seconds to wait before a record is sent again, by how often it was.
        self._pause = pause
        self._lines: dict[str, _Line] = {}
        self._numbers = itertools.count()

    def add(self, entry: Entry) -> None:
        """Put a record behind those of its key."""
        line = self._lines.setdefault(entry.address, _Line())
        key = entry.record.order_key
        if key in line.by_key:
            line.by_key[key].append(entry)
        else:
            line.by_key[key] = deque([entry])
            line.ready[key] = None

    def take(self, address: str, now: float) -> Entry | None:
        """Return the next record to send to an address, None while there is none or the window is full."""
        line = self._lines.get(address)
        if line is None:
            return None
        while line.paused and line.paused[0][0] <= now:
            # Its partition may have been dropped.
            if (key := heapq.heappop(line.paused)[2]) in line.by_key:
                line.ready[key] = None
        while line.ready and line.sent < self._window:
            entry = line.by_key[line.ready.popitem(last=False)[0]][0]
            # A key whose first record was condemned meanwhile is passed over.
            if entry.state is State.WAITING:
                entry.state = State.SENT
                entry.sends += 1
                line.sent += 1
                return entry
        return None

    def returned(self, entry: Entry, now: float) -> None:
        """Have a record that came back sent again after a pause."""
        line = self._back(entry)
        if line is not None:
            until = now + self._pause(entry.sends)
            heapq.heappush(line.paused, (until, next(self._numbers), entry.record.order_key))

    def due(self, address: str, now: float) -> float | None:
        """Return in how many seconds the next record that came back is sent again; None where none waits for that."""
        line = self._lines.get(address)
        return max(0.0, line.paused[0][0] - now) if line is not None and line.paused else None

    def lost(self, entry: Entry) -> None:
        """Have a record whose link was lost without an outcome sent again, before others."""
        line = self._back(entry)
        if line is not None:
            key = entry.record.order_key
            line.ready[key] = None
            line.ready.move_to_end(key, last=False)

    def condemn(self, entry: Entry) -> bool:
        """Note that a record becomes a dead letter; False when it is no more of ours. Its key waits until it is finished."""
        self._leave(entry)
        if entry.state is State.DROPPED:
            return False
        entry.state = State.CONDEMNED
        return True

    def finish(self, entry: Entry) -> bool:
        """Note that a record is accepted or in the dead-letter topic; False when it is no more of ours."""
        self._leave(entry)
        if entry.state is State.DROPPED:
            return False
        entry.state = State.FINISHED
        line, key = self._lines[entry.address], entry.record.order_key
        entries = line.by_key[key]
        while entries and entries[0].state is State.FINISHED:
            entries.popleft()
        if not entries:
            del line.by_key[key]
            line.ready.pop(key, None)
            if not line.by_key and not line.sent:
                del self._lines[entry.address]
        elif entries[0].state is State.WAITING:
            line.ready[key] = None
        return True

    def drop(self, partition: int) -> None:
        """Forget the records of a partition."""
        for address, line in list(self._lines.items()):
            for key in [key for key in line.by_key if key[0] == partition]:
                for entry in line.by_key.pop(key):
                    if entry.state is State.SENT:
                        line.sent -= 1
                    entry.state = State.DROPPED
                line.ready.pop(key, None)
            if not line.by_key:
                del self._lines[address]

    def addresses(self) -> list[str]:
        """Return the addresses that have records."""
        return [address for address in self._lines if address]

    @property
    def on_the_way(self) -> int:
        """How many records are without an outcome."""
        return sum(line.sent for line in self._lines.values())

    def overdue(self, before: int) -> Iterator[Entry]:
        """Yield, key by key in order, the waiting records whose timestamp is below `before`, in milliseconds."""
        for line in self._lines.values():
            for entries in line.by_key.values():
                yield from _overdue(entries, before)

    def _back(self, entry: Entry) -> "_Line | None":
        self._leave(entry)
        if entry.state is State.DROPPED:
            return None
        entry.state = State.WAITING
        return self._lines[entry.address]

    def _leave(self, entry: Entry) -> None:
        if entry.state is State.SENT:
            self._lines[entry.address].sent -= 1


def _overdue(entries: Iterable[Entry], before: int) -> Iterator[Entry]:
    for entry in entries:
        if entry.state is State.CONDEMNED:
            continue
        if entry.state is not State.WAITING or not 0 < entry.record.timestamp < before:
            return
        yield entry


class PartitionOffsets:
    """The offsets of one partition from the oldest one that is not settled on."""

    def __init__(self) -> None:
        #: The offset after the last one that was read; None before the first.
        self._next: int | None = None
        self._offsets: deque[int] = deque()
        self._settled: set[int] = set()

    def add(self, offset: int) -> bool:
        """Note that a record was read; False when it was noted before. Offsets ascend, with gaps where there is no record."""
        if self._next is not None and offset < self._next:
            return False
        self._offsets.append(offset)
        self._next = offset + 1
        return True

    def reach(self, end: int) -> None:
        """Note that there are no more records below `end`: what is at the end of a log is no record always."""
        self._next = end if self._next is None else max(self._next, end)

    def settle(self, offset: int) -> None:
        """Note that a record is settled."""
        self._settled.add(offset)
        while self._offsets and self._offsets[0] in self._settled:
            self._settled.discard(self._offsets.popleft())

    @property
    def committable(self) -> int | None:
        """The offset that may be committed; None while nothing is known."""
        return self._offsets[0] if self._offsets else self._next

    @property
    def span(self) -> int:
        """How many records were read from the oldest that is not settled on: they are read again after a restart."""
        return len(self._offsets)

    @property
    def oldest(self) -> int | None:
        """The oldest offset that is not settled; None while all are."""
        return self._offsets[0] if self._offsets else None


#: The application property of a record's header, by the header's name.
HEADER = "header."
_CONTENT_TYPE = "content-type"


def encode(entry: Entry, delivery: str) -> bytes:
    """Return a record as the bytes of a durable message; the body is the record's value, empty for a tombstone."""
    record = entry.record
    properties: dict[str, object] = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    if record.key is not None:
        properties["key"] = _text(record.key)
    if record.value is None:
        properties["tombstone"] = True
    properties |= {HEADER + name: None if value is None else _text(value) for name, value in record.headers}
    content_type = next((value for name, value in record.headers if name == _CONTENT_TYPE and value), b"")
    message = Message(
        body=record.value or b"",
        # Binary goes as data.
        inferred=True,
        durable=True,
        id=record.id,
        address=entry.address,
        subject=delivery,
        delivery_count=entry.sends - 1,
        creation_time=record.timestamp / 1000,
        properties=properties,
    )
    if content_type.isascii() and content_type:
        message.content_type = symbol(content_type.decode("ascii"))
    if record.key is not None and isinstance(key := _text(record.key), str):
        # A broker with several receivers keeps a group with one of them.
        message.group_id = key
    encoded: bytes = message.encode()
    return encoded


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
