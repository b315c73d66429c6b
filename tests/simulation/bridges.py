"""Bridges in the simulation: real ones over the simulated Kafka and network, started again when they end."""

from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
from proton import Endpoint

import bridge.amqp.credit
import bridge.amqp.listener
import bridge.amqp.request_links
import bridge.bridge
import bridge.reloader
import bridge.withheld.releaser
from headrace.configuration.bridge import BridgeFile
from headrace.errors import NeedsOperator
from tests.simulation import amqp_loop, registry
from tests.simulation.scheduler import Process, Scheduler

TOPIC = "feed"
#: A stream of one source, whose topic is deleted in some runs, and made again.
OTHER_TOPIC, OTHER_SOURCE = "other", "region/other"
#: Seconds after which a bridge that was frozen has done all that was due meanwhile.
_THAWED_SECONDS = 6.0

#: What is in the bridges' files now, by their paths.
_files: dict[str, BridgeFile] = {}


def install() -> None:
    """Put the simulated loop in the place of the real one."""
    bridge.amqp.listener.Loop = amqp_loop.Loop  # type: ignore[attr-defined, misc, assignment]
    bridge.bridge.RegistryClient = registry.RegistryClient  # type: ignore[misc, assignment]
    bridge.reloader.load = lambda path, _kind: _files[path]


def draw_limits(random: Random, *, is_calm: bool = False) -> None:
    """Draw how much memory bridges have for what waits, in some runs too little, and how often they look for releases."""
    credit, answers = bridge.amqp.credit, bridge.amqp.request_links
    credit.MOST_OF_SOURCE, credit.MOST_OF_ALL = random.choice(
        ((16 << 20, 64 << 20), (800, 2500))[: 1 if is_calm else 2]
    )
    answers._MOST_WAITING = random.choice((32 << 20, 100_000))
    bridge.withheld.releaser._AGAIN_SECONDS = random.choice((0.0, 2.0))


class BridgeProcess:
    """One bridge and what supervises it."""

    def __init__(
        self, scheduler: Scheduler, number: int, sources: list[str], url: str, options: dict[str, Any]
    ) -> None:
        self.scheduler, self.number = scheduler, number
        self.name = f"bridge {number}"
        interconnect = {"listen": f"bridge{number}:5672"} if url != "amqp://router" else {"url": url}
        self.file = msgspec.convert(
            {
                "kafka": {
                    "bootstrap": "kafka:9092",
                    "transaction_milliseconds": options.get("milliseconds", 40),
                    "lanes": options.get("lanes", 2),
                },
                "interconnect": interconnect | {"credit": options.get("credit", 16)},
                "sharing": {"session_seconds": options.get("session", 8.0), "instance": f"b{number}"},
                "streams": {TOPIC: {"sources": {source: [place] for place, source in enumerate(sources)}}}
                | ({OTHER_TOPIC: {"sources": {OTHER_SOURCE: [0]}}} if options.get("other") else {})
                | options.get("streams", {}),
            }
            | options.get("sections", {}),
            BridgeFile,
        )
        self.file = msgspec.structs.replace(self.file, path=self.name)
        _files[self.name] = self.file
        self.process: Process | None = None
        self.bridge: Any = None
        #: What ended it that a supervisor does not answer with a restart.
        self.stopped_by: BaseException | None = None
        self.starts = 0
        self.wanted = True
        #: How many seconds its machine's clock is ahead.
        self.clock = 0.0

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return self.process is not None and self.process.alive

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self.runs or not self.wanted:
            return
        self.starts += 1
        process = self.process = Process(f"{self.name}.{self.starts}", self.clock)
        self.scheduler.trace(f"{process.name} starts")
        self.scheduler.spawn(process, "main", lambda: self._main(process))

    def _main(self, process: Process) -> None:
        try:
            made = self.bridge = bridge.bridge.Bridge(self.file)
            made.run()
        except NeedsOperator as error:
            self.scheduler.check()
            self.scheduler.trace(f"{process.name} ends: {type(error).__name__} {error}")
            self.stopped_by = error
        except Exception as error:  # noqa: BLE001 - judged after the run.
            self.scheduler.check()
            self.scheduler.trace(f"{process.name} crashes: {type(error).__name__} {error}")
            self.stopped_by = error
        # Its daemon threads end with the process.
        self.scheduler.after(0.0, lambda: self.scheduler.kill(process))
        if self.stopped_by is None:
            self.scheduler.after(self.scheduler.random.random(), self.start)

    def crash(self, seconds: float = 5.0) -> None:
        """Kill it; it is started again."""
        if self.runs and self.stopped_by is None:
            assert self.process is not None
            self.scheduler.kill(self.process)
            self.scheduler.after(self.scheduler.random.random() * seconds, self.start)

    def stop(self) -> None:
        """Stop it in order; it is started again."""
        if self.runs and self.bridge is not None and self.stopped_by is None:
            assert self.process is not None
            self.scheduler.spawn(self.process, "signal", self.bridge.stop)

    def with_sources(self, sources: Mapping[str, list[int]]) -> BridgeFile:
        """Return its file with other sources of the stream, or other partitions."""
        stream = msgspec.structs.replace(self.file.streams[TOPIC], sources=dict(sources))
        return msgspec.structs.replace(self.file, streams=self.file.streams | {TOPIC: stream})

    def replace(self, sources: Mapping[str, list[int]]) -> None:
        """Start it with a changed file, once whatever runs of it is killed."""
        self.file = _files[self.name] = self.with_sources(sources)
        if self.runs:
            assert self.process is not None
            self.scheduler.kill(self.process)
        self.wanted = True
        self.start()

    def give(self, sources: Mapping[str, list[int]]) -> None:
        """Change the sources of its file, and have it read again."""
        self.file = _files[self.name] = self.with_sources(sources)
        if self.runs and self.bridge is not None:
            self.bridge.reload()

    def pause(self, seconds: float) -> None:
        """Have its machine stand still."""
        if self.runs:
            assert self.process is not None
            self.scheduler.trace(f"{self.process.name} is frozen for {seconds} s")
            self.process.paused_until = self.scheduler.now + seconds

    def kept(self) -> list[str]:
        """Return the links that it keeps although their connections are gone, or it has closed them."""
        if self.bridge is None or not self.runs:
            return []
        links = self.bridge.receiver.links
        senders = [*links.deliveries._all(), *links.requests.senders._all()]
        kept = [*links.requests._answers.values(), *(each.link for each in [*links.credit.all(), *senders])]
        return [
            f"{self.name}: {link.name}"
            for link in kept
            if link.connection.transport is None or link.state & Endpoint.LOCAL_CLOSED
        ]

    def lacking_credit(self) -> list[str]:
        """Return the sources whose links have less credit than they are to have, with what waits, or more."""
        # What was frozen gives it back a while after it goes on.
        if self.bridge is None or not self.runs or self.scheduler.now < self.process.paused_until + _THAWED_SECONDS:
            return []
        wanted = self.file.interconnect.credit
        there = {
            feed.source: feed.link.credit + feed.owed + len(feed.tickets)
            for feed in self.bridge.receiver.links.credit.all()
            if feed.source != OTHER_SOURCE
        }
        return [
            f"{self.name}: {source} has {credit} of {wanted}" for source, credit in there.items() if credit != wanted
        ]

    def states(self) -> str:
        """Return what it says of its sources."""
        if self.bridge is None:
            return f"{self.name}: not started"
        figures = self.bridge.figures()
        return f"{self.name}: " + ", ".join(
            f"{name} {each['state']} at {each['position']}" for name, each in figures.items()
        )
