"""A consumer as librdkafka's is, as far as it reads: what it is assigned, from where on, and what groups have committed.

What it fetches may be older than what is handed out: it is fetched in pieces, and those of a partition that is taken away are
forgotten.
"""

from collections import deque
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.simulation.kafka_admin import cluster, offset_of
from tests.simulation.kafka_broker import Broker, Channel
from tests.simulation.kafka_producer import Message
from tests.simulation.scheduler import Task

#: Records of one fetch, at most.
_MANY = 20


class Reader:
    """The half of confluent_kafka.Consumer that takes part in no group."""

    broker: Broker

    def __init__(self, settings: dict[str, Any]) -> None:
        self._group = settings["group.id"]
        self._committed_only = settings.get("isolation.level", "read_committed") == "read_committed"
        self._eof = bool(settings.get("enable.partition.eof"))
        self._channel = Channel(self.broker, f"consumer of {self._group}")
        self._scheduler = self.broker.scheduler
        self._waiters: deque[Task] = deque()
        #: The next offset to fetch of each partition; below 0 where it goes on from what is committed, or begins.
        self._positions: dict[tuple[str, int], int] = {}
        self._paused: set[tuple[str, int]] = set()
        #: Partitions whose end was reported.
        self._ended: set[tuple[str, int]] = set()
        self._fetched: deque[Any] = deque()

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return what topics there are."""
        return self._ask("Metadata", lambda: cluster(self.broker, topic), timeout)

    def committed(self, partitions: list[Any], timeout: float = -1) -> list[Any]:
        """Return committed offsets; with `read_committed`, once no transaction holds any of them."""
        asked = [(each.topic, each.partition) for each in partitions]
        result = self._ask(
            "OffsetFetch",
            lambda: self.broker.group(self._group).fetch(asked, stable=self._committed_only),
            timeout,
        )
        return [offset_of(topic, number, result) for topic, number in asked]

    def commit(self, offsets: list[Any], asynchronous: bool = True) -> None:
        """Commit offsets for a group without members, and wait for the answer."""
        assert not asynchronous
        places = {(each.topic, each.partition): (each.offset, each.metadata) for each in offsets}
        self._ask("OffsetCommit", lambda: self.broker.group(self._group).commit(places), 60.0)

    def get_watermark_offsets(self, partition: Any, timeout: float = -1, cached: bool = False) -> tuple[int, int]:
        """Return the first and the next offset."""

        def read() -> Any:
            log = self.broker.partition((partition.topic, partition.partition))
            if log is None:
                return KafkaError.UNKNOWN_TOPIC_OR_PART
            if not self.broker.has_leader((partition.topic, partition.partition)):
                return KafkaError.LEADER_NOT_AVAILABLE
            return log.begin, (log.stable_end if self._committed_only else log.end)

        return self._ask("ListOffsets", read, timeout)  # type: ignore[no-any-return]

    def offsets_for_times(self, partitions: list[Any], timeout: float = -1) -> list[Any]:
        """Return the first offset whose record is not older, -1 where there is none."""

        def read() -> Any:
            results = []
            for each in partitions:
                log = self.broker.partition((each.topic, each.partition))
                if log is None:
                    return KafkaError.UNKNOWN_TOPIC_OR_PART
                offset = next((n for n, entry in enumerate(log.entries) if entry.at >= each.offset), -1)
                results.append(TopicPartition(each.topic, each.partition, offset))
            return results

        return self._ask("ListOffsets", read, timeout)  # type: ignore[no-any-return]

    def assign(self, partitions: list[Any]) -> None:
        """Read from these offsets on."""
        self.unassign()
        self._begin({(each.topic, each.partition): max(0, each.offset) for each in partitions})

    def unassign(self) -> None:
        """Read nothing."""
        self._end(set(self._positions))

    def position(self, partitions: list[Any]) -> list[Any]:
        """Return the offset after the last record of each partition that was handed out."""
        first = {(each.topic(), each.partition()): each.offset() for each in reversed(self._fetched)}
        places = [(each.topic, each.partition) for each in partitions]
        return [TopicPartition(*place, first.get(place, self._positions.get(place, -1001))) for place in places]

    def pause(self, partitions: list[Any]) -> None:
        """Fetch nothing of these; what was fetched of them is fetched again."""
        for place in [(each.topic, each.partition) for each in partitions]:
            self._paused.add(place)
            mine = [each for each in self._fetched if (each.topic(), each.partition()) == place]
            if mine:
                self._positions[place] = mine[0].offset()
                self._fetched = deque(each for each in self._fetched if each not in mine)

    def resume(self, partitions: list[Any]) -> None:
        """Fetch again."""
        self._paused.difference_update((each.topic, each.partition) for each in partitions)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
        """Return what there is to read."""
        if not self._has_more():
            self._scheduler.sleep(max(timeout, 0.01))
            return []
        return self._fetch(num_messages, max(timeout, 0.5))

    def _begin(self, positions: dict[tuple[str, int], int]) -> None:
        self._positions |= positions
        self._paused.difference_update(positions)
        self._ended.difference_update(positions)

    def _end(self, gone: set[tuple[str, int]]) -> None:
        self._positions = {place: at for place, at in self._positions.items() if place not in gone}
        self._fetched = deque(each for each in self._fetched if (each.topic(), each.partition()) not in gone)
        self._paused -= gone

    def _next(self, timeout: float) -> Any:
        """Return the next record, or the end of a partition, None when there is none: nothing is asked for then."""
        if not self._fetched and self._has_more():
            self._fetched.extend(self._fetch(_MANY, max(timeout, 0.05)))
        return self._fetched.popleft() if self._fetched else None

    def _wait(self, timeout: float) -> None:
        self._scheduler.wait(self._waiters, timeout if timeout >= 0 else None)

    def _has_more(self) -> bool:
        """Whether a fetch would bring something: a broker answers it when there is something."""
        for at, position in self._positions.items():
            log = self.broker.partition(at)
            if at in self._paused or log is None or not self.broker.has_leader(at):
                continue
            if position < 0 or position < log.stable_end or (self._eof and at not in self._ended):
                return True
        return False

    def _find_positions(self) -> None:
        """Look up where partitions begin that go on from what is committed."""
        unknown = [at for at, position in self._positions.items() if position < 0 and at not in self._paused]
        if unknown:
            for each in self.committed([TopicPartition(*at) for at in unknown], 5.0):
                at = each.topic, each.partition
                if self._positions.get(at, 0) < 0:
                    log = self.broker.partition(at)
                    self._positions[at] = max(each.offset, log.begin if log is not None else 0)

    def _fetch(self, most: int, seconds: float) -> list[Any]:
        try:
            self._find_positions()
            asked = {at: each for at, each in self._positions.items() if each >= 0 and at not in self._paused}
            ended = set(self._ended)
            answer = self._ask("Fetch", lambda: self._read(asked, ended, most), seconds)
        except KafkaException:
            return []
        records: list[Any] = []
        for at, (read, beyond) in answer.items():
            # What was assigned anew meanwhile, or is paused, is fetched again.
            if self._positions.get(at) == asked[at] and at not in self._paused:
                self._positions[at] = beyond
                records += read
                if any(each.error() is None for each in read):
                    self._ended.discard(at)
                if any(each.error() is not None for each in read):
                    self._ended.add(at)
        return records

    def _read(
        self, asked: dict[tuple[str, int], int], ended: set[tuple[str, int]], most: int
    ) -> dict[tuple[str, int], tuple[list[Any], int]]:
        """Return, at the broker, what there is of each partition, and the offset to go on from."""
        answer: dict[tuple[str, int], tuple[list[Any], int]] = {}
        for at, position in asked.items():
            log = self.broker.partition(at)
            if log is None or not self.broker.has_leader(at):
                continue
            records: list[Any] = []
            for offset, entry in log.committed(position):
                if len(records) == most:
                    break
                records.append(Message(*at, entry.key, entry.value, offset, entry.headers, entry.at))
            most -= len(records)
            if most:
                beyond = max(position, log.stable_end)
                if self._eof and (at not in ended or position < beyond):
                    records.append(Message(*at, None, None, beyond))
                    records[-1]._error = KafkaError(KafkaError._PARTITION_EOF)
                answer[at] = records, beyond
            else:
                answer[at] = records, records[-1].offset() + 1 if records else position
        return answer

    def _ask(self, what: str, apply: Any, timeout: float) -> Any:
        value = self._channel.ask(what, apply, timeout if timeout >= 0 else 60.0)
        if isinstance(value, int) and value:
            raise KafkaException(KafkaError(value))
        return value
