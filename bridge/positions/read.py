"""The committed positions of sources: offsets of the group of bridges, with the position in their metadata (design decision 4).

A position is committed in the same transaction as the records, for every partition that the source owns in its stream's topic,
so the group records the assignment too. The offset is the log's end, so lag tools show nothing odd. Where the group holds
nothing of a source, its position is in a group of its own, of a former release (bridge/positions/former.py); or, since Kafka
forgets idle groups, it is that of the last committed record in its partitions.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bridge.kafka.client import consumer
from bridge.kafka.entries import (
    Entries,
    ForeignOffset,
    committed_of,
    partitions_of,
    read_entries,
    reading,
    restore,
)
from bridge.kafka.lifetime import KeptClient
from bridge.kafka.producer import Leftovers
from bridge.model.ports import Committed, Partition
from bridge.model.route import SourceRoute
from bridge.positions.former import find_former
from bridge.positions.last_record import bounds, known_withheld, read_last_records
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.position import Position

_log = logging.getLogger(__name__)

#: Seconds that positions of one request may be in doubt before it is tried again: an open transaction holds them back.
_STABLE_SECONDS = 2.0


class Positions:
    """Implements `PositionReader` over the sources of one file.

    One that does not search returns None for sources whose position is not in the group: one request has those of all others,
    while theirs may take long, each alone.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        admin: Any,
        group: str,
        routes: Mapping[str, SourceRoute],
        leftovers: Leftovers | None = None,
        *,
        searches: bool = True,
    ) -> None:
        self._connection = connection
        self._admin = admin
        self._group = group
        self._routes = self._in_file = routes
        self._leftovers = leftovers
        self._searches = searches
        self._client = KeptClient(connection, lambda: consumer(connection, group))
        #: What was committed in all partitions of each topic when this bridge first read one of them, and all was readable.
        self._at_first: dict[str, Entries] = {}

    def use(self, routes: Mapping[str, SourceRoute]) -> None:
        """Read the positions of other sources from now on."""
        # Those that left are still looked up by a read that has begun. Who had which partition is looked at again.
        self._routes, self._in_file, self._at_first = {**self._routes, **routes}, routes, {}

    def read(self, sources: Collection[str]) -> dict[str, Committed | ReplicationError | None]:
        """Return what Kafka holds for each source that is still in the file, or why it is not known."""
        sources = [source for source in sources if source in self._in_file]
        committed: dict[str, Committed | ReplicationError | None] = {}
        try:
            for topic in sorted({self._routes[source].topic for source in sources}):
                committed |= self._of_topic(topic, [each for each in sources if self._routes[each].topic == topic])
        except ReplicationError:
            self.close()
            raise
        without = {source: each for source, each in committed.items() if each is None or _is_lost(each)}
        if not self._searches:
            committed |= dict.fromkeys(without)
        elif without:
            committed |= self._search(without)
        return committed | known_withheld(
            self._client.get() if self._searches else None, self._admin, self._routes, committed
        )

    def close(self) -> None:
        """Give the client up; the next call makes another one."""
        self._client.close()

    def _of_topic(self, topic: str, sources: Collection[str]) -> dict[str, Committed | ReplicationError | None]:
        """Return what the group holds for the sources of one topic; a topic that cannot be read is no other one's affair."""
        try:
            entries, refused = self._entries(
                topic, {place for source in sources for place in self._routes[source].places}
            )
        except NeedsOperator as error:
            return dict.fromkeys(sources, error)
        return {source: self._of_group(source, entries, refused) for source in sources}

    def _entries(self, topic: str, own: Collection[Partition]) -> tuple[Entries, Mapping[Partition, ReplicationError]]:
        """Return what is committed in a topic: in some partitions only what is stable, in the others at this bridge's first look.

        And what is wrong with single partitions, such as what no bridge wrote there.

        The others are those of sources that work, of which some are in an open transaction at any time: a moment without any may
        never come. They only show which source had which partition, which does not change while bridges run.
        """
        client = self._client.get()
        there = partitions_of(client, self._group, {topic})
        refused: dict[Partition, ReplicationError] = {}
        # A reload of the file, in another thread, replaces it.
        at_first = self._at_first
        entries = at_first.get(topic)
        if entries is None:
            with reading(self._connection, self._group, stable=False) as other:
                entries = read_entries(other, self._group, there, refused, seconds=_STABLE_SECONDS)
            if not refused:
                at_first[topic] = entries
        entries = {place: entry for place, entry in entries.items() if place not in own}
        refused = {place: error for place, error in refused.items() if place not in own}
        try:
            own_places = [place for place in there if place in own]
            entries |= read_entries(client, self._group, own_places, refused, seconds=_STABLE_SECONDS)
        except NotConnected:
            if self._leftovers is not None:
                self._leftovers.end(self._group, own)
            raise
        for place in restore(entries, refused, self._in_file.values()):
            _log.warning(
                "%s: another tool has committed for %s[%d]; the source's other partitions have its position",
                *(entries[place][1].source, *place),
            )
        return entries, refused

    def _of_group(
        self, source: str, entries: Entries, refused: Mapping[Partition, ReplicationError]
    ) -> Committed | ReplicationError | None:
        """Return what the group holds for a source, None for nothing."""
        route = self._routes[source]
        try:
            own = committed_of(source, entries)
            check_refused(route, own, entries, refused)
            if own is None:
                check_free(route, entries, self._in_file)
            check_assignment(route, own)
        except ReplicationError as error:
            return error
        return own

    def _search(
        self, sources: Mapping[str, Committed | ReplicationError | None]
    ) -> dict[str, Committed | ReplicationError | None]:
        """Return what Kafka holds of sources whose position is not in the group: of a former release, or their last records."""
        routes = [self._routes[source] for source in sources]
        fresh = [route for route in routes if sources[route.source] is None]
        former = find_former(self._connection, self._admin, fresh) if fresh else {}
        ends = bounds(
            self._admin, [(topic, number) for each in routes for topic in each.topics for number in each.partitions]
        )
        committed: dict[str, Committed | ReplicationError | None] = {}
        without: dict[str, Committed] = {}
        wanted: dict[str, dict[Partition, tuple[int, int]]] = {}
        for source, held in sources.items():
            route = self._routes[source]
            try:
                own = held if held is not None else former[source]
                if isinstance(own, ReplicationError):
                    raise own
                check_assignment(route, own)
                if own is not None and own.position is not None:
                    committed[source] = own
                    continue
                known = {
                    (topic, number): _known(ends[topic, number])
                    for topic in route.topics
                    for number in route.partitions
                }
                wanted[source] = {place: each for place, each in known.items() if each[0] < each[1]}
                offsets = {place: known[place][1] for place in route.places} if own is None else dict(own.offsets)
                without[source] = Committed(None, "", "", offsets, own.withheld if own is not None else None)
            except ReplicationError as error:
                # No other source's affair.
                committed[source] = error
        tails = read_last_records(self._client.get(), wanted) if any(wanted.values()) else dict.fromkeys(wanted)
        for source, tail in tails.items():
            if isinstance(tail, Position):
                _log.warning("%s: no committed position in Kafka; its last record is at %s", source, tail)
            committed[source] = tail if isinstance(tail, ReplicationError) else without[source]._replace(position=tail)
        return committed


def _is_lost(committed: Committed | ReplicationError) -> bool:
    """Whether the group has partitions of a source, and no position."""
    return isinstance(committed, Committed) and committed.position is None


def _known(offsets: tuple[int, int] | ReplicationError) -> tuple[int, int]:
    """Return where a partition begins and ends; raise why that is not known."""
    if isinstance(offsets, ReplicationError):
        raise offsets
    if offsets[0] < 0:
        raise Retryable(f"Kafka: a partition begins at offset {offsets[0]}, which none does")
    return offsets


def check_refused(
    route: SourceRoute, committed: Committed | None, entries: Entries, refused: Mapping[Partition, ReplicationError]
) -> None:
    """Raise what is wrong with a partition of a source, or, where it has no position, with any that may have been its own."""
    for place in route.places:
        error = refused.get(place)
        if error is not None:
            raise error.within(route, committed, entries) if isinstance(error, ForeignOffset) else error
    if committed is None:
        for place in sorted(place for place in refused if place[0] == route.topic):
            error = refused[place]
            raise error.without(route.source) if isinstance(error, ForeignOffset) else error


def check_assignment(route: SourceRoute, committed: Committed | None) -> None:
    """Raise NeedsOperator when a source's position is committed in other partitions than those that the file gives it."""
    if committed is None:
        return
    owns, held = set(route.places), set(committed.offsets)
    # A partition in which another tool committed, or deleted, holds nothing of the source, and the source's text still names it.
    owned = held | {(topic, number) for topic, _ in held for number in committed.order}
    if not held == owned == owns:
        raise NeedsOperator(
            f"{route.source} owned {_named(held if owned == owns else owned)} until now, and the bridge's file names "
            f"{_named(owns)}",
            hint="Partitions never move silently: name the former ones in the file, or run "
            f"'headrace bridge move {route.source}' to go on in the new ones from the same position.",
        )
    check_order(route, committed.order)


def check_order(route: SourceRoute, before: Sequence[int]) -> None:
    """Raise NeedsOperator when a source's partitions had another order; empty where it is not known."""
    if before and tuple(before) != route.partitions:
        raise NeedsOperator(
            f"{route.source} had its partitions in the order {list(before)} until now, and the bridge's file has "
            f"{list(route.partitions)}",
            hint="By that order keys are shared out: a key's next changes would be in another partition than those before. Put "
            "the former order back.",
        )


def check_reordered(route: SourceRoute, before: Sequence[int]) -> None:
    """Raise NeedsOperator when a source is to have the same partitions in another order; in others keys are elsewhere anyway."""
    if sorted(before) == sorted(route.partitions):
        check_order(route, before)


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
