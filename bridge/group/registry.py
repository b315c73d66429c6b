"""The roster: the sources of the bridge's file, and the threads of those that it serves now.

Inboxes and figures stay for as long as the bridge; threads come and go where sources are shared with other bridges. Made by
the bridge; `start` and `end` are called by one thread.
"""

import logging
import time
from collections.abc import Collection
from typing import Any

from bridge.amqp.receiver import Receiver
from bridge.kafka.commit_throttle import Rests
from bridge.kafka.committer import Committer, SourceRoute
from bridge.kafka.table_router import TableRouter
from bridge.metrics import SourceMetrics
from bridge.source.inbox import Inbox
from bridge.source.state import Source
from headrace.configuration.bridge import BridgeFile

_log = logging.getLogger(__name__)


class SourceRegistry:
    """Every source of one file."""

    def __init__(self, file: BridgeFile, client: Any, bridge: str, recommit_seconds: float) -> None:
        self._file = file
        self._client = client
        self._bridge = bridge
        self._recommit_seconds = recommit_seconds
        self._rests = Rests()
        self.routes = routes(file)
        self.inboxes = {name: Inbox() for name in self.routes}
        self.figures = {name: SourceMetrics() for name in self.routes}
        #: The thread of each source that is served, or was until it ended by itself.
        self.running: dict[str, Source] = {}

    def start(self, names: Collection[str], receiver: Receiver) -> None:
        """Serve sources, from what Kafka says of each."""
        for name in names:
            self.inboxes[name].open()
            self.running[name] = source = Source(
                name,
                Committer(self._file.kafka, self._client, self.routes[name], self._bridge, self._rests),
                receiver,
                self.inboxes[name],
                self.figures[name],
                transaction_seconds=self._file.kafka.transaction_milliseconds / 1000,
                recommit_seconds=self._recommit_seconds,
            )
            source.start()

    def end(self, names: Collection[str], receiver: Receiver, seconds: float) -> None:
        """Serve sources no more: finish what is open, release the rest, all within `seconds`."""
        ending = [self.running.pop(name) for name in names if name in self.running]
        for source in ending:
            receiver.withhold_credit(source.source)
            source.stop()
        until = time.monotonic() + seconds
        for source in ending:
            source.join(max(0.0, until - time.monotonic()))
            if source.is_alive():
                _log.warning("%s: did not end in time; what was not committed is sent again", source.source)


def routes(file: BridgeFile) -> dict[str, SourceRoute]:
    """Return where the records of each source go."""
    return {
        source: SourceRoute(
            source,
            file.topic(name),
            tuple(partitions),
            TableRouter(file.topic(name), file.tables(name)) if stream.tables else None,
        )
        for name, stream in file.streams.items()
        for source, partitions in stream.sources.items()
    }
