"""How long it takes until Kafka may remove what the lake has not loaded yet. Looked up every twenty seconds.

A record that Kafka's retention removed before a load is lost to the lake, so this is the time that is left to repair loads.
Kafka removes a segment when its newest record is older than `retention.ms`: a record is kept for that long, or a little longer.
`retention.bytes`, which removes by size, is not looked at. Called by pages and metrics.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from headrace.configuration.lake import LakeFile
from headrace.errors import NotConnected, ReplicationError

if TYPE_CHECKING:
    from headrace.console.kafka_reader import Held, KafkaReader, Place

#: Seconds between two looks.
EVERY = 20.0
#: By stream, then by topic and partition: offset of the first record that bronze lacks.
Loaded = Mapping[str, Mapping[tuple[str, int], int]]

_log = logging.getLogger(__name__)


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


@dataclass(frozen=True, kw_only=True)
class RetentionView:
    """What is known of all streams."""

    streams: dict[str, StreamKept] = field(default_factory=dict)
    #: Why Kafka cannot be asked now; empty while it can, or before the first look.
    problem: str = ""
    hint: str = ""
    #: Whether Kafka has been asked at all.
    asked: bool = False


class Retention:
    """Asks Kafka from `start` until `stop`, in a thread of its own."""

    def __init__(self, file: LakeFile | None, loaded: Callable[[], Loaded | None], *, every: float = EVERY) -> None:
        """Take the lake's file, and what returns the offsets that its bronze tables hold: None before they were read."""
        self._file = file
        self._loaded = loaded
        self._every = every
        self._view = RetentionView()
        self._reader: KafkaReader | None = None
        #: When the first record that is lacking was written, by its place: read again only where the place is another one.
        self._written: dict[tuple[Place, int], float] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="retention", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        if self._file is not None:
            self._thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()

    def view(self) -> RetentionView:
        """Return what is known now; never waits."""
        return self._view

    def look(self) -> None:
        """Ask once; without an answer what is known stays, and with it the time until something is removed."""
        file, loaded = self._file, self._loaded()
        if file is None or loaded is None:
            return
        try:
            self._view = RetentionView(streams=self._ask(file, loaded), asked=True)
        except ReplicationError as error:
            self._view = RetentionView(
                streams=self._view.streams, problem=error.message, hint=error.hint or "", asked=True
            )

    def _ask(self, file: LakeFile, loaded: Loaded) -> dict[str, StreamKept]:
        reader = self._connected(file)
        found, seen = {}, set()
        for stream in loaded:
            held = reader.held(partial(file.has_topic, stream))
            if not held:
                continue
            lacking = first_lacking(loaded[stream], held)
            there = {place: offset for place, offset in lacking.items() if offset >= held[place].start}
            new = {place: offset for place, offset in there.items() if (place, offset) not in self._written}
            for place, at in reader.written_at(new).items() if new else ():
                self._written[place, new[place]] = at
            written = {place: self._written.get((place, offset)) for place, offset in lacking.items()}
            found[stream] = kept(held, lacking, written)
            seen |= set(lacking.items())
        self._written = {key: at for key, at in self._written.items() if key in seen}
        return found

    def _connected(self, file: LakeFile) -> "KafkaReader":
        if self._reader is None:
            try:
                from headrace.console.kafka_reader import KafkaReader  # noqa: PLC0415 - only where a lake is shown.
            except ModuleNotFoundError as error:
                raise NotConnected(
                    "the package confluent-kafka is not installed", hint="Install Headrace with the extra 'console'."
                ) from error
            self._reader = KafkaReader(file.kafka)
        return self._reader

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                self.look()
            except Exception:  # noqa: BLE001 - a defect of this figure alone.
                _log.exception("the retention of the streams' topics was not looked up")
            # Once the lake was read, which takes a moment.
            self._stopped.wait(self._every if self._view.asked else 1.0)


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
