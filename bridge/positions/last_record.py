"""What the last records of a source's partitions show: its position, where no committed one is left, and which tables are
withheld.

Where partitions begin and end: of all that are asked for in a few requests, each with its own error. What a bridge finds of
withheld records when it takes sources over is refused where the committed position does not have it.
"""

import time
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from bridge.kafka.client import TIMEOUT, KafkaError, KafkaException, OffsetSpec, TopicPartition
from bridge.kafka.errors import error_of, translated
from bridge.model.chain import Withheld
from bridge.model.ports import Committed, Partition
from bridge.model.route import SourceRoute
from headrace.errors import CorruptInput, NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.formats import UNREADABLE
from headrace.position import Position
from headrace.schemas import column_types

#: Partitions that are read at once.
_MOST = 1000
#: For how long nothing may come of any partition, in seconds, once all of a source was read: the others' is tried again.
_REST_SECONDS = 2.0
#: Where partitions begin and end.
Ends = Mapping[Partition, tuple[int, int]]


class _Reading(Protocol):
    """A partition of a source that is read in ranges."""

    source: str
    place: Partition

    def begin(self) -> Any:
        """Return where the next range begins; None where nothing more is to be read."""

    def take(self, record: Any) -> bool:
        """Take a record in, or the event of the partition's end; return whether the range is read."""


class _Backward:
    """A partition that is read backward from its end in growing steps, over markers, tombstones and records of other sources."""

    def __init__(self, source: str, place: Partition, low: int, end: int) -> None:
        self.source, self.place = source, place
        self.greatest: Position | None = None
        self._low, self._start, self._end, self._step = low, end, end, 100

    def begin(self) -> Any:
        """Return where the next range begins; None where all is read, or a position is known."""
        if self.greatest is not None or self._start <= self._low:
            return None
        self._end, self._start = self._start, max(self._low, self._start - self._step)
        self._step = min(self._step * 10, 100_000)
        return TopicPartition(*self.place, self._start)

    def take(self, record: Any) -> bool:
        """Take a record in; return whether the range is read: to its end, or to that of the partition, where markers are last."""
        if record.error() or record.offset() >= self._end:
            return True
        position = position_of(record.value(), self.source)
        if position is not None and (self.greatest is None or position > self.greatest):
            self.greatest = position
        return bool(record.offset() == self._end - 1)


class _First:
    """A partition that is read to its first record, if there is one: what is left of transactions that were aborted is none."""

    def __init__(self, source: str, place: Partition, low: int, high: int) -> None:
        self.source, self.place, self.low, self.high = source, place, low, high
        self.has_record = self._has_begun = False

    def begin(self) -> Any:
        """Return where it begins, once."""
        if self._has_begun:
            return None
        self._has_begun = True
        return TopicPartition(*self.place, self.low)

    def take(self, record: Any) -> bool:
        """Note whether it is a record."""
        self.has_record = not record.error()
        return True


class _Search:
    """Partitions of many sources that are read at once: one that cannot be read holds up the others only until that is seen."""

    def __init__(self, client: Any, readings: Collection[_Reading]) -> None:
        self._client = client
        #: Why partitions could not be read, by source.
        self.errors: dict[str, ReplicationError] = {}
        self._left = Counter(each.source for each in readings)
        self._waiting = deque(readings)
        self._reading: dict[Partition, _Reading] = {}
        #: For how long nothing may come.
        self._seconds = TIMEOUT

    def run(self) -> None:
        """Read until all is known, or nothing comes any more."""
        self._client.assign([])
        came_at = time.monotonic()
        while (self._waiting or self._reading) and time.monotonic() - came_at <= self._seconds:
            self._begin()
            for record in self._client.consume(_MOST, timeout=0.1) if self._reading else ():
                self._take(record)
                came_at = time.monotonic()
        self._client.unassign()
        for each in (*self._waiting, *self._reading.values()):
            self.errors[each.source] = NotConnected(f"Kafka: records of {each.source} could not be read")

    def _begin(self) -> None:
        """Go on with those of which a range is read, and with those for which there was no room."""
        starts = []
        while self._waiting and len(self._reading) < _MOST:
            each = self._waiting.popleft()
            if (start := each.begin()) is None:
                self._end(each)
            else:
                starts.append(start)
                self._reading[each.place] = each
        if starts:
            self._client.incremental_assign(starts)

    def _take(self, record: Any) -> None:
        each, error = self._reading.get((record.topic(), record.partition())), record.error()
        is_failed = error is not None and error.code() != KafkaError._PARTITION_EOF  # noqa: SLF001 - named so.
        if each is None:
            if is_failed:
                raise KafkaException(error)
            # Of a range that is read.
            return
        if not each.take(record):
            return
        self._client.incremental_unassign([TopicPartition(*each.place)])
        del self._reading[each.place]
        if is_failed:
            self.errors[each.source] = error_of(KafkaException(error), f"read the records of {each.source}")
        else:
            self._waiting.append(each)

    def _end(self, each: _Reading) -> None:
        self._left[each.source] -= 1
        if not self._left[each.source]:
            self._seconds = _REST_SECONDS


def read_last_records(client: Any, wanted: Mapping[str, Ends]) -> dict[str, Position | ReplicationError | None]:
    """Return the greatest position of each source in some partitions, None where there is none, or why it is not known."""
    readings = [_Backward(source, place, *ends) for source in wanted for place, ends in wanted[source].items()]
    positions: dict[str, Position | ReplicationError | None] = dict.fromkeys(wanted)
    greatest: dict[str, Position] = {}
    with translated("read the last records of sources"):
        search = _Search(client, readings)
        search.run()
    for each in readings:
        if each.greatest is not None:
            greatest[each.source] = max(each.greatest, greatest.get(each.source, each.greatest))
    return positions | greatest | search.errors


def read_last_record(client: Any, source: str, topics: Sequence[str], partitions: Sequence[int]) -> Position | None:
    """Return the greatest position in the source's partitions of its topics, None when there is none."""
    places = [(topic, partition) for topic in topics for partition in partitions]
    with translated(f"read the last record of {source}"):
        ends = {place: client.get_watermark_offsets(TopicPartition(*place), timeout=TIMEOUT) for place in places}
    position = read_last_records(client, {source: ends})[source]
    if isinstance(position, ReplicationError):
        raise position
    return position


class _Origin(msgspec.Struct):
    name: str
    position: str


class _Envelope(msgspec.Struct):
    source: _Origin


_ENVELOPE = msgspec.json.Decoder(_Envelope)


def position_of(value: bytes | None, source: str) -> Position | None:
    """Return the position that a record's value names, None when it is not a record of the source."""
    value = value or b""
    try:
        origin = column_types.read_origin(value) if value[:1] == column_types.MARK else _ENVELOPE.decode(value).source
        return Position.parse(origin.position) if origin.name == source else None
    except (CorruptInput, *UNREADABLE):
        return None


Bounds = Mapping[Partition, tuple[int, int] | ReplicationError]


def bounds(admin: Any, places: Collection[Partition]) -> Bounds:
    """Return the first offset of some partitions and the one after the last, or why it is not known.

    Raises NotConnected where nothing is known of any.
    """
    ends: dict[Partition, tuple[int, int] | ReplicationError] = {**_unreadable(admin, places)}
    readable = [place for place in places if place not in ends]
    if not readable:
        return ends
    with translated("read the ends of topics", admin):
        asked = [
            admin.list_offsets({TopicPartition(*place): spec for place in readable}, request_timeout=TIMEOUT)
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        ]
    low, high = ({(place.topic, place.partition): answer for place, answer in answers.items()} for answers in asked)
    for place in readable:
        try:
            with translated(f"read the ends of {place[0]}[{place[1]}]"):
                ends[place] = low[place].result().offset, high[place].result().offset
        except (NotConnected, NeedsOperator, Retryable) as error:
            ends[place] = error
    return ends


def _unreadable(admin: Any, places: Collection[Partition]) -> dict[Partition, ReplicationError]:
    """Return those of some partitions that are not there, or have no leader: the ends of no other one are known with them."""
    topics = {topic for topic, _ in places}
    errors: dict[Partition, ReplicationError] = {}
    if not topics:
        return errors
    with translated("read the list of topics", admin):
        # One request, also where each table has a topic of its own.
        only = next(iter(topics)) if len(topics) == 1 else None
        there = admin.list_topics(only, timeout=TIMEOUT).topics
    for place in places:
        topic, number = place
        if topic not in there:
            errors[place] = NeedsOperator(
                f"topic {topic!r} is not in Kafka", hint="Run 'headrace bridge init' to make it."
            )
        elif there[topic].error is not None:
            errors[place] = error_of(KafkaException(there[topic].error), f"read the ends of {topic}")
        elif number not in there[topic].partitions:
            errors[place] = NeedsOperator(f"{topic} has no partition {number}", hint="Run 'headrace bridge init'.")
        elif there[topic].partitions[number].leader < 0:
            errors[place] = NotConnected(
                f"Kafka: {topic}[{number}] has no leader", hint="Look at the brokers: 'headrace bridge doctor'."
            )
    return errors


def known_withheld(
    client: Any,
    admin: Any,
    routes: Mapping[str, SourceRoute],
    positions: Mapping[str, Committed | ReplicationError | None],
) -> dict[str, Committed | ReplicationError | None]:
    """Return those of the sources that are to be changed: with what is withheld, or with the error that keeps them from going on.

    A source whose committed position never had withheld tables, or is lost, must have no withheld records: whoever went on then
    would write a table's later records ahead of them. Without a client, None where records have to be read for that.
    """
    changed: dict[str, Committed | ReplicationError | None] = {}
    places: dict[str, Partition] = {}
    for source, committed in positions.items():
        place = routes[source].withheld_place
        if committed is None or isinstance(committed, ReplicationError):
            continue
        if place is not None:
            places[source] = place
        elif committed.withheld is not None and committed.withheld.tables:
            changed[source] = NeedsOperator(
                f"tables of {source} are withheld, and by the bridge's file none can be: "
                f"{', '.join(sorted(committed.withheld.tables))}",
                hint="Give the file its [registry] and the stream's tables again, until the tables are released.",
            )
    try:
        ends = bounds(admin, places.values())
    except (NotConnected, Retryable, NeedsOperator) as error:
        return changed | dict.fromkeys(places, error)
    readings: list[_First] = []
    for source, place in places.items():
        committed, there = positions[source], ends[place]
        assert isinstance(committed, Committed)
        if isinstance(there, ReplicationError):
            # No other source's affair.
            changed[source] = there
            continue
        (low, high), withheld = there, committed.withheld
        if withheld is not None and withheld.end <= high:
            changed[source] = committed
        elif withheld is not None and withheld.tables:
            changed[source] = _gone(source, place, high, withheld)
        else:
            changed[source] = committed._replace(withheld=Withheld(high))
            readings.append(_First(source, place, low, high))
    return changed | _check_empty(client, readings)


def _gone(source: str, place: Partition, high: int, withheld: Withheld) -> NeedsOperator:
    return NeedsOperator(
        f"{place[0]}[{place[1]}] ends at offset {high}, and withheld records of {source} are up to "
        f"{withheld.end}: {', '.join(sorted(withheld.tables))}",
        hint="The topic was made again, or the file names another one by its prefix. Put the former one back: these "
        "records are in no other.",
    )


def _check_empty(client: Any, partitions: Collection[_First]) -> dict[str, ReplicationError | None]:
    """Return an error for each source in whose partition there are records, or may be; None without a client."""
    readings = [each for each in partitions if each.low < each.high]
    if not readings or client is None:
        return dict.fromkeys((each.source for each in readings), None)
    try:
        with translated("read withheld records"):
            search = _Search(client, readings)
            search.run()
    except ReplicationError as error:
        return {each.source: error for each in readings}
    errors: dict[str, ReplicationError | None] = {
        each.source: NeedsOperator(
            f"{each.place[0]}[{each.place[1]}] holds withheld records, and no committed position of {each.source} has where they "
            "belong",
            hint="Positions were lost, or the partition was another source's. Find out from its records' keys and headers "
            "what is in no other topic; then delete the records, and copy their tables again.",
        )
        for each in readings
        if each.has_record
    }
    return errors | search.errors
