"""What a consumer group has committed in the partitions of topics: for each an offset, with a position in its metadata.

Commits of offsets, and calls of Kafka's client that have no time limit of their own: a broker that hangs holds them.

And how consumers are read, all that is in a partition now or what comes, and how they leave their group. librdkafka can wait
without end in `close`: the answer to the second of two changes of its assignment may be lost while it closes, and the call holds
Python's lock. So a consumer that takes part in a group has no assignment when it is closed.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from bridge.kafka.client import TIMEOUT, KafkaError, KafkaException, TopicPartition, consumer, uncommitted_consumer
from bridge.kafka.errors import error_of, translated
from bridge.model.chain import PositionText, parse
from bridge.model.ports import Committed, Partition
from bridge.model.route import SourceRoute
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import CorruptInput, NeedsOperator, NotConnected, ReplicationError, Retryable

#: Seconds that leaving a group may take.
_LEAVE_SECONDS = 2.0
_TURN_SECONDS = 0.05
#: Seconds for an assignment that was on its way when the consumer unsubscribed.
_LAST_SECONDS = 0.2
#: The source of an entry whose partition belongs to nobody any more.
NOBODY = "-"

Entries = dict[Partition, tuple[int, PositionText]]


def describe(client: Any, topic: str, seconds: float) -> Any:
    """Return what Kafka says of a topic; raise the client's error where it cannot be read, Retryable for another topic's."""
    metadata = client.list_topics(topic, timeout=seconds).topics.get(topic)
    if metadata is None:
        raise Retryable(f"Kafka answered about another topic than {topic}")
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    return metadata


def events(
    consumer: Any, topic: str, most: int, seconds: float, *, in_group: bool = True
) -> Iterator[tuple[Any, bool]]:
    """Yield at most `most` events, and of each whether it is the end of its partition instead of a record.

    Waits for the first at most `seconds`; raises what Kafka reports (headrace/errors.py). Kafka's client looks for its group's
    coordinator also where it is `in_group` of none: the right to that is not needed.
    """
    for number in range(most):
        event = consumer.poll(0 if number else seconds)
        if event is None:
            return
        error = event.error()
        if error is not None and not in_group and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            continue
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - named so.
            raise error_of(KafkaException(error), f"read {topic}")
        yield event, error is not None


def leave_group(consumer: Any) -> None:
    """Leave the group and wait until nothing is assigned; the consumer's callbacks run meanwhile."""
    # One that another client has fenced since it was polled last is in no group any more.
    with suppress(KafkaException):
        consumer.unsubscribe()
    until = time.monotonic() + _LEAVE_SECONDS
    while time.monotonic() < until and consumer.assignment():
        consumer.poll(_TURN_SECONDS)
    consumer.poll(_LAST_SECONDS)


class ForeignOffset(NeedsOperator):
    """An offset of the bridges' group that no bridge has committed."""

    def __init__(self, group: str, place: Partition, offset: int, hint: str = "") -> None:
        self.group, self.place, self.offset = group, place, offset
        message = f"group {group} holds offsets that the bridge did not write: {place[0]}[{place[1]}]"
        hint = hint or f"If no source is to go on from what was there: {self._deletion()}."
        super().__init__(message, hint=f"Keep other consumers out of the bridge's groups. {hint}")

    def within(self, route: SourceRoute, committed: Committed | None, entries: Entries) -> "ForeignOffset":
        """Return the error as that of a source that has the partition, with the way out; `committed` is what is left of it."""
        # The file may give it a partition with another source's only position.
        own = [place[1] for place in route.places if _is_of(entries.get(place), route.source)]
        if committed is not None and committed.position is not None:
            hint = (
                f"Other partitions still hold the position of {route.source}. If no other source's was in this one: "
                f"{self._deletion()}; then 'headrace bridge move {route.source}'."
            )
        else:
            hint = (
                f"If {route.source} had just these partitions until now, or is new and no source had them: "
                f"{self._deletion(own)}, so that the position is read from the last record in them."
            )
        return ForeignOffset(self.group, self.place, self.offset, hint)

    def without(self, source: str) -> "ForeignOffset":
        """Return the error as that of a source without any position, which may have been in the partition."""
        hint = (
            f"{source} has no other position, and its position may have been there. If it was, name its former "
            f"partitions in the file, and move it ('headrace bridge move') once it has a position again. If not, first put the "
            f"source right that has the partition; where none has it, {self._deletion()}."
        )
        return ForeignOffset(self.group, self.place, self.offset, hint)

    def _deletion(self, partitions: Sequence[int] = ()) -> str:
        """Return how the offsets of the partition, and of some others of its topic, are deleted."""
        topic = f"{self.place[0]}:{','.join(map(str, sorted({self.place[1], *partitions})))}"
        return (
            f"stop the bridges, and run 'kafka-consumer-groups --delete-offsets --group {self.group} --topic {topic}'"
        )


def _is_of(entry: tuple[int, PositionText] | None, source: str) -> bool:
    return entry is None or entry[1].source in {source, NOBODY, ""}


@contextmanager
def reading(connection: KafkaConnection, group: str, *, stable: bool = True) -> Iterator[Any]:
    """Yield a client that reads topics, and what a group has committed; if `stable`, only what no open transaction can change."""
    # Not the administration client: librdkafka 2.16 crashes when it asks for a group whose coordinator is still loading.
    client = consumer(connection, group) if stable else uncommitted_consumer(connection, group)
    try:
        yield client
    finally:
        client.close()


def partitions_of(client: Any, group: str, topics: Collection[str]) -> list[Partition]:
    """Return all partitions of some topics; raise NeedsOperator when one of them is not there."""
    places: list[Partition] = []
    with _hinted(group), translated(f"read the committed positions of group {group}"):
        for topic in sorted(topics):
            places += [(topic, partition) for partition in describe(client, topic, TIMEOUT).partitions]
    return places


def read_entries(
    client: Any,
    group: str,
    places: Collection[Partition],
    refused: dict[Partition, ReplicationError] | None = None,
    *,
    seconds: float = TIMEOUT,
) -> Entries:
    """Return what a group has committed in some partitions.

    Raises NotConnected, also where one of them is in doubt for so many `seconds` and the client reads only what is stable;
    ForeignOffset when somebody else wrote to the group. `refused` takes what is wrong with some partitions alone, and then it is
    not raised.
    """
    if not places:
        return {}
    with _hinted(group), translated(f"read the committed positions of group {group}"):
        answered = client.committed([TopicPartition(*place) for place in places], timeout=seconds)
    entries: Entries = {}
    for each in answered:
        place = (each.topic, each.partition)
        try:
            if each.error is not None:
                raise error_of(KafkaException(each.error), f"read the committed position in {place[0]}[{place[1]}]")
            if each.offset >= 0:
                entries[place] = each.offset, _text_of(group, place, each)
        except ReplicationError as error:
            if refused is None:
                raise
            refused[place] = error
    return entries


def _text_of(group: str, place: Partition, committed: Any) -> PositionText:
    try:
        return parse(metadata_of(committed), f"the position in {place[0]}[{place[1]}] of group {group}")
    except CorruptInput as error:
        raise ForeignOffset(group, place, committed.offset) from error


def restore(
    entries: Entries, refused: dict[Partition, ReplicationError], routes: Iterable[SourceRoute]
) -> list[Partition]:
    """Have partitions with foreign offsets hold what the other partitions of their source hold; return these.

    They are those that the file gives to a source whose text names them too. A bridge commits one text in all partitions of a
    source, in one transaction: the text that is left is that of its last commit, and its next one writes over what is foreign.
    Texts that name no order, as of releases before, do not show whose a partition is.
    """
    restored: list[Partition] = []
    for route in routes:
        foreign = {
            place: error.offset for place in route.places if isinstance(error := refused.get(place), ForeignOffset)
        }
        if not foreign:
            continue
        own = [text for (topic, _), (_, text) in entries.items() if (topic, text.source) == (route.topic, route.source)]
        newest = max(own, key=lambda text: text.at, default=None)
        for place, offset in foreign.items():
            if newest is not None and place[1] in newest.order:
                entries[place] = offset, newest
                del refused[place]
                restored.append(place)
    return restored


def metadata_of(committed: Any) -> str:
    """Return the text of a committed offset; raise CorruptInput for what is no text."""
    try:
        return committed.metadata or ""
    except UnicodeDecodeError as error:
        raise CorruptInput("the metadata of a committed offset are no text") from error


def read_topics(
    client: Any,
    group: str,
    topics: Collection[str],
    refused: dict[Partition, ReplicationError] | None = None,
    routes: Collection[SourceRoute] = (),
) -> Entries:
    """Return what a group has committed in all partitions of some topics; raise errors as `read_entries`.

    With `refused`, foreign offsets are left out of it where other partitions of their source, by `routes`, have its position; and
    it takes what is wrong with a topic, for the partitions of its sources.
    """
    places: list[Partition] = []
    for topic in sorted(topics):
        try:
            places += partitions_of(client, group, {topic})
        except NeedsOperator as error:
            owned = [place for route in routes for place in route.places if place[0] == topic]
            if refused is None or not owned:
                raise
            refused |= dict.fromkeys(owned, error)
    entries = read_entries(client, group, places, refused)
    if refused:
        restore(entries, refused, routes)
    return entries


def committed_of(source: str, entries: Entries) -> Committed | None:
    """Return what the group holds for a source; None for nothing."""
    own = {place: entry for place, entry in entries.items() if entry[1].source == source}
    return newest_of(own) if own else None


def newest_of(entries: Entries) -> Committed:
    """Return what entries of one source hold."""
    # All were committed at once, unless the assignment was changed: the newest counts.
    text = max((text for _, text in entries.values()), key=lambda text: text.at)
    offsets = {place: offset for place, (offset, _) in entries.items()}
    return Committed(text.position, text.at, text.bridge, offsets, text.withheld, text.order)


@contextmanager
def _hinted(group: str) -> Iterator[None]:
    try:
        yield
    except NotConnected as error:
        # A user who may not see the group gets no answer at all; neither does anybody while a transaction is open.
        error.hint = f"If Kafka is there: the bridge's user must be allowed to read the group {group!r}."
        raise


#: How long a broker has to answer, in seconds.
COMMIT_SECONDS = 20.0


def call_within(seconds: float, name: str, call: Callable[[], object]) -> bool:
    """Call in a thread of its own, and return whether the call ended in time; raise what it raised."""
    raised: list[BaseException | None] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread.
            raised.append(error)
        else:
            raised.append(None)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if not raised:
        return False
    if raised[0] is not None:
        raise raised[0]
    return True


def commit_offsets(
    connection: KafkaConnection, group: str, offsets: Sequence[Any], seconds: float = COMMIT_SECONDS
) -> None:
    """Commit offsets for a group that has no members.

    Raises the client's KafkaException where the group refuses, and NotConnected after so many seconds without an answer: then it
    is not known whether they were committed.
    """

    def commit() -> None:
        with reading(connection, group) as client:
            client.commit(offsets=list(offsets), asynchronous=False)

    if not call_within(seconds, f"commit {group}", commit):
        raise NotConnected(
            f"Kafka: no answer to a commit of positions of group {group} within {seconds:.0f} s",
            hint="It is not known whether they were committed; doing it again when Kafka answers changes nothing more.",
        )


#: Records asked for at once, and how often in a row none may come.
_MANY, _TRIES = 5000, 100


def records(client: Any, topic: str, partition: int) -> Iterator[Any]:
    """Yield the records of a partition up to its present end; raise NotConnected, or NeedsOperator."""
    with translated(f"read {topic}"):
        low, high = client.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT)
        client.assign([TopicPartition(topic, partition, low)])
        tries = 0
        while low < high and tries < _TRIES:
            batch = client.consume(_MANY, timeout=0.1)
            tries = 0 if batch else tries + 1
            for record in batch:
                if record.error() is None:
                    yield record
                elif record.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - named so.
                    return
                else:
                    raise KafkaException(record.error())
        if low < high:
            raise NotConnected(f"Kafka: the end of {topic}[{partition}] could not be read")
