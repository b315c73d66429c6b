"""Topics: made on request, checked before use, never changed silently (design decision 6); and how large a record each takes.

`headrace bridge init` is the only place that makes a topic or adds partitions to one. Everybody else only looks. What was read of
the largest records is shared by all lanes.
"""

import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final, NamedTuple

from bridge.kafka.client import TIMEOUT, KafkaError, KafkaException, NewPartitions, NewTopic, topic_resource
from bridge.kafka.errors import translated
from bridge.model.ports import Partition, Share
from bridge.model.route import TablePatterns
from headrace.configuration.bridge import BridgeFile, Stream
from headrace.configuration.sections import Delivery, Requests
from headrace.errors import ConfigurationError, NeedsOperator, ReplicationError

#: Settings of a topic from which Kafka removes nothing.
_UNLIMITED: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
#: Kafka's limit is on a batch of records, which has a frame around a single one.
FRAME_BYTES = 512
#: Seconds that a lane waits for an answer: only a record that is too large makes it ask.
_TIMEOUT = 2.0
#: Seconds within which a topic is not asked about again: all that the lane's other sources have waits for the answer, and a batch
#: that says it is too large costs its sender nothing.
_AGAIN_SECONDS = 1.0


class Wanted(NamedTuple):
    """What a topic has to be."""

    partitions: int
    #: Its `cleanup.policy`.
    cleanup: str = "delete"
    #: Whether it keeps records until they are deleted by the bridge, whatever their age and size.
    keeps: bool = False


class MissingPartitions(NamedTuple):
    """A topic that is not in Kafka, or has fewer partitions than its sources own."""

    topic: str
    partitions: int
    needed: int

    @property
    def error(self) -> NeedsOperator:
        """What to do about it."""
        if not self.partitions:
            return NeedsOperator(f"topic {self.topic!r} is not in Kafka", hint="Run 'headrace bridge init' to make it.")
        return NeedsOperator(
            f"topic {self.topic!r} has {self.partitions} partitions, its sources own {self.needed}",
            hint="Run 'headrace bridge init' to add partitions, or correct the sources in the bridge's file.",
        )


#: By topic.
Missing = dict[str, MissingPartitions]


class Made(NamedTuple):
    """What `init` did about a topic."""

    topic: str
    partitions: int
    #: `created`, `grown from N`, or `already there`.
    what: str


def wanted(file: BridgeFile, there: Collection[str] = ()) -> dict[str, Wanted]:
    """Return each topic of the file with how many partitions its sources need, and what Kafka may drop of it.

    `there`: the topics in Kafka, among which are those that patterns of the file are for.
    """
    return {topic: need for stream in file.streams for topic, need in _wanted(file, stream, there).items()}


def names(admin: Any, timeout: float = TIMEOUT) -> Collection[str]:
    """Return the topics that are in Kafka; raise NotConnected when it cannot be reached."""
    return _partitions(admin, timeout).keys()


def topics_of(file: BridgeFile, stream: str, admin: Any) -> list[str]:
    """Return all topics of a stream that have records to read, its own one first, those that patterns are for included."""
    there = names(admin) if file.patterns(stream) else ()
    return [topic for topic in _wanted(file, stream, there) if topic != file.withheld_topic(stream)]


def _find_topics(file: BridgeFile, stream: str, there: Collection[str]) -> dict[str, str]:
    """Return the topics that patterns of a stream are for, each with its `cleanup.policy`."""
    others = {topic for each in file.streams for topic in file.topics(each)}
    return TablePatterns(file.prefix(stream), file.patterns(stream)).topics(set(there) - others)


def _wanted(file: BridgeFile, stream: str, there: Collection[str] = ()) -> dict[str, Wanted]:
    partitions = 1 + max(partition for owned in file.stream(stream).sources.values() for partition in owned)
    tables = file.tables(stream).values()
    own = [topic for topic in (file.topic(stream), file.transaction_topic(stream)) if topic]
    withheld = [topic for topic in (file.withheld_topic(stream),) if topic]
    return (
        dict.fromkeys(own, Wanted(partitions))
        | dict.fromkeys(withheld, Wanted(partitions, keeps=True))
        | {
            topic: Wanted(partitions, cleanup)
            for topic, cleanup in [
                *_find_topics(file, stream, there).items(),
                *((each.topic, each.cleanup) for each in tables),
            ]
        }
    )


def check(
    admin: Any, topics: Mapping[str, Wanted], timeout: float = TIMEOUT, missing: Missing | None = None
) -> dict[str, int]:
    """Return the largest record, in bytes, that each topic takes; `timeout` is for one answer, in seconds.

    Raises NotConnected, and NeedsOperator for a topic that is missing, has too few partitions, or another cleanup.policy.
    `missing` takes those that are missing or have too few partitions, and then they are not raised.
    """
    there = _partitions(admin, timeout)
    for topic, need in topics.items():
        if there.get(topic, 0) < need.partitions:
            lack = MissingPartitions(topic, there.get(topic, 0), need.partitions)
            if missing is None:
                raise lack.error
            missing[topic] = lack
    limits: dict[str, int] = {}
    if not (readable := [topic_resource(topic) for topic in topics if topic in there]):
        return limits
    with translated("read the topics' configuration"):
        asked = admin.describe_configs(readable, request_timeout=timeout)
        for resource, answer in asked.items():
            settings, need = answer.result(), topics[resource.name]
            setting = partial(_setting, settings, resource.name)
            if not (largest := setting("max.message.bytes")).isascii() or not largest.isdigit():
                raise _not_stated("max.message.bytes", resource.name)
            limits[resource.name] = int(largest)
            _check_cleanup(resource.name, setting("cleanup.policy"), need.cleanup)
            if need.keeps:
                _check_kept(resource.name, {name: setting(name) for name in _UNLIMITED})
    return limits


def find_missing(missing: Missing, places: Iterable[Partition]) -> MissingPartitions | None:
    """Return what the first of some partitions lacks that is not there; None where all are."""
    return next(
        (missing[topic] for topic, number in places if topic in missing and number >= missing[topic].partitions), None
    )


def _setting(settings: Mapping[str, Any], topic: str, name: str) -> str:
    entry = settings.get(name)
    if entry is None or entry.value is None:
        raise _not_stated(name, topic)
    return str(entry.value)


def _not_stated(name: str, topic: str) -> NeedsOperator:
    return NeedsOperator(
        f"Kafka does not state {name} of topic {topic!r}",
        hint="The cluster has to answer DescribeConfigs as Apache Kafka does: look at what is in front of it.",
    )


def _check_cleanup(topic: str, there: str, needed: str) -> None:
    if set(there.split(",")) == set(needed.split(",")):
        return
    why = ": it would drop changes that later ones of the same key follow" if "compact" not in needed else ""
    raise NeedsOperator(
        f"topic {topic!r} has cleanup.policy={there}, not {needed}{why}",
        hint=f"Set cleanup.policy={needed} on the topic, or name another topic in the bridge's file.",
    )


def _check_kept(topic: str, there: Mapping[str, str]) -> None:
    if there != _UNLIMITED:
        limited = ", ".join(f"{name}={value}" for name, value in there.items() if value != _UNLIMITED[name])
        raise NeedsOperator(
            f"topic {topic!r} has {limited}: Kafka would remove records that are in no other topic yet",
            hint=f"Set {' and '.join(f'{name}=-1' for name in _UNLIMITED)} on it; the bridge deletes what it has released.",
        )


def make(admin: Any, file: BridgeFile, tables: Sequence[str] = ()) -> list[Made]:
    """Make the topics that are missing, add partitions where there are too few, and return what was done.

    `tables`: those that patterns name and that get a topic now; raises ConfigurationError when no pattern is for one of them.
    """
    there = _partitions(admin)
    expected = {*there, *_of_patterns(file, tables)}
    topics = []
    for name, stream in file.streams.items():
        for topic, (needed, cleanup, keeps) in _wanted(file, name, expected).items():
            if topic not in there:
                settings = _settings(stream) | {"cleanup.policy": cleanup} | (_UNLIMITED if keeps else {})
                _wait(
                    admin.create_topics([NewTopic(topic, needed, stream.replication, config=settings)]), f"make {topic}"
                )
                topics.append(Made(topic, needed, "created"))
            elif there[topic] < needed:
                _wait(admin.create_partitions([NewPartitions(topic, needed)]), f"add partitions to {topic}")
                topics.append(Made(topic, needed, f"grown from {there[topic]}"))
            else:
                topics.append(Made(topic, there[topic], "already there"))
    # Those that are there are others' to change.
    for name, section in file.deliveries.items():
        topics += _make_missing(admin, section, section.topics(name), there)
    if file.requests is not None:
        topics += _make_missing(admin, file.requests, file.requests.topics(file.kafka.prefix), there)
    _wait_until_seen(admin, file)
    return topics


def _of_patterns(file: BridgeFile, tables: Sequence[str]) -> set[str]:
    expected = set()
    for table in tables:
        patterns = [TablePatterns(file.prefix(stream), file.patterns(stream)) for stream in file.streams]
        topics = {topic for each in patterns if (topic := each.topic_of(table)) is not None}
        if not topics:
            raise ConfigurationError(
                f"no pattern of a stream's tables is for {table}",
                hint="Give it as SCHEMA.TABLE, or name it in the file.",
            )
        expected |= topics
    return expected


def _make_missing(
    admin: Any, section: Delivery | Requests, topics: Iterable[str], there: Mapping[str, int]
) -> list[Made]:
    done = []
    for topic in topics:
        if topic in there:
            done.append(Made(topic, there[topic], "already there"))
            continue
        settings = _settings(section) | {"cleanup.policy": "delete"}
        new = NewTopic(topic, section.partitions, section.replication, config=settings)
        _wait(admin.create_topics([new]), f"make {topic}")
        done.append(Made(topic, section.partitions, "created"))
    return done


def _settings(stream: Stream | Delivery | Requests) -> dict[str, str]:
    hours = stream.retention_hours
    return {
        "retention.ms": str(hours * 3_600_000 if hours else -1),
        # A row of a database is sometimes much larger than Kafka's 1 MB.
        "max.message.bytes": str(stream.largest_record_megabytes << 20),
        "min.insync.replicas": str(stream.min_insync_replicas or max(1, stream.replication - 1)),
    }


def _wait_until_seen(admin: Any, file: BridgeFile) -> None:
    """Return once what was made is known to those who ask; raise NeedsOperator when something is not as it must be."""
    until = time.monotonic() + TIMEOUT
    while True:
        try:
            check(admin, wanted(file))
        except NeedsOperator:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


def _partitions(admin: Any, timeout: float = TIMEOUT) -> dict[str, int]:
    with translated("read the list of topics", admin):
        listed = admin.list_topics(timeout=timeout).topics
    return {name: len(topic.partitions) for name, topic in listed.items() if topic.error is None}


def _wait(asked: Mapping[str, Any], doing: str) -> None:
    with translated(doing):
        for answer in asked.values():
            try:
                answer.result()
            except KafkaException as error:
                # Another 'init' at the same time was quicker; what it made is looked at afterwards.
                if error.args[0].code() not in {KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS}:
                    raise


def owners(admin: Any, file: BridgeFile) -> list[dict[str, Any]]:
    """Return each owned partition with its source, what is in its topic, and whether it is in Kafka."""
    there = _partitions(admin)
    return [
        {
            "stream": name,
            "topic": topic,
            "holds": holds,
            "partition": partition,
            "source": source,
            "in_kafka": partition < there.get(topic, 0),
        }
        for name, stream in file.streams.items()
        for topic, holds in _holds(file, name, there)
        for source, partitions in stream.sources.items()
        for partition in partitions
    ]


def _holds(file: BridgeFile, stream: str, there: Collection[str]) -> list[tuple[str, str]]:
    """Return the topics of a stream, each with the table that it is of, or `all`, `transactions`, `withheld` or `the rest`."""
    named = {settings.topic: table for table, settings in file.tables(stream).items()}
    matched = {topic: topic.removeprefix(f"{file.prefix(stream)}.") for topic in _find_topics(file, stream, there)}
    own = (file.topic(stream), "the rest" if file.stream(stream).tables else "all")
    others = ((file.transaction_topic(stream), "transactions"), (file.withheld_topic(stream), "withheld"))
    return [own, *(each for each in others if each[0]), *(matched | named).items()]


class RecordLimits:
    """The largest record of each topic, in bytes."""

    def __init__(self, admin: object, topics: Mapping[str, Wanted], limits: Mapping[str, int] | None = None) -> None:
        self._admin = admin
        self._topics = topics
        self._lock = threading.Lock()
        self._limits = dict(limits or {})
        #: Topics that are not there, or lack partitions: their sources are set aside when they have records for them.
        self.missing: Missing = {}
        # By topic: when it was asked about, and whether it had grown.
        self._asked: dict[str, tuple[float, bool]] = {}

    @property
    def smallest(self) -> int:
        """The smallest of all topics' limits."""
        return min(self._limits.values(), default=1 << 20)

    @property
    def largest(self) -> int:
        """The largest of all topics' limits."""
        return max(self._limits.values(), default=1 << 20)

    def load(self, limits: Mapping[str, int], topics: Mapping[str, Wanted], missing: Missing) -> None:
        """Take limits that were just read, and which topics there are to be, and are not."""
        with self._lock:
            self._topics, self.missing = topics, missing
            self._limits = self._limits | dict(limits)

    def look_for_missing(self) -> list[str]:
        """Take the limits of topics that were missing and are there now; return these."""
        with self._lock:
            before, topics = self.missing, self._topics
        if not before:
            return []
        missing: Missing = {}
        limits = check(self._admin, {topic: topics[topic] for topic in before}, missing=missing)
        with self._lock:
            if self._topics is not topics:
                # The file was read again meanwhile, and its topics with it.
                return []
            self.missing = missing
            self._limits = self._limits | limits
        return [topic for topic in before if topic not in missing]

    def exceeded_by(self, share: Share) -> bool:
        """Whether a record is larger than its topic takes."""
        limit = self._limits.get(share.topic, 1 << 30) - FRAME_BYTES - _largest_headers(share)
        # Without a line of Python for each record.
        if (
            max(map(len, filter(None, share.values)), default=0) + max(map(len, filter(None, share.keys)), default=0)
            <= limit
        ):
            return False
        pairs = zip(share.keys, share.values, repeat(b""), strict=False)
        return any(len(key or empty) + len(value or empty) > limit for key, value, empty in pairs)

    def refresh(self, topics: Iterable[str]) -> bool:
        """Read the limits of some topics again, unless they were just read; return whether one has grown, or is not known."""
        now = time.monotonic()
        grew, names = False, set()
        for name in topics:
            at, grown = self._asked.get(name, (-_AGAIN_SECONDS, False))
            if at + _AGAIN_SECONDS > now:
                grew |= grown
            else:
                names.add(name)
        if not names:
            return grew
        try:
            limits = check(self._admin, {name: self._topics[name] for name in names}, timeout=_TIMEOUT)
        except ReplicationError:
            return True
        has_grown = {name: limits[name] > self._limits.get(name, 0) for name in names}
        self._asked |= {name: (now, grown) for name, grown in has_grown.items()}
        with self._lock:
            self._limits = self._limits | limits
        return grew or any(has_grown.values())


def _largest_headers(share: Share) -> int:
    """Return the size of a record's headers, of the one with the largest, in bytes."""
    given = share.headers.values() if share.headers else ()
    return max((sum(len(name) + len(value) for name, value in headers) for headers in given), default=0)
