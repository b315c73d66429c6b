"""The two Kafka topics by which headquarters asks edges: in the bridge's file and in the lake's (docs/requests.md)."""

from typing import Annotated, NamedTuple

from msgspec import Meta

from headrace.configuration.load import Section
from headrace.configuration.names import TOPIC_OR_EMPTY

#: With fewer replicas a topic is lost with one broker.
_SAFE_REPLICATION = 3


class Topics(NamedTuple):
    """The two topics."""

    requests: str
    answers: str


class RequestTopics(Section, frozen=True, kw_only=True):
    """The topics of requests to edges and of their answers: the same in the bridge's file and in the lake's."""

    #: The topic of requests; `PREFIX.requests` when empty, with the prefix of `[kafka]`.
    topic: Annotated[str, Meta(pattern=TOPIC_OR_EMPTY)] = ""
    #: The topic of answers; `PREFIX.answers` when empty.
    answers_topic: Annotated[str, Meta(pattern=TOPIC_OR_EMPTY)] = ""

    def topics(self, prefix: str) -> Topics:
        """Return the two topics."""
        return Topics(self.topic or f"{prefix}.requests", self.answers_topic or f"{prefix}.answers")


class Requests(RequestTopics, frozen=True, kw_only=True):
    """Has the bridge carry requests to edges and their answers."""

    #: Of the two topics, when `headrace bridge init` makes them; and so the following ones.
    partitions: Annotated[int, Meta(ge=1, le=100)] = 1
    #: Replicas of each partition.
    replication: Annotated[int, Meta(ge=1)] = 1
    #: How many replicas have to have a record before it counts as written; one less than there are when left out.
    min_insync_replicas: Annotated[int, Meta(ge=1)] | None = None
    #: How long Kafka keeps requests and answers, in hours: so long the topics are a record of who asked what; 0: without limit.
    retention_hours: Annotated[int, Meta(ge=0)] = 720
    #: Largest record that the topics take, in MB.
    largest_record_megabytes: Annotated[int, Meta(ge=1, le=64)] = 1

    def not_for_production(self) -> list[str]:
        """Refuse topics that are lost with a broker."""
        if self.replication >= _SAFE_REPLICATION:
            return []
        return [f"replication = {self.replication}: a topic needs {_SAFE_REPLICATION} replicas to outlive a broker"]
