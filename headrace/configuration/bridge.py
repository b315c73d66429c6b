"""The bridge's file: Kafka, the interconnect, and which source owns which partitions of which stream."""

import re
import socket
from hashlib import sha256
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from msgspec import Meta

from headrace.configuration.kafka import KafkaConnection, Value, as_texts, check_librdkafka
from headrace.configuration.load import File, Section
from headrace.configuration.sections import (
    Client,
    Compatibility,
    Delivery,
    Metrics,
    Registry,
    Requests,
    check_deliveries,
    check_replication,
    check_tls,
)
from headrace.configuration.value_types import (
    AMQP_ADDRESS,
    KAFKA_GROUP,
    KAFKA_INSTANCE,
    LISTEN_ADDRESS,
    SOURCE_NAME,
    SOURCES_OF,
    STREAM_NAME,
    TABLE_NAME,
)
from headrace.errors import ConfigurationError

SourceName = Annotated[str, Meta(pattern=SOURCE_NAME)]
StreamName = Annotated[str, Meta(pattern=STREAM_NAME)]
Partition = Annotated[int, Meta(ge=0)]
Address = Annotated[str, Meta(pattern=AMQP_ADDRESS)]
TableName = Annotated[str, Meta(pattern=TABLE_NAME)]
#: What Kafka drops of a table's topic: records by age, those that a later one of their key replaces, or both.
Cleanup = Literal["delete", "compact", "compact,delete"]
#: What Kafka does not take in a topic's name, and its longest one.
_NOT_IN_A_TOPIC, _LONGEST_TOPIC = re.compile(r"[^A-Za-z0-9._-]"), 249
#: A source, or all of a region.
Allowed = Annotated[str, Meta(pattern=SOURCES_OF)]


class Kafka(KafkaConnection, frozen=True, kw_only=True):
    """The central cluster."""

    #: Longest time that a transaction collects batches of a busy source, in milliseconds.
    transaction_milliseconds: Annotated[int, Meta(ge=1, le=5_000)] = 40
    #: Transactional producers, each of which commits for whatever sources are ready.
    lanes: Annotated[int, Meta(ge=1, le=16)] = 2
    #: Further settings of librdkafka, by its own names: `{"client.rack" = "a"}`. What guarantees rest on is refused.
    client: dict[str, Value] = {}

    def __post_init__(self) -> None:
        """Refuse settings that guarantees rest on."""
        super().__post_init__()
        check_librdkafka(self.client, "kafka.client")

    def librdkafka(self) -> dict[str, Any]:
        """Return librdkafka's settings, as above, with those that are passed through."""
        return super().librdkafka() | as_texts(self.client)


class Interconnect(Client, frozen=True, kw_only=True):
    """Exactly one of `listen` (no router: edges connect to the bridge) and `url` (a router or broker to connect out to)."""

    #: `host:port`; port 0 takes a free one.
    listen: Annotated[str, Meta(pattern=LISTEN_ADDRESS)] | None = None
    #: One address, or several of which the first that answers is used.
    url: Address | Annotated[list[Address], Meta(min_length=1)] | None = None
    #: Which sources a client certificate may send for, by its common name: `{"edge-3" = ["jakarta/bank", "london/*"]}`. One that
    #: is not named here may send for the source that its common name is. An empty list revokes: `{"jakarta/bank" = []}`.
    identities: dict[str, list[Allowed]] = {}
    #: Batches of one source that may be in flight or at the bridge, and not yet committed: the default fills 200 Mbit/s over
    #: 200 ms, and costs up to 16 MB while Kafka is unavailable (docs/network.md).
    credit: Annotated[int, Meta(ge=1, le=1000)] = 256

    def __post_init__(self) -> None:
        """Refuse both or neither of the two ways, and what does not go together."""
        super().__post_init__()
        if (self.listen is None) == (self.url is None):
            raise ValueError("give exactly one of 'listen' and 'url'")
        if self.listen is not None:
            if (self.certificate is None) != (self.authority is None):
                raise ValueError(
                    "a bridge that listens with a certificate asks edges for theirs: "
                    "give 'certificate', 'key' and 'authority' together"
                )
            if self.user is not None:
                raise ValueError("a bridge that listens knows edges by their certificates: 'user' goes with 'url'")
            if self.identities and self.certificate is None:
                raise ValueError("'identities' are of client certificates: give 'certificate', 'key' and 'authority'")
        elif any(urlsplit(url).username is not None or urlsplit(url).password is not None for url in self.urls):
            raise ValueError("'url' holds a user or a password: give 'user' and 'password' instead")
        elif self.user is not None and not all(_is_private(url) for url in self.urls):
            raise ValueError(
                "'user' and 'password' go with amqps:// addresses: without TLS the password would cross the network readable"
            )
        elif self.identities:
            raise ValueError("'identities' go with 'listen': a router or broker has its own policy")
        elif (self.authority or self.certificate) and not all(url.startswith("amqps://") for url in self.urls):
            raise ValueError("'authority' and 'certificate' go with amqps:// addresses")

    def not_for_production(self) -> list[str]:
        """Refuse addresses without TLS, and a listener that takes whoever comes."""
        if self.listen is not None and self.certificate is None:
            return ["'listen' without 'certificate', 'key' and 'authority' takes whoever reaches the port, without TLS"]
        return check_tls(self.urls)

    @property
    def urls(self) -> list[str]:
        """Return the addresses to connect out to."""
        return [self.url] if isinstance(self.url, str) else self.url or []


def _is_private(url: str) -> bool:
    """Whether a password may be sent there: over TLS, or on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "amqps" or parts.hostname in {"localhost", "127.0.0.1", "::1"}


class TableTopic(NamedTuple):
    """The topic of one table."""

    topic: str
    cleanup: Cleanup


def topic_of(prefix: str, table: str) -> str:
    """Return the name of a table's topic, as Debezium names it: `PREFIX.schema.table`, without what Kafka does not take."""
    return _NOT_IN_A_TOPIC.sub("_", f"{prefix}.{table}")


class Stream(Section, frozen=True, kw_only=True):
    """A logical feed: one topic, or one for each table, in which every source owns its partitions."""

    #: The topic; the stream's own name when empty.
    topic: str = ""
    #: Tables that have a topic of their own, and what Kafka drops of it: `{"public.accounts" = "delete"}`. A name with `*` is of
    #: all tables that match and whose topic is in Kafka. Other tables' records go to the stream's own topic.
    tables: dict[TableName, Cleanup] = {}
    #: What the tables' topics begin with, `PREFIX.schema.table`; the stream's topic when empty.
    prefix: str = ""
    #: Whether records of where transactions begin and end have a topic of their own, `PREFIX.transaction`, as Debezium has it.
    transaction_topic: bool = False
    #: Of records in Avro: which changes of their schemas the registry takes; its own setting when empty.
    compatibility: Compatibility = ""
    #: Whether the bridge looks into each record: a batch with one whose `source.name` is not the batch's source is rejected.
    check_source_names: bool = False
    #: Partitions that each source owns, `{"region/name" = [0]}`, in each topic of the stream. Never moved silently.
    sources: Annotated[dict[SourceName, Annotated[list[Partition], Meta(min_length=1)]], Meta(min_length=1)]
    #: Of the topic, when `headrace bridge init` creates it.
    replication: Annotated[int, Meta(ge=1)] = 1
    #: How many replicas have to have a record before it counts as written; one less than there are when left out.
    min_insync_replicas: Annotated[int, Meta(ge=1)] | None = None
    #: Largest record that the topic takes, in MB.
    largest_record_megabytes: Annotated[int, Meta(ge=1, le=1024)] = 16
    #: How long Kafka keeps the stream, in hours; 0: without limit. Used by `headrace bridge init`.
    retention_hours: Annotated[int, Meta(ge=0)] = 168

    def __post_init__(self) -> None:
        """Refuse a partition with two owners, or named twice."""
        owned = [partition for partitions in self.sources.values() for partition in partitions]
        if len(owned) != len(set(owned)):
            raise ValueError("a partition has two owners")
        if self.min_insync_replicas is not None and self.min_insync_replicas > self.replication:
            raise ValueError("'min_insync_replicas' is more than 'replication': nothing could be written")
        if self.prefix and not self.tables:
            raise ValueError("'prefix' goes with 'tables'")
        if self.transaction_topic and not self.tables:
            raise ValueError("'transaction_topic' goes with 'tables': else all records are in one topic, in order")

    def not_for_production(self) -> list[str]:
        """Refuse topics that one lost broker makes unavailable, or loses."""
        return check_replication(self.replication)


class Sharing(Section, frozen=True, kw_only=True):
    """The group of bridges that share sources: Kafka's consumer-group assignment decides which bridge serves which source."""

    #: The consumer group of all bridges that share these sources; `PREFIX.bridges` when empty.
    group: Annotated[str, Meta(pattern=KAFKA_GROUP)] = ""
    #: This bridge's name in the group, which outlasts its restarts; of the host and the file's path when empty.
    instance: Annotated[str, Meta(pattern=KAFKA_INSTANCE)] = ""
    #: After so long without a sign of life a bridge's sources go to the others; the broker allows no less than 6.
    session_seconds: Annotated[float, Meta(ge=6, le=300)] = 8.0


class BridgeFile(File, frozen=True, kw_only=True):
    """A whole bridge file."""

    kafka: Kafka
    interconnect: Interconnect
    metrics: Metrics = Metrics()
    sharing: Sharing = Sharing()
    streams: Annotated[dict[StreamName, Stream], Meta(min_length=1)]
    #: Topics whose records go to regions.
    deliveries: dict[StreamName, Delivery] = {}
    #: Whether headquarters may ask edges through this bridge: no section, and it may not.
    requests: Requests | None = None
    #: Where the schemas of records in Avro are registered: no section, and such records are not taken.
    registry: Registry | None = None

    def __post_init__(self) -> None:
        """Refuse a source that is in two streams, two streams with one topic, or deliveries that are in each other's way."""
        names = [source for stream in self.streams.values() for source in stream.sources]
        if len(names) != len(set(names)):
            raise ValueError("a source is in two streams")
        topics = [topic for name in self.streams for topic in self.topics(name)]
        if len(topics) != len(set(topics)):
            raise ValueError("two streams, or two tables, have one topic")
        if any(len(topic) > _LONGEST_TOPIC for topic in topics):
            raise ValueError(f"the name of a topic is longer than {_LONGEST_TOPIC}")
        if self.requests is not None:
            of_requests = list(self.requests.topics(self.kafka.prefix))
            others = [topic for name, each in self.deliveries.items() for topic in each.topics(name)] + topics
            if len(set(of_requests)) != len(of_requests) or not set(of_requests).isdisjoint(others):
                raise ValueError("the topics of [requests] are those of a stream or delivery, or of each other")
        check_deliveries(self.deliveries, topics, listens=self.interconnect.listen is not None)

    def delivery_group(self, name: str) -> str:
        """Return the consumer group of a delivery: bridges with one prefix share its partitions."""
        return f"{self.kafka.prefix}.deliveries.{name}"

    @property
    def group(self) -> str:
        """The consumer group in which the bridges of these sources share them and commit positions."""
        return self.sharing.group or f"{self.kafka.prefix}.bridges"

    @property
    def instance(self) -> str:
        """This bridge's name in the group: the same after a restart, another one for another host or file."""
        host = _NOT_IN_A_TOPIC.sub("-", socket.gethostname())[:60]
        return self.sharing.instance or f"{host}-{sha256(self.path.encode()).hexdigest()[:8]}"

    def stream(self, name: str) -> Stream:
        """Return a stream; raise ConfigurationError when the file has none of that name."""
        if name not in self.streams:
            raise ConfigurationError(
                f"no stream {name!r} in {self.path}", hint=f"It has: {', '.join(sorted(self.streams))}."
            )
        return self.streams[name]

    def topic(self, stream: str) -> str:
        """Return the stream's own topic: of all its records, or, where tables have theirs, of what is of no table."""
        return self.stream(stream).topic or stream

    @property
    def first_topic(self) -> str:
        """The own topic of the first stream, for what is asked of Kafka together with a topic, whichever it is."""
        return self.topic(next(iter(self.streams)))

    def tables(self, stream: str) -> dict[str, TableTopic]:
        """Return the topic of each table that the file names, named as Debezium does: `PREFIX.schema.table`."""
        named = {table: cleanup for table, cleanup in self.stream(stream).tables.items() if "*" not in table}
        prefix = self.prefix(stream)
        return {table: TableTopic(topic_of(prefix, table), cleanup) for table, cleanup in named.items()}

    def patterns(self, stream: str) -> dict[str, Cleanup]:
        """Return the names with `*` among the stream's tables, in the file's order."""
        return {table: cleanup for table, cleanup in self.stream(stream).tables.items() if "*" in table}

    def prefix(self, stream: str) -> str:
        """Return what the topics of a stream's tables begin with."""
        return self.stream(stream).prefix or self.topic(stream)

    def transaction_topic(self, stream: str) -> str:
        """Return the topic of where transactions begin and end, named as Debezium does; empty where they have none."""
        return f"{self.prefix(stream)}.transaction" if self.stream(stream).transaction_topic else ""

    def withheld_topic(self, stream: str) -> str:
        """Return the topic in which records wait whose table's schema the registry refuses; empty where there is none.

        Where all tables share a topic, a consumer has them in the order of their source, and so the source waits.
        """
        return f"{self.prefix(stream)}.withheld" if self.registry is not None and self.stream(stream).tables else ""

    def topics(self, stream: str) -> list[str]:
        """Return all topics of a stream, its own one first, but for those that patterns are for."""
        others = filter(None, (self.transaction_topic(stream), self.withheld_topic(stream)))
        return [self.topic(stream), *others, *(table.topic for table in self.tables(stream).values())]

    def stream_of(self, source: str) -> str:
        """Return the stream that a source joins; raise ConfigurationError when it is in none."""
        for name, stream in self.streams.items():
            if source in stream.sources:
                return name
        raise ConfigurationError(
            f"source {source!r} is in no stream of {self.path}",
            hint="Add it under [streams.NAME.sources] with the partitions that it owns, "
            f"and run 'headrace bridge init --config {self.path}'.",
        )
