"""The bridge: a receiver, a membership, a recovery and a few lanes, each in a thread; what starts, watches and stops them.

Refuses to start over topics that are not as they must be, or where no source has its partitions; waits for a Kafka that cannot be
reached. Stops within seconds: credit first, then open transactions, then the outcomes. Called by the command.
"""

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from bridge.amqp.receiver import Receiver
from bridge.deliveries.worker import Deliveries
from bridge.group.client import KafkaMember
from bridge.group.membership import Membership, Recovery
from bridge.kafka.client import admin
from bridge.kafka.entries import call_within
from bridge.kafka.errors import translated
from bridge.kafka.lifetime import Lifetime, Renewal
from bridge.kafka.producer import Leftovers, opener
from bridge.kafka.topics import Missing, RecordLimits, check, find_missing, names, wanted
from bridge.lanes.lane import Lane, LaneSettings
from bridge.model.route import SourceRoute, first_places, learn, routes
from bridge.positions.read import Positions
from bridge.reloader import Reloader
from bridge.requests.worker import RequestWorker, TopicReader
from bridge.routing.registered_schemas import RegisteredSchemas
from bridge.service import BridgeService, Stalls, Threads
from bridge.source.registry import SourceRegistry
from bridge.withheld.releaser import KafkaReader, Releaser
from headrace.certificates.files import ConnectionMetrics, Expiry
from headrace.configuration.bridge import BridgeFile
from headrace.errors import NeedsOperator, NotConnected, Retryable
from headrace.metrics.endpoint import Endpoint
from headrace.registry.client import RegistryClient
from headrace.waiting import Backoff, StopRequest

_log = logging.getLogger(__name__)

_STOP_SECONDS = 6.0
#: A source that got nothing commits its position again after so long: Kafka forgets what nobody commits (7 days).
RECOMMIT_SECONDS = 3600.0
_REPORT_SECONDS = 60.0
#: How long the last answers of edges may take to be written, in seconds.
_ANSWERS_SECONDS = 2.0
#: How long a lane may take to close, in seconds.
_CLOSE_SECONDS = 2.0
_TURN_SECONDS = 0.25
#: How often, a second apart, topics must be seen to be wrong before the bridge believes it.
_LOOKS = 3
#: A read of positions takes less: what Kafka's client may wait for has a limit of its own each time, in seconds.
_STUCK_SECONDS = 120.0
#: How long after a reload that Kafka did not answer it is tried again, in seconds.
_RELOAD_SECONDS = 5.0
#: How often it is looked where the brokers are, and how long one may take to say so, in seconds.
_BROKERS_SECONDS, _BROKERS_TIMEOUT = 10.0, 5.0


class Bridge:
    """Serves the sources of one file until `stop`."""

    def __init__(self, file: BridgeFile, *, recommit_seconds: float = RECOMMIT_SECONDS) -> None:
        self._file = file
        self._recommit_seconds = recommit_seconds
        self._stopping = StopRequest()
        # Whether the file is to be read again.
        self._reload = False
        #: Identifies this run of a bridge; it goes with every committed position.
        self.name = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}/{file.instance}"
        self._admin = admin(file.kafka)
        source_routes = routes(file)
        self._leftovers = Leftovers(file.kafka, file.instance, [*map(str, range(file.kafka.lanes)), "isolated"])
        self._positions = [self._reader(source_routes, searches=searches) for searches in (False, True)]
        self.recovery, self.search = map(Recovery, self._positions)
        self._recoveries = {"recovery": self.recovery, "search": self.search}
        self.recovery.search = self.search.add
        self.receiver = Receiver(file.interconnect, source_routes, f"headrace-bridge/{self.name}")
        self.deliveries = Deliveries(file, self.receiver.send)
        self.receiver.deliver(self.deliveries.outboxes)
        self.registry = SourceRegistry(source_routes.values(), self.receiver, self.recovery.add)
        for recovery in self._recoveries.values():
            recovery.serve, recovery.unreadable = self.registry.serve, self.registry.unreadable
        self.schemas = RegisteredSchemas(RegistryClient(file.registry)) if file.registry is not None else None
        if self.schemas is not None:
            self.registry.schemas = self.schemas
        self.requests = self._carry(file)
        self._withheld = KafkaReader(file.kafka, file.group, self._admin)
        self._limits = RecordLimits(self._admin, wanted(file))
        self._reloader = Reloader(file, self._admin, self._limits, self._positions, self.registry, self.receiver)
        self._brokers_problem = ""
        self.lanes: list[Lane] = []
        self._membership: Membership | None = None
        self._threads = Threads()
        self._stalls = Stalls(lambda: self.registry.states)
        self._service = BridgeService(
            lambda: {source: state.figures for source, state in self.registry.states.items()},
            lambda: {lane.transactional_id.rpartition(".")[2]: lane.metrics for lane in self.lanes},
            lambda: self.receiver.connected,
            self._trouble,
            self.deliveries.figures,
            {
                "interconnect": ConnectionMetrics(Expiry(file.interconnect)),
                "kafka": ConnectionMetrics(Expiry(file.kafka)),
            },
            lambda: self._threads.metrics,
        )
        self._service.aside = self._aside
        #: Where metrics, health and status are answered while `run` runs, if they are.
        self.endpoint: Endpoint | None = None

    def run(self) -> None:
        """Serve until `stop` is called.

        Raises:
            NeedsOperator: topics are missing, or another process uses this instance's name.
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

    def stop(self) -> None:
        """Have `run` end: open transactions are finished, their batches accepted."""
        self._stopping.set()

    def reload(self) -> None:
        """Have the file read again, and what changed of its sources taken over; may be called from a signal handler."""
        self._reload = True

    def figures(self) -> dict[str, dict[str, Any]]:
        """Return the figures of every source."""
        return {source: state.figures.snapshot() for source, state in self.registry.states.items()}

    def _serve(self) -> None:
        self._service.waits_for = ""
        file = self._file
        try:
            self.receiver.start()
            _log.info(
                "bridge %s, instance %s of group %s: %d sources",
                self.name,
                file.instance,
                file.group,
                len(self.registry.states),
            )
            member = KafkaMember(file.kafka, self._admin, file.group, file.instance, file.sharing.session_seconds)
            self._membership = Membership(
                member, first_places(routes(file)), self.registry, file.sharing.session_seconds, Lifetime(file.kafka)
            )
            self.lanes = [self._lane(number) for number in range(file.kafka.lanes)] + [self._lane(None)]
            for number, lane in enumerate(self.lanes):
                self._start_lane(number, lane)
            for name, recovery in self._recoveries.items():
                self._start_recovery(name, recovery)
            start = self._threads.start
            start("membership", self._membership.turn)
            start("brokers", self._look_at_brokers)
            if (schemas := self.schemas) is not None:
                start("schemas", lambda: schemas.turn(_TURN_SECONDS))
                releaser = Releaser(self.registry, schemas, self._withheld)
                start("withheld", lambda: releaser.turn(_TURN_SECONDS))
            self.deliveries.start(start)
            if (requests := self.requests) is not None:
                start("requests", lambda: requests.turn(0.1))
            self._watch()
        finally:
            self._end()

    def _reader(self, source_routes: dict[str, SourceRoute], *, searches: bool) -> Positions:
        file = self._file
        return Positions(file.kafka, self._admin, file.group, source_routes, self._leftovers, searches=searches)

    def _carry(self, file: BridgeFile) -> RequestWorker | None:
        """Return what carries requests to edges; None where the file has no such section."""
        if file.requests is None:
            return None
        topics, leases = file.requests.topics(file.kafka.prefix), self.registry.ownership
        worker = RequestWorker(
            file.kafka,
            topics,
            self.registry,
            lambda source: source in leases.snapshot.leases,
            send=self.receiver.send_requests,
            settle=self.receiver.settle_answer,
            open_reader=partial(TopicReader, admin=self._admin),
        )
        self.receiver.carry(worker.pending, worker.received)
        return worker

    def _lane(self, number: int | None) -> Lane:
        file = self._file
        name = f"{file.kafka.prefix}.{file.instance}.{'isolated' if number is None else number}"
        return Lane(
            name,
            opener(file.kafka, lambda: self._limits.smallest),
            self.registry,
            self.receiver,
            self._limits,
            LaneSettings(self.name, file.kafka.transaction_milliseconds / 1000),
            isolated=number is None,
        )

    def _start_lane(self, number: int, lane: Lane) -> None:
        self.lanes[number] = lane
        self._threads.start(f"lane {number}", lambda: lane.turn(0.25), lambda: lane.given_up)

    def _start_recovery(self, name: str, recovery: Recovery) -> None:
        reader = recovery.reader
        self._threads.start(name, lambda: recovery.turn(0.25), lambda: recovery.reader is not reader)

    def _trouble(self) -> str:
        """Return what keeps all sources of this bridge from being served; empty when nothing does."""
        problems = [self._membership.state if self._membership is not None else ""]
        problems += [recovery.trouble for recovery in self._recoveries.values()]
        problems += [each for name, each in self._hanging().items() if name in {"membership", *self._recoveries}]
        problems += [f"lane {lane.transactional_id}: {lane.reason}" for lane in self.lanes if lane.reason]
        return "; ".join(filter(None, problems))

    def _aside(self) -> str:
        """Return what else does not work; empty when all of it does."""
        hanging = [each for name, each in self._hanging().items() if name not in {"membership", *self._recoveries}]
        return "; ".join(filter(None, [self.requests.trouble if self.requests is not None else "", *hanging]))

    def _hanging(self) -> dict[str, str]:
        return {
            name: f"{name}: Kafka's client has not returned for {seconds:.0f} s"
            for name, seconds in self._threads.hanging().items()
        }

    def _wait_for_kafka(self) -> bool:
        """Return once the topics are seen to be right; False when stopped before."""
        backoff, is_logged, looks = Backoff(first=0.5, longest=5.0), False, 0
        while not self._stopping.is_set():
            self._service.turned_at = time.monotonic()
            try:
                self._look_at_topics(is_last=looks == _LOOKS - 1)
            except (NotConnected, Retryable) as error:
                self._admin.renew()
                self._service.waits_for = f"Kafka at {self._file.kafka.bootstrap} does not answer: {error.message}"
                if not is_logged:
                    _log.warning(
                        "Kafka at %s does not answer: %s. Trying again.", self._file.kafka.bootstrap, error.message
                    )
                is_logged = True
                self._stopping.wait(backoff.pause())
            except NeedsOperator:
                # What was just made, or a broker that has just started, is not known to everybody yet.
                looks += 1
                if looks == _LOOKS:
                    raise
                self._stopping.wait(1.0)
            else:
                if is_logged:
                    _log.info("Kafka at %s answers", self._file.kafka.bootstrap)
                return True
        return False

    def _look_at_brokers(self) -> None:
        """Note where the brokers are, for clients that are made later; one that finds none of them is made again."""
        problem = ""
        try:
            with translated("look at the brokers", self._admin):
                self._admin.note_brokers(self._file.first_topic, _BROKERS_TIMEOUT)
                self._look_for_topics()
        except (NotConnected, Retryable) as error:
            _log.debug("%s", error.message)
        except NeedsOperator as error:
            problem = error.message
            if problem != self._brokers_problem:
                _log.error("%s. %s", problem, error.hint)
        self._brokers_problem = problem
        self._threads.wait(_BROKERS_SECONDS)

    def _look_for_topics(self) -> None:
        """Have sources assigned whose topics were missing and are there now."""
        if (there := self._limits.look_for_missing()) and (membership := self._membership) is not None:
            _log.info("topics that were missing are in Kafka now: %s", ", ".join(there))
            membership.call(membership.look_at_topics)

    def _look_at_topics(self, *, is_last: bool) -> None:
        """Check all topics, those included that patterns of the file are for.

        Raises NeedsOperator for partitions that are missing, unless this `is_last` and a source has all of its own: the others
        are set aside.
        """
        with_patterns = any(self._file.patterns(stream) for stream in self._file.streams)
        there = names(self._admin, 2.0) if with_patterns else ()
        needed, missing = wanted(self._file, there), Missing()
        limits = check(self._admin, needed, timeout=2.0, missing=missing)
        source_routes = [state.route for state in self.registry.states.values()]
        if missing and not (is_last and any(find_missing(missing, route.places) is None for route in source_routes)):
            raise next(iter(missing.values())).error
        for lack in missing.values():
            _log.error("%s. %s", lack.error.message, lack.error.hint)
        self._limits.load(limits, needed, missing)
        learn(source_routes, there)

    def _watch(self) -> None:
        """Return when it is time to stop; raise what ended a thread."""
        renewal, report_at = Renewal(self._file.kafka), time.monotonic() + _REPORT_SECONDS
        reload_at = 0.0
        while not self._stopping.wait(_TURN_SECONDS):
            self._service.turned_at = time.monotonic()
            for failure in filter(None, (self._threads.failure, self.receiver.failure)):
                raise failure
            self._look_at_threads()
            if self._reload and self._membership is not None and time.monotonic() >= reload_at:
                self._reload = False
                if not self._reloader.read_again(self._membership):
                    self._reload, reload_at = True, time.monotonic() + _RELOAD_SECONDS
            renewal.look()
            self.registry.recommit(self._recommit_seconds)
            self._stalls.look()
            if time.monotonic() >= report_at:
                report_at += _REPORT_SECONDS
                self._service.log_figures()

    def _look_at_threads(self) -> None:
        """Give up those that hang, whose work a successor can do, and show the others."""
        for number, lane in enumerate(self.lanes):
            if lane.hangs() and (successor := lane.give_up()) is not None:
                self._start_lane(number, successor)
        hanging = self._threads.hanging()
        self.deliveries.note_hanging(hanging)
        if "withheld" in hanging:
            self.registry.go_on_without_releases()
        for number, (name, recovery) in enumerate(self._recoveries.items()):
            if hanging.get(name, 0.0) > _STUCK_SECONDS:
                _log.error("%s: Kafka's client did not return; going on with a new one", name)
                self._positions[number] = self._reader(routes(self._reloader.file), searches=recovery is self.search)
                recovery.go_on(self._positions[number])
                self._start_recovery(name, recovery)

    def _end(self) -> None:
        alone = self._membership is not None and self._membership.is_alone
        self.deliveries.finish()
        self.registry.stop(_STOP_SECONDS)
        hanging = self._threads.end(_STOP_SECONDS)
        membership, requests = self._membership, self.requests
        if membership is not None and "membership" not in hanging:
            _finish(lambda: membership.close(leave=not alone))
        _finish(lambda: self.deliveries.close(hanging))
        if "withheld" not in hanging:
            _finish(self._withheld.close)
        if requests is not None and "requests" not in hanging:
            _finish(lambda: requests.close(_ANSWERS_SECONDS))
        _finish(lambda: self.receiver.stop(2.0))
        for lane in self.lanes:
            # Kafka's client may hang while it is destroyed, too.
            _finish(partial(call_within, _CLOSE_SECONDS, f"close {lane.transactional_id}", lane.close))
        self._service.log_figures()
        _log.info("stopped")


def _finish(step: Callable[[], object]) -> None:
    """Take a step of the end: what goes wrong there neither keeps the next ones from being taken nor hides why it ends."""
    try:
        step()
    except Exception:  # noqa: BLE001 - the next steps are taken all the same.
        _log.exception("unexpected error at the end")
