"""Empty batches made outside a session: while the database is unavailable, and when the edge ends.

So headquarters hears what is the matter from the edge itself, instead of only noticing that it is silent. Used by the agent, in
the capturing thread, while no session puts batches into the outbox.
"""

import time
from collections.abc import Callable

from edge.delivery.outbox import Outbox
from edge.observability.figures import Figures
from edge.records.batcher import Batcher
from headrace.configuration.edge import EdgeFile

#: How long the last batch, and what is ahead of it, may take to be accepted, in seconds.
_FINAL_SECONDS = 2.0
#: How long an edge that ends with an error waits for its first connection to the interconnect, in seconds.
_CONNECT_SECONDS = 5.0
_LOOK_SECONDS = 0.05


class Heartbeat:
    """Puts empty batches into the outbox, with the edge's figures."""

    def __init__(self, config: EdgeFile, outbox: Outbox, figures: Figures) -> None:
        self._source = config.source.name
        self._every = config.heartbeat_seconds
        self._outbox = outbox
        self._figures = figures
        self._sent_at = time.monotonic()

    def tick(self) -> None:
        """Send the figures, when it is time and nothing else is in flight."""
        figures, now = self._figures, time.monotonic()
        figures.turned_at = now
        figures.unacknowledged_batches, figures.unacknowledged_bytes = self._outbox.batches, self._outbox.bytes
        if now - self._sent_at >= self._every and self._outbox.empty:
            self._send()

    def final(self, state: str, reason: str, is_stopping: Callable[[], bool] = lambda: True) -> None:
        """Report that the edge ends and why; wait a moment until that has arrived, and before that for what is in flight.

        An edge that ends as soon as it starts, as with a slot that is gone, waits until it is connected, unless `is_stopping`.
        """
        self._figures.ended_state, self._figures.ended = state, reason
        if reason:
            self._wait_for_connection(is_stopping)
            self._wait()
        if not self._figures.interconnect_connected or not self._outbox.empty:
            return
        self._send()
        self._wait()

    def _wait_for_connection(self, is_stopping: Callable[[], bool]) -> None:
        figures, until = self._figures, time.monotonic() + _CONNECT_SECONDS
        while (
            not (figures.interconnect_connections or self._outbox.problem or is_stopping()) and time.monotonic() < until
        ):
            time.sleep(_LOOK_SECONDS)

    def _wait(self) -> None:
        """Wait a moment until everything is accepted; no longer when the interconnect is unavailable."""
        until = time.monotonic() + _FINAL_SECONDS
        while self._outbox.batches and self._figures.interconnect_connected and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)

    def _send(self) -> None:
        self._sent_at = time.monotonic()
        batcher = Batcher(source=self._source, tail=self._outbox.tail, figures=self._figures.for_batch)
        self._outbox.put([batcher.empty()])
