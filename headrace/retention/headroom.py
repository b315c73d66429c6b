"""How long it takes until Kafka may remove what the lake has not loaded yet.

A record that Kafka's retention removed before a load is lost to the lake, so this is the time that is left to repair loads.
Kafka removes a segment when its newest record is older than `retention.ms`: a record is kept for that long, or a little longer.
`retention.bytes`, which removes by size, is not looked at.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NotConnected

if TYPE_CHECKING:
    from headrace.retention.kafka_reader import Held, KafkaReader, Place


@dataclass(frozen=True, kw_only=True)
class StreamKept:
    """For how long Kafka keeps what a stream's bronze table lacks."""

    #: Seconds for which a record is kept, by the topic that keeps them least; None where age removes nothing.
    retention: float | None
    #: When the oldest record that bronze lacks may be removed, in seconds since 1970; None while bronze lacks nothing.
    removal_at: float | None

    def headroom(self, now: float) -> float | None:
        """Return the seconds until then: the whole retention while bronze lacks nothing, 0 when it may be too late."""
        if self.retention is None or self.removal_at is None:
            return self.retention
        return max(0.0, self.removal_at - now)


class Headroom:
    """Looks at one stream's topics, with a client that others may share; remembers when records were written."""

    def __init__(self, reader: "KafkaReader") -> None:
        self._reader = reader
        #: When the first record that is lacking was written, by its place: read again only where the place is another one.
        self._written: dict[tuple[Place, int], float] = {}

    def look(self, belongs: Callable[[str], bool], loaded: Mapping[tuple[str, int], int]) -> StreamKept | None:
        """Return for how long Kafka keeps what is not loaded, of topics chosen by their names; None where there are none.

        `loaded` has the offset of the first record that bronze lacks, by topic and partition. Raises NotConnected, NeedsOperator.
        """
        held = self._reader.held(belongs)
        if not held:
            return None
        lacking = first_lacking(loaded, held)
        there = {place: offset for place, offset in lacking.items() if offset >= held[place].start}
        new = {place: offset for place, offset in there.items() if (place, offset) not in self._written}
        for place, at in self._reader.written_at(new).items() if new else ():
            self._written[place, new[place]] = at
        written = {place: self._written.get((place, offset)) for place, offset in lacking.items()}
        self._written = {key: at for key, at in self._written.items() if key in lacking.items()}
        return kept(held, lacking, written)


def connected(kafka: KafkaConnection, extra: str) -> "KafkaReader":
    """Return a client of the cluster; raise NotConnected where the extra that brings it is not installed."""
    try:
        from headrace.retention.kafka_reader import KafkaReader  # noqa: PLC0415 - only where a lake is shown or checked.
    except ModuleNotFoundError as error:
        raise NotConnected(
            "the package confluent-kafka is not installed", hint=f"Install Headrace with the extra '{extra}'."
        ) from error
    return KafkaReader(kafka)


def first_lacking(loaded: Mapping[tuple[str, int], int], held: Mapping["Place", "Held"]) -> dict["Place", int]:
    """Return the offset of the first record that bronze lacks, of each partition that has one and where age removes records."""
    needed = {place: loaded.get(place, 0) for place in held}
    return {
        place: needed[place] for place, one in held.items() if one.retention is not None and needed[place] < one.end
    }


def kept(
    held: Mapping["Place", "Held"], lacking: Mapping["Place", int], written: Mapping["Place", float | None]
) -> StreamKept:
    """Return how long a stream is kept; `written`: when the first record that bronze lacks was, where it is known."""
    removals = []
    for place, offset in lacking.items():
        one, at = held[place], written.get(place)
        if offset < one.start:
            # Removed already.
            removals.append(0.0)
        elif at is not None and one.retention is not None:
            removals.append(at + one.retention)
    limits = [one.retention for one in held.values() if one.retention is not None]
    return StreamKept(retention=min(limits, default=None), removal_at=min(removals, default=None))
