"""One delivery of a bridge's file: a Kafka topic whose records go to AMQP addresses in regions (docs/deliveries.md)."""

import itertools
import re
from collections.abc import Collection, Mapping
from typing import Annotated

from msgspec import Meta

from headrace.configuration.load import Section
from headrace.configuration.value_types import ADDRESSES_OF, TOPIC_OR_EMPTY

#: A field of an address: `{region}`, `{key}` or `{header.NAME}`.
FIELD = re.compile(r"\{(region|key|header\.[^{}]+)\}")
_TEMPLATE = re.compile(r"[a-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9._/-]*")
#: With fewer replicas a topic is lost with one broker.
_SAFE_REPLICATION = 3
#: First parts of addresses that are in use otherwise.
_RESERVED = ("cdc", "requests", "answers")

#: An address, or all that begin as one does: `alerts/jakarta`, `alerts/jakarta/*`.
AddressPattern = Annotated[str, Meta(pattern=ADDRESSES_OF)]


class Delivery(Section, frozen=True, kw_only=True):
    """A topic, where its records go, and what happens to those that cannot be delivered."""

    #: The topic; the delivery's own name when empty.
    topic: Annotated[str, Meta(pattern=TOPIC_OR_EMPTY)] = ""
    #: The address of a record: fixed text with `{region}` (the key up to its first `/`), `{key}` or `{header.NAME}`.
    address: Annotated[str, Meta(min_length=1, max_length=200)]
    #: Which client certificates, by common name, may receive from which addresses, where the bridge listens:
    #: `{"jakarta-branch" = ["alerts/jakarta"]}`. Nobody when empty.
    receivers: dict[str, Annotated[list[AddressPattern], Meta(min_length=1)]] = {}
    #: Where records go that nobody can deliver; `TOPIC.dead-letters` when empty.
    dead_letter_topic: Annotated[str, Meta(pattern=TOPIC_OR_EMPTY)] = ""
    #: Records, each of another key, that may be in flight to one address.
    window: Annotated[int, Meta(ge=1, le=10_000)] = 64
    #: Records of one partition that may have been read since the oldest that is not settled; beyond that it is not read on.
    max_pending_records: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    #: The same in MB of those that wait.
    max_pending_megabytes: Annotated[int, Meta(ge=1, le=4096)] = 16
    #: A record that nobody has accepted at this age becomes a dead letter; 0: it waits without limit.
    dead_letter_after_hours: Annotated[float, Meta(ge=0)] = 0.0
    #: Of the two topics, when `headrace bridge init` makes them; and so the following ones.
    partitions: Annotated[int, Meta(ge=1, le=1000)] = 6
    #: Replicas of each partition.
    replication: Annotated[int, Meta(ge=1)] = 1
    #: How many replicas have to have a record before it counts as written; one less than there are when left out.
    min_insync_replicas: Annotated[int, Meta(ge=1)] | None = None
    #: How long Kafka keeps the records, in hours; 0: without limit. Longer than any branch is offline.
    retention_hours: Annotated[int, Meta(ge=0)] = 720
    #: Largest record that the topics take, in MB.
    largest_record_megabytes: Annotated[int, Meta(ge=1, le=64)] = 1

    def __post_init__(self) -> None:
        """Refuse a template that is none, or whose addresses are in use otherwise."""
        rest = FIELD.sub("x", self.address)
        if not _TEMPLATE.fullmatch(rest) or not _TEMPLATE.match(self.address):
            raise ValueError(
                "'address' begins with fixed text and '/', and has letters, digits, '.', '_', '-', '/' and the fields "
                '{region}, {key} and {header.NAME}: "alerts/{region}"'
            )
        if self.address.partition("/")[0] in _RESERVED:
            raise ValueError(
                f"addresses of {', '.join(_RESERVED)} are Headrace's own: begin 'address' with another word"
            )

    def not_for_production(self) -> list[str]:
        """Refuse topics that are lost with a broker."""
        if self.replication >= _SAFE_REPLICATION:
            return []
        return [f"replication = {self.replication}: a topic needs {_SAFE_REPLICATION} replicas to outlive a broker"]

    @property
    def prefix(self) -> str:
        """Return what all addresses begin with: the template up to its first field."""
        return self.address.partition("{")[0]


def topics(name: str, delivery: Delivery) -> tuple[str, str]:
    """Return a delivery's topic, and the one of its dead letters."""
    topic = delivery.topic or name
    return topic, delivery.dead_letter_topic or f"{topic}.dead-letters"


def check(deliveries: Mapping[str, Delivery], streams: Collection[str], *, listens: bool) -> None:
    """Raise ValueError when deliveries conflict with each other or with streams.

    Args:
        deliveries: those of a bridge's file.
        streams: the topics of its streams.
        listens: whether the bridge listens.
    """
    named = [topic for name, delivery in deliveries.items() for topic in topics(name, delivery)]
    if len(named) != len(set(named)) or not set(named).isdisjoint(streams):
        raise ValueError("two deliveries, or a delivery and a stream, have one topic")
    prefixes = sorted(delivery.prefix for delivery in deliveries.values())
    if any(longer.startswith(shorter) for shorter, longer in itertools.pairwise(prefixes)):
        raise ValueError("the addresses of two deliveries begin alike: who may receive from them would not be clear")
    if not listens and any(delivery.receivers for delivery in deliveries.values()):
        raise ValueError("'receivers' goes with a bridge that listens: a router or broker has its own policy")
