"""The committed positions of sources: offsets of the group of bridges, with the position in their metadata (design decision 4).

A position is committed in the same transaction as the records, for every partition that the source owns in its stream's topic,
so the group records the assignment too. The offset is the log's end, so lag tools show nothing odd. Where the group holds
nothing of a source, its position is in a group of its own, of a former release; or, since Kafka forgets idle groups, it is that
of the last committed record in its partitions.
"""

import logging
from collections.abc import Collection, Mapping
from typing import Any

from bridge.kafka.client import PATIENCE, KafkaException, OffsetSpec, TopicPartition, consumer
from bridge.kafka.entries import Entries, committed_of, partitions_of, read_entries, reading
from bridge.kafka.errors import translated
from bridge.kafka.last_record import read_last_record
from bridge.kafka.leftovers import Leftovers
from bridge.model.ports import Committed, Partition
from bridge.model.route import SourceRoute
from bridge.positions.former import former_group, take_over_former
from bridge.positions.withheld_survey import known_withheld
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import CorruptInput, NeedsOperator, NotConnected, ReplicationError

_log = logging.getLogger(__name__)


class Positions:
    """Implements `PositionReader` over the sources of one file."""

    def __init__(
        self,
        connection: KafkaConnection,
        admin: Any,
        group: str,
        routes: Mapping[str, SourceRoute],
        leftovers: Leftovers | None = None,
    ) -> None:
        self._connection = connection
        self._admin = admin
        self._group = group
        self._routes = self._in_file = routes
        self._leftovers = leftovers
        self._client: Any = None
        #: What was committed in all partitions of each topic when this bridge first read one of them.
        self._at_first: dict[str, Entries] = {}

    def use(self, routes: Mapping[str, SourceRoute]) -> None:
        """Read the positions of other sources from now on."""
        # Those that left are still looked up by a read that has begun. Who had which partition is looked at again.
        self._routes, self._in_file, self._at_first = {**self._routes, **routes}, routes, {}

    def read(self, sources: Collection[str]) -> dict[str, Committed | ReplicationError]:
        """Return what Kafka holds for each source that is still in the file, or why it is not known."""
        sources = [source for source in sources if source in self._in_file]
        try:
            if self._client is None:
                self._client = consumer(self._connection, self._group)
            former = self._former_groups()
            found: dict[str, Committed | ReplicationError] = {}
            for topic in sorted({self._routes[source].topic for source in sources}):
                found |= self._of_topic(topic, [each for each in sources if self._routes[each].topic == topic], former)
        except ReplicationError as error:
            self.close()
            if isinstance(error, NotConnected) and self._leftovers is not None:
                self._leftovers.end(self._group, {place for source in sources for place in self._routes[source].places})
            raise
        self._add_ends(found)
        return found | known_withheld(self._client, self._admin, self._routes, found)

    def close(self) -> None:
        """Give the client up; the next call makes another one."""
        gone, self._client = self._client, None
        if gone is not None:
            gone.close()

    def _of_topic(
        self, topic: str, sources: Collection[str], former: Collection[str] | None
    ) -> dict[str, Committed | ReplicationError]:
        """Return what Kafka holds for the sources of one topic; a topic that cannot be read is no other one's affair."""
        try:
            entries = self._entries(topic, {place for source in sources for place in self._routes[source].places})
        except NeedsOperator as error:
            return dict.fromkeys(sources, error)
        return {source: self._found(source, entries, former) for source in sources}

    def _entries(self, topic: str, own: Collection[Partition]) -> Entries:
        """Return what is committed in a topic: in some partitions only what is stable, in the others at this bridge's first look.

        The others are those of sources that work, of which some are in an open transaction at any time: a moment without any may
        never come. They only show which source had which partition, which does not change while bridges run.
        """
        there = partitions_of(self._client, self._group, {topic})
        # A reload of the file, in another thread, replaces it.
        at_first = self._at_first
        if topic not in at_first:
            with reading(self._connection, self._group, stable=False) as client:
                at_first[topic] = read_entries(client, self._group, there)
        others = {place: entry for place, entry in at_first[topic].items() if place not in own}
        return others | read_entries(self._client, self._group, [place for place in there if place in own])

    def _found(self, source: str, entries: Entries, former: Collection[str] | None) -> Committed | ReplicationError:
        route = self._routes[source]
        try:
            own = committed_of(source, entries)
            if own is None:
                check_free(route, entries, self._in_file)
                own = self._former(route, former)
            check_assignment(route, own)
        except (NeedsOperator, CorruptInput) as error:
            return error
        if own is not None and own.position is not None:
            return own
        tail = read_last_record(self._client, source, list(route.topics), route.partitions)
        if tail is not None:
            _log.warning("%s: no committed position in Kafka; its last record is at %s", source, tail)
        return Committed(
            tail, "", "", dict(own.offsets) if own is not None else {}, own.withheld if own is not None else None
        )

    def _former(self, route: SourceRoute, former: Collection[str] | None) -> Committed | None:
        """Return what a release of before the shared group committed for a source."""
        if former is not None and former_group(route.source) not in former:
            return None
        return take_over_former(self._connection, route)

    def _former_groups(self) -> Collection[str] | None:
        """Return the groups that there are; None when it is not known of all brokers, and each has to be asked for."""
        try:
            listed = self._admin.list_consumer_groups(request_timeout=PATIENCE).result()
        except KafkaException:
            return None
        return None if listed.errors else {each.group_id for each in listed.valid}

    def _add_ends(self, found: Mapping[str, Committed | ReplicationError]) -> None:
        """Give those without offsets the ends of their partitions."""
        without = [source for source, each in found.items() if isinstance(each, Committed) and not each.offsets]
        places = [place for source in without for place in self._routes[source].places]
        if not places:
            return
        with translated("read the ends of topics"):
            asked = self._admin.list_offsets(
                {TopicPartition(*place): OffsetSpec.latest() for place in places}, request_timeout=PATIENCE
            )
            ends = {(place.topic, place.partition): answer.result().offset for place, answer in asked.items()}
        for source in without:
            committed = found[source]
            assert isinstance(committed, Committed)
            committed.offsets.update({place: ends[place] for place in self._routes[source].places})


def check_assignment(route: SourceRoute, committed: Committed | None) -> None:
    """Raise NeedsOperator when a source's position is committed in other partitions than those that the file gives it."""
    owns = set(route.places)
    if committed is not None and set(committed.offsets) != owns:
        raise NeedsOperator(
            f"{route.source} owned {_named(set(committed.offsets))} until now, and the bridge's file names {_named(owns)}",
            hint="Partitions never move silently: name the former ones in the file, or run "
            f"'headrace bridge move {route.source}' to go on in the new ones from the same position.",
        )


def check_free(route: SourceRoute, entries: Entries, routes: Mapping[str, SourceRoute]) -> None:
    """Raise NeedsOperator when a partition of a source holds the position of another source of the file."""
    for place in route.places:
        holder = entries[place][1].source if place in entries else ""
        if holder in routes:
            raise NeedsOperator(
                f"{_named({place})} is {route.source}'s by the bridge's file, and holds the position of {holder}",
                hint=f"Run 'headrace bridge move {holder}' first, or correct the file.",
            )


def _named(partitions: set[Partition]) -> str:
    return ", ".join(f"{topic}[{partition}]" for topic, partition in sorted(partitions))
