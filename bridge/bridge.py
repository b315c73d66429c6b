"""The bridge: one receiver, a thread for each source that it serves, and what starts, watches and stops them.

Refuses to start over topics that are missing or too small; waits for a Kafka that cannot be reached. Stops within seconds:
credit first, then open transactions, then the outcomes. Called by the command.
"""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Collection
from typing import Any

from bridge.amqp.receiver import Receiver
from bridge.group.membership import Membership
from bridge.group.registry import SourceRegistry
from bridge.kafka.client import admin
from bridge.kafka.topics import check, wanted
from bridge.service import BridgeService
from headrace.backoff import Backoff
from headrace.configuration.bridge import BridgeFile
from headrace.errors import NeedsOperator, NotConnected, Retryable
from headrace.metrics.endpoint import Endpoint

_log = logging.getLogger(__name__)

_STOP_SECONDS = 6.0
#: A source that got nothing commits its position again after so long: Kafka forgets groups that nobody uses (7 days).
RECOMMIT_SECONDS = 3600.0
_REPORT_SECONDS = 60.0
#: What an edge is told whose source another bridge serves: it tries its next address.
ELSEWHERE = "amqp:link:redirect"
#: How often, a second apart, topics must be seen to be wrong before the bridge believes it.
_LOOKS = 3


class Bridge:
    """Serves the sources of one file until `stop`."""

    def __init__(self, file: BridgeFile, *, recommit_seconds: float = RECOMMIT_SECONDS) -> None:
        self._file = file
        self._stopping = threading.Event()
        #: What tells this run of a bridge from any other; it goes with every committed position.
        self.name = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self._admin = admin(file.kafka)
        self.roster = SourceRegistry(file, self._admin, self.name, recommit_seconds)
        self.receiver = Receiver(file.interconnect, self.roster.inboxes, f"headrace-bridge/{self.name}")
        self._service = BridgeService(self.roster.figures, lambda: self.receiver.connected)
        self._membership = self._sharing()
        #: Where metrics, health and status are answered while `run` runs, if they are.
        self.endpoint: Endpoint | None = None

    def run(self) -> None:
        """Serve until `stop` is called.

        Raises:
            NeedsOperator: topics are missing, or other bridges have taken over all sources.
            ConfigurationError: the address to listen on is taken.
        """
        if self._file.metrics.listen is not None:
            self.endpoint = Endpoint(self._file.metrics.listen, self._service)
        try:
            if self._wait_for_kafka():
                self._serve()
        finally:
            if self.endpoint is not None:
                self.endpoint.stop()

    def _serve(self) -> None:
        self._service.waits_for = ""
        try:
            self.receiver.start()
            if self._membership is not None:
                _log.info("bridge %s shares %d sources", self.name, len(self.roster.routes))
                self._lost(self.roster.routes)
                self._membership.start()
            else:
                _log.info("bridge %s serves %d sources", self.name, len(self.roster.routes))
                self.roster.start(self.roster.routes, self.receiver)
            self._watch()
        finally:
            self._end()

    def _sharing(self) -> Membership | None:
        sharing = self._file.sharing
        if sharing is None:
            return None
        first = {(home.topic, home.partitions[0]): home.source for home in self.roster.routes.values()}
        return Membership(self._file.kafka, sharing, first, self._gained, self._lost)

    def _gained(self, sources: Collection[str]) -> None:
        _log.info("sources that fell to this bridge: %s", ", ".join(sorted(sources)) or "none")
        for source in sources:
            self.roster.figures[source].begin()
            self.receiver.admit(source)
        self.roster.start(sources, self.receiver)

    def _lost(self, sources: Collection[str]) -> None:
        self.roster.end(sources, self.receiver, _STOP_SECONDS)
        for source in sources:
            self.roster.figures[source].state = "elsewhere"
            self.receiver.refuse(source, ELSEWHERE, f"{source} is served by another bridge")

    def stop(self) -> None:
        """Have `run` end: open transactions are finished, their batches accepted."""
        self._stopping.set()

    def figures(self) -> dict[str, dict[str, Any]]:
        """Return the figures of every source."""
        return {name: figures.snapshot() for name, figures in self.roster.figures.items()}

    def _wait_for_kafka(self) -> bool:
        """Return once the topics are seen to be right; False when stopped before."""
        backoff, said, looks = Backoff(first=0.5, longest=5.0), False, 0
        while not self._stopping.is_set():
            self._service.turned_at = time.monotonic()
            try:
                check(self._admin, wanted(self._file), patience=2.0)
            except (NotConnected, Retryable) as error:
                self._admin.renew()
                self._service.waits_for = f"Kafka at {self._file.kafka.bootstrap} does not answer: {error.message}"
                if not said:
                    _log.warning(
                        "Kafka at %s does not answer: %s. Trying again.", self._file.kafka.bootstrap, error.message
                    )
                said = True
                self._stopping.wait(backoff.pause())
            except NeedsOperator:
                # What was just made, or a broker that has just started, is not known to everybody yet.
                looks += 1
                if looks == _LOOKS:
                    raise
                self._stopping.wait(1.0)
            else:
                if said:
                    _log.info("Kafka at %s answers", self._file.kafka.bootstrap)
                return True
        return False

    def _watch(self) -> None:
        """Return when it is time to stop; raise what ended a thread."""
        report_at = time.monotonic() + _REPORT_SECONDS
        while not self._stopping.wait(0.25):
            self._service.turned_at = time.monotonic()
            parts: list[Any] = [self.receiver, *self.roster.running.copy().values(), *filter(None, [self._membership])]
            for failure in filter(None, (part.failure for part in parts)):
                raise failure
            if self._membership is None and all(
                figures.state == "taken over" for figures in self.roster.figures.values()
            ):
                raise NeedsOperator(
                    "other bridges have taken over all sources of this one",
                    hint="Two bridges must not serve the same sources: see 'headrace bridge positions', and stop one.",
                )
            if time.monotonic() >= report_at:
                report_at += _REPORT_SECONDS
                self._report()

    def _report(self) -> None:
        for name, known in self.figures().items():
            _log.info(
                "%s: %s at %s; %d records in %d batches and %d transactions, %d repeats, %d released, %d rejected; %s",
                name,
                known["state"],
                known["position"] or "no position",
                *(known[key] for key in ("records", "batches", "transactions", "repeats", "released", "rejected")),
                "edge not heard yet"
                if known["silent_seconds"] is None
                else f"edge heard {known['silent_seconds']} s ago",
                extra={"figures": known},
            )

    def _end(self) -> None:
        if self._membership is not None:
            self._membership.stop(2 * _STOP_SECONDS)
        self.roster.end(list(self.roster.running), self.receiver, _STOP_SECONDS)
        self.receiver.stop(2.0)
        self._report()
        _log.info("stopped")
