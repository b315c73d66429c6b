"""Where the records of each source go, by the bridge's file."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from bridge.model.table_router import TablePatterns, TableRouter
from headrace.configuration.bridge import BridgeFile


class SourceRoute(NamedTuple):
    """Where a source's records go."""

    source: str
    #: The stream's own topic; the source's position is committed with its partitions.
    topic: str
    partitions: tuple[int, ...]
    #: Where the records of tables go, if not there.
    tables: TableRouter | None = None
    #: What the names of its records in Avro begin with, and which changes of their schemas the registry takes.
    prefix: str = ""
    compatibility: str = ""
    #: Where the records of its withheld tables wait, in the lowest of its partitions; empty where none can be withheld.
    withheld: str = ""
    #: Whether each of its records has to name it.
    names_checked: bool = False

    @property
    def topics(self) -> dict[str, str]:
        """All topics that its records go to, the stream's own one first, each with its `cleanup.policy`."""
        return {self.topic: "delete"} if self.tables is None else self.tables.topics

    @property
    def places(self) -> list[tuple[str, int]]:
        """The partitions of the stream's own topic that the source owns."""
        return [(self.topic, partition) for partition in self.partitions]

    @property
    def withheld_place(self) -> tuple[str, int] | None:
        """The partition of its withheld records; None where no table can be withheld."""
        return (self.withheld, min(self.partitions)) if self.withheld else None


def routes(file: BridgeFile) -> dict[str, SourceRoute]:
    """Return the route of each source."""
    return {
        source: SourceRoute(
            source,
            file.topic(name),
            tuple(partitions),
            _router(file, name) if stream.tables else None,
            file.prefix(name),
            stream.compatibility,
            file.withheld_topic(name),
            stream.check_source_names,
        )
        for name, stream in file.streams.items()
        for source, partitions in stream.sources.items()
    }


def first_places(known: Mapping[str, SourceRoute]) -> dict[tuple[str, int], str]:
    """Return the source that each source's first partition represents in the group's assignment."""
    return {route.places[0]: source for source, route in known.items()}


def _router(file: BridgeFile, stream: str) -> TableRouter:
    patterns = TablePatterns(file.prefix(stream), file.patterns(stream))
    return TableRouter(file.topic(stream), file.tables(stream), patterns, file.transaction_topic(stream))


def learn(known: Iterable[SourceRoute], there: Collection[str]) -> None:
    """Have routes know which topics are in Kafka: patterns are for those alone."""
    for route in known:
        if route.tables is not None:
            route.tables.learn(there)
