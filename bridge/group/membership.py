"""Membership in the group of bridges that share sources: Kafka's consumer-group assignment says which bridge serves which.

A source belongs to the member that is assigned the first of its partitions. Nothing is ever fetched: the assigned partitions are
paused, and others commit positions (bridge/kafka/positions.py). Partitions move as few as possible, and only when a bridge
comes or goes. What a member lost without being asked, as after a pause that outlasted its session, another has taken over and
fenced already. Made, started and stopped by the bridge; `gained` and `lost` are called in its own thread.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from bridge.kafka.client import member, translated
from headrace.configuration.bridge import Sharing
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NotConnected, Retryable

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.2


class Membership(threading.Thread):
    """One bridge's part in the group."""

    def __init__(
        self,
        kafka: KafkaConnection,
        sharing: Sharing,
        sources: Mapping[tuple[str, int], str],
        gained: Callable[[Collection[str]], None],
        lost: Callable[[Collection[str]], None],
    ) -> None:
        super().__init__(name="membership", daemon=True)
        self._kafka = kafka
        self._sharing = sharing
        #: Which source a topic's partition stands for; others stand for none.
        self._sources = sources
        self._gained = gained
        self._lost = lost
        self._stopping = threading.Event()
        #: What went wrong that nobody expected; the bridge ends with it.
        self.failure: BaseException | None = None

    def stop(self, seconds: float) -> None:
        """Leave the group, so that the others take over at once, waiting at most `seconds`."""
        self._stopping.set()
        if self.ident is not None:
            self.join(seconds)

    def run(self) -> None:
        """Take part until stopped."""
        try:
            consumer = member(self._kafka, self._sharing.group, self._sharing.session_seconds)
            try:
                self._take_part(consumer)
            finally:
                consumer.close()
        except BaseException as error:  # noqa: BLE001 - the bridge ends with it.
            _log.exception("unexpected error")
            self.failure = error

    def _take_part(self, consumer: Any) -> None:
        consumer.subscribe(
            sorted({topic for topic, _ in self._sources}),
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )
        said = ""
        while not self._stopping.is_set():
            try:
                with translated(f"share sources in group {self._sharing.group}"):
                    event = consumer.poll(_POLL_SECONDS)
                    if event is not None and event.error() is not None:
                        raise Retryable(f"Kafka: {event.error().str()}")
            except (NotConnected, Retryable) as error:
                # The client goes on by itself; the sources say when it lasts.
                if error.message != said:
                    _log.warning("group %s: %s", self._sharing.group, error.message)
                said = error.message
                self._stopping.wait(_POLL_SECONDS)

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        consumer.incremental_assign(partitions)
        if partitions:
            consumer.pause(partitions)
        self._gained(self._named(partitions))

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        self._lost(self._named(partitions))
        consumer.incremental_unassign(partitions)

    def _named(self, partitions: list[Any]) -> list[str]:
        found = (self._sources.get((each.topic, each.partition)) for each in partitions)
        return [source for source in found if source is not None]
