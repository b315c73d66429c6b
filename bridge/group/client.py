"""The consumer of librdkafka's that takes part in the group of bridges, behind `GroupMember` (bridge/model/ports.py)."""

from collections.abc import Callable, Collection
from typing import Any

from bridge.kafka.client import TIMEOUT, KafkaError, KafkaException, member
from bridge.kafka.entries import leave_group
from bridge.kafka.errors import is_instance_fenced, translated
from bridge.model.ports import GroupMetadata, InstanceFenced, Partition
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import Retryable

#: How the client writes the metadata down: this, the generation in 4 bytes, group and member, each with a zero byte.
_MAGIC = b"CGMDv2:"
#: Seconds that a request for the topics may take.
_LOOK_SECONDS = 2.0

Named = Callable[[Collection[Partition]], None]


class KafkaMember:
    """Implements `GroupMember`."""

    def __init__(
        self, connection: KafkaConnection, admin: Any, group: str, instance: str, session_seconds: float
    ) -> None:
        self._admin = admin
        self._group = group
        self._instance = instance
        self._fatal = ""
        self._settings = connection, session_seconds
        self._consumer = self._make()
        self._known: tuple[bytes, GroupMetadata | None] = (b"", None)
        self._subscribe: Callable[[], None] = lambda: None
        #: While it ends, and once the client itself is being closed.
        self._closing = self._is_closed = False
        #: What it was assigned while it was ending.
        self._declined: set[Partition] = set()

    def join(self, topics: Collection[str], assigned: Named, revoked: Named, lost: Named) -> None:
        """Join the group."""

        def on_assign(consumer: Any, partitions: list[Any]) -> None:
            if self._is_closed:
                # Assigned while the client was being closed, which then answers nothing.
                return
            consumer.incremental_assign(partitions)
            if partitions:
                consumer.pause(partitions)
            places = _places(partitions)
            if self._closing:
                # It takes nothing on.
                self._declined.update(places)
            else:
                assigned(places)

        def given_up(consumer: Any, partitions: list[Any], report: Named) -> None:
            places = [place for place in _places(partitions) if place not in self._declined]
            if places:
                report(places)
            consumer.incremental_unassign(partitions)

        def on_revoke(consumer: Any, partitions: list[Any]) -> None:
            given_up(consumer, partitions, revoked)

        def on_lost(consumer: Any, partitions: list[Any]) -> None:
            given_up(consumer, partitions, lost)

        def subscribe() -> None:
            self._consumer.subscribe(sorted(topics), on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)

        self._subscribe = subscribe
        subscribe()

    def poll(self, seconds: float) -> None:
        """Take part for a moment."""
        with translated(f"take part in group {self._group}"):
            event = self._consumer.poll(seconds)
        if event is not None and event.error() is not None:
            self._noted(event.error())
        if self._fatal:
            raise InstanceFenced(
                f"another bridge has joined the group {self._group} as instance {self._instance!r}",
                hint="Each bridge needs its own name: [sharing] instance in its file. If a bridge was started twice, stop one.",
            )
        if event is not None and event.error() is not None:
            if event.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise Retryable(f"Kafka: the bridge's user is not allowed to read the group {self._group}")
            raise Retryable(f"Kafka: {event.error().str()}")

    def metadata(self) -> GroupMetadata | None:
        """Return the present metadata."""
        opaque = self._consumer.consumer_group_metadata()
        if opaque != self._known[0]:
            self._known = opaque, parse(opaque)
        return self._known[1]

    def close(self, *, leave: bool) -> None:
        """End; a static member that only closes is expected back, one that unsubscribes leaves."""
        self._closing = True
        if leave and not self._fatal:
            leave_group(self._consumer)
        else:
            # An assignment that waits is taken before the client is closed: librdkafka may lose the answer to the second of two
            # changes of its assignment while it closes, and this process would wait for that without end.
            self._consumer.poll(0.1)
        self._is_closed = True
        self._consumer.close()

    def unassigned(self, partitions: Collection[Partition]) -> set[Partition] | None:
        """Ask the group's coordinator which of some partitions no member has; None while members join or leave."""
        group = self._described()
        if group.state.name != "STABLE":
            return None
        return set(partitions) - {
            (place.topic, place.partition)
            for each in group.members
            if each.assignment is not None
            for place in each.assignment.topic_partitions
        }

    def look(self) -> None:
        """Have the client look at its topics now: as the group's leader it begins an assignment when they have grown."""
        with translated("look at the topics"):
            # All of them: after an answer about some the client looks at its group not before the next refresh.
            self._consumer.list_topics(timeout=_LOOK_SECONDS)

    def rejoin(self) -> None:
        """Leave the group and join it again."""
        leave_group(self._consumer)
        try:
            self._subscribe()
        except KafkaException as error:
            # Fenced since it was polled last: what is polled next says so.
            self._fatal = error.args[0].str()

    def is_known(self) -> bool:
        """Ask the group's coordinator whether it has a member of this instance's name."""
        return any(each.group_instance_id == self._instance for each in self._described().members)

    def reset(self) -> None:
        """Go on with a new client: one that was fenced is of no more use."""
        self._replace(self._make())

    def _replace(self, fresh: Any) -> None:
        # The former client is assigned nothing more.
        self._is_closed = True
        self._consumer.close()
        self._consumer, self._fatal, self._is_closed = fresh, "", False

    def renew(self) -> None:
        """Leave the group, and go on with a new client: certificates and passwords are read when one is made."""
        fresh = self._make()
        self._closing = True
        leave_group(self._consumer)
        self._replace(fresh)
        self._closing, self._declined = False, set()

    def _make(self) -> Any:
        connection, session_seconds = self._settings
        return member(connection, self._group, self._instance, session_seconds, self._noted)

    def _described(self) -> Any:
        with translated(f"read who is in group {self._group}", self._admin):
            return self._admin.describe_consumer_groups([self._group], request_timeout=TIMEOUT)[self._group].result()

    def _noted(self, error: Any) -> None:
        if is_instance_fenced(error):
            self._fatal = error.str()


def parse(opaque: bytes) -> GroupMetadata | None:
    """Return what the client's metadata hold; None when they are none that we know."""
    if not opaque.startswith(_MAGIC) or len(opaque) < len(_MAGIC) + 4:
        return None
    at = len(_MAGIC) + 4
    group, member_id, *_ = [*opaque[at:].split(b"\0", 2), b"", b""]
    return GroupMetadata(
        opaque,
        group.decode(errors="replace"),
        int.from_bytes(opaque[len(_MAGIC) : at], "little", signed=True),
        member_id.decode(errors="replace"),
    )


def _places(partitions: list[Any]) -> list[Partition]:
    return [(each.topic, each.partition) for each in partitions]
