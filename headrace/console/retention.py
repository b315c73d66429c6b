"""How long it takes until Kafka may remove what the lake has not loaded yet, looked up every twenty seconds.

Called by pages and metrics.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from headrace.configuration.lake import LakeFile
from headrace.console.bridges import defect
from headrace.errors import ReplicationError
from headrace.retention import KafkaReader, RetentionReader, StreamRetention

#: Seconds between two looks.
EVERY = 20.0
#: By stream, then by topic and partition: offset of the first record that bronze lacks.
Loaded = Mapping[str, Mapping[tuple[str, int], int]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RetentionView:
    """What is known of all streams."""

    streams: dict[str, StreamRetention] = field(default_factory=dict)
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
        self._streams: dict[str, RetentionReader] = {}
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

    def _ask(self, file: LakeFile, loaded: Loaded) -> dict[str, StreamRetention]:
        if self._reader is None:
            self._reader = KafkaReader(file.kafka)
        streams = {}
        for stream in loaded:
            reader = self._streams.setdefault(stream, RetentionReader(self._reader))
            if (retention := reader.read(partial(file.has_topic, stream), loaded[stream])) is not None:
                streams[stream] = retention
        return streams

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - a defect of this figure alone.
                _log.exception("the retention of the streams' topics was not looked up")
                self._view = replace(self._view, problem=defect(error), hint="", asked=True)
            # Once the lake was read, which takes a moment.
            self._stopped.wait(self._every if self._view.asked else 1.0)
