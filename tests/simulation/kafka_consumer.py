"""A consumer as librdkafka's is, of a group or by itself. A group's heartbeats go on beside the application; its callbacks run
in `poll`.

As in librdkafka: the generation that it tells is the newest it has heard of, also before `on_assign` and `on_revoke` of that
generation have run; after its membership is lost it tells none; a static member does not leave when it closes.
"""

from collections import deque
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from tests.simulation.kafka_group import GroupMetadata, Joined, Opaque
from tests.simulation.kafka_producer import Message
from tests.simulation.kafka_reader import Reader

_AGAIN = 0.1


class Consumer(Reader):
    """confluent_kafka.Consumer."""

    #: Seconds between heartbeats, in place of what the settings say.
    beat: float | None = None

    def __init__(self, settings: Any, logger: Any = None, **more: Any) -> None:
        settings = dict(settings) | more
        super().__init__(settings)
        self._instance = settings.get("group.instance.id")
        self._session = int(settings.get("session.timeout.ms", 45_000)) / 1000
        self._beat = self.beat or int(settings.get("heartbeat.interval.ms", 3_000)) / 1000
        self._topics: list[str] = []
        self._callbacks: dict[str, Any] = {}
        self._metadata = GroupMetadata(self._group, instance=self._instance)
        self._owned: list[tuple[str, int]] = []
        #: Callbacks that wait for `poll`, with their partitions.
        self._events: deque[tuple[str, list[tuple[str, int]]]] = deque()
        self._joining = False
        self._rejoin = False
        self._fatal: Any = None
        self._closed = self._leaving = False
        self._note = settings.get("error_cb")
        self._on_commit = settings.get("on_commit")
        #: Errors of commits that nobody waited for, None for those that were done.
        self._commits: deque[Any] = deque()
        self._round = 0

    # The group.

    def subscribe(self, topics: list[str], on_assign: Any = None, on_revoke: Any = None, on_lost: Any = None) -> None:
        """Take part in the group."""
        self._topics, self._leaving = list(topics), False
        self._callbacks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost or on_revoke}
        self._join()

    def poll(self, timeout: float = -1) -> Any:
        """Serve callbacks; return an error once there is one, or a record."""
        self._scheduler.point()
        record = None
        if not self._events and (record := self._next(timeout)) is None and not self._events:
            self._wait(timeout)
        if self._fatal is not None:
            if self._note is not None:
                self._note(self._fatal)
            message = Message("", -1, None, None)
            message._error = self._fatal
            return message
        self._serve()
        return record

    def consumer_group_metadata(self) -> Opaque:
        """Return the group, and the generation and the member as of now."""
        return Opaque.of(self._metadata)

    def memberid(self) -> str:
        """Return the member's name."""
        return self._metadata.member

    def assignment(self) -> list[Any]:
        """Return what is assigned."""
        return [TopicPartition(*each) for each in self._owned]

    def incremental_assign(self, partitions: list[Any]) -> None:
        """Add to the assignment; without a group, read from these offsets on."""
        if not self._topics:
            self._begin({(each.topic, each.partition): max(0, each.offset) for each in partitions})
            return
        self._owned += [(each.topic, each.partition) for each in partitions]
        self._begin({(each.topic, each.partition): each.offset for each in partitions})

    def incremental_unassign(self, partitions: list[Any]) -> None:
        """Take from the assignment."""
        gone = {(each.topic, each.partition) for each in partitions}
        self._end(gone)
        self._owned = [each for each in self._owned if each not in gone]

    def commit(self, offsets: list[Any], asynchronous: bool = True) -> None:
        """Commit offsets, as a member where it is one."""
        if not self._topics:
            super().commit(offsets, asynchronous)
            return
        places = {(each.topic, each.partition): (each.offset, each.metadata or "") for each in offsets}
        metadata = self._metadata

        def apply() -> int:
            return self._coordinator().commit(places, metadata)

        if not asynchronous:
            self._ask("OffsetCommit", apply, 60.0)
            return

        def answered(value: int) -> None:
            if self._on_commit is not None:
                self._commits.append(KafkaError(value) if value else None)

        failed = KafkaError._TIMED_OUT
        self._channel.send("OffsetCommit", apply, answered, lambda: answered(failed))

    def close(self) -> None:
        """Leave the group, unless the member is static."""
        if self._closed:
            return
        if self._topics:
            self._round += 1
            self._revoke_all()
            if self._instance is None:
                self._leave()
        self._end(set(self._positions))
        self._closed = True

    def unsubscribe(self) -> None:
        """Leave the group, a static member too; what is assigned is revoked in `poll`."""
        if not self._topics:
            return
        self._round += 1
        self._leaving = True
        self._events.clear()
        self._events.append(("revoke", list(self._owned)))
        self._scheduler.wake(self._waiters)

    def _revoke_all(self) -> None:
        partitions = [TopicPartition(*each) for each in self._owned]
        if partitions and self._callbacks["revoke"] is not None:
            self._callbacks["revoke"](self, partitions)
        self._owned = []

    def _leave(self) -> None:
        metadata, self._metadata = self._metadata, GroupMetadata(self._group, instance=self._instance)
        if metadata.member:
            self._channel.send("LeaveGroup", lambda: self._coordinator().leave(metadata), lambda _value: None)

    def _coordinator(self) -> Any:
        return self.broker.group(self._group)

    def _alive(self, number: int) -> bool:
        return number == self._round and not self._closed and self._channel.process.alive

    def _later(self, seconds: float, step: Any) -> None:
        """Take a step of the client's own thread, which is frozen with its process."""
        number = self._round

        def due() -> None:
            if not self._alive(number):
                return
            left = self._channel.process.paused_until - self._scheduler.now
            if left > 0:
                self._scheduler.after(left, due)
            else:
                step()

        self._scheduler.after(seconds, due)

    def _join(self) -> None:
        if self._joining or self._fatal is not None:
            return
        self._joining, self._rejoin = True, False
        self._round += 1
        number, metadata, owned = self._round, self._metadata, list(self._owned)
        answered = [False]
        self._scheduler.trace(f"{self._channel.process.name} asks to join as {metadata.member or 'a new member'}")

        def join() -> None:
            self._coordinator().join(metadata, self._session, self._topics, owned, travel_back)

        def travel_back(value: Any) -> None:
            if self.broker.lost():
                again()
            else:
                self._scheduler.after(self.broker.travel(), lambda: arrived(value))

        def again() -> None:
            self._scheduler.after(_AGAIN, lambda: self._join_again(number))

        def arrived(value: Any) -> None:
            if answered[0] or not self._alive(number):
                return
            left = self._channel.process.paused_until - self._scheduler.now
            if left > 0:
                self._scheduler.after(left, lambda: arrived(value))
                return
            answered[0] = True
            self._joining = False
            self._joined(value)

        self._channel.send("JoinGroup", join, lambda _none: None, again)

    def _join_again(self, number: int) -> None:
        """Ask again on another connection."""
        if self._joining and self._alive(number):
            self._joining = False
            self._join()

    def _joined(self, value: Joined | int) -> None:
        if isinstance(value, int):
            self._refused(value)
            return
        self._metadata = GroupMetadata(self._group, value.generation, value.member, self._instance)
        added = [each for each in value.assignment if each not in self._owned]
        revoked = [each for each in self._owned if each not in value.assignment]
        if revoked:
            self._events.append(("revoke", revoked))
            self._rejoin = True
        self._events.append(("assign", added))
        self._scheduler.wake(self._waiters)
        self._later(self._beat, self._heartbeat)

    def _heartbeat(self) -> None:
        metadata, number = self._metadata, self._round

        def answered(value: int) -> None:
            if self._alive(number) and metadata == self._metadata and not self._joining:
                if value == KafkaError.REBALANCE_IN_PROGRESS:
                    if self._events or self._rejoin:
                        self._rejoin = True
                    else:
                        self._join()
                elif value:
                    self._refused(value)

        self._channel.send(
            "Heartbeat",
            lambda: self._coordinator().heartbeat(metadata),
            lambda value: self._later(0, lambda: answered(value)),
        )
        self._later(self._beat, self._heartbeat)

    def _refused(self, error: int) -> None:
        self._scheduler.trace(f"member {self._metadata.member or '?'}: {KafkaError(error).name()}")
        if error == KafkaError.FENCED_INSTANCE_ID:
            self._fatal = KafkaError(error, "static member was fenced by another with its instance id", fatal=True)
            self._round += 1
            self._events.append(("fenced", []))
            self._scheduler.wake(self._waiters)
            return
        if error == KafkaError.REBALANCE_IN_PROGRESS:
            self._later(_AGAIN, self._join)
            return
        self._metadata = GroupMetadata(self._group, instance=self._instance)
        self._round += 1
        # What was to be said of the generation that is over is said as lost.
        self._events.clear()
        if self._owned:
            self._events.append(("lost", list(self._owned)))
            self._rejoin = True
            self._scheduler.wake(self._waiters)
        else:
            self._later(_AGAIN, self._join)

    def _serve(self) -> None:
        while self._commits:
            self._on_commit(self._commits.popleft(), [])
        while self._events:
            kind, named = self._events.popleft()
            callback = self._callbacks[kind]
            partitions = [TopicPartition(*each) for each in named if kind == "assign" or each in self._owned]
            self._scheduler.trace(f"on_{kind} {named}")
            before = list(self._owned)
            if callback is not None:
                callback(self, partitions)
            if self._owned == before and partitions:
                (self.incremental_assign if kind == "assign" else self.incremental_unassign)(partitions)
        if self._leaving:
            self._leave()
        elif self._rejoin and not self._joining:
            self._join()
