"""Edges in the simulation: real agents over simulated databases and the simulated network, started again when they end."""

import importlib
import os
import shutil
import types
from pathlib import Path
from typing import Any

import msgspec

import edge.agent
import edge.session
import headrace.amqp.connection
from headrace.configuration.edge import EdgeFile
from headrace.position import Position
from tests.simulation import amqp_loop
from tests.simulation.database import Database, Engine, SimulatedCheckpoint
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.world import world

_databases: dict[str, tuple[Database, Path]] = {}


class _Idle:
    """No snapshots."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def save_moved(self) -> None:
        """Do nothing: no row moves."""

    def run_due(self, now: float) -> float:
        """Nothing is due."""
        return 3600.0

    def close(self) -> None:
        """Nothing to close."""


_disk: dict[str, Any] = {"full_until": 0.0}


def _fsync(_descriptor: int) -> None:
    """Make a file durable: a crash may come right before or after, and the disk may be full."""
    world.scheduler.point()
    if world.scheduler.now < _disk["full_until"]:
        raise OSError(28, "No space left on device")
    world.scheduler.point()


def _files() -> Any:
    """Return the module that writes the files of the state folder."""
    for name in ("headrace.files", "edge.durable"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise LookupError("which module writes the checkpoint?")


def install() -> None:
    """Put the simulated ports in the place of the real ones."""
    edge.agent.engine_of = lambda config: Engine(*_databases[config.source.name])  # type: ignore[attr-defined]
    headrace.amqp.connection.Loop = amqp_loop.Loop  # type: ignore[attr-defined]
    edge.session.SnapshotCoordinator = _Idle  # type: ignore[attr-defined]
    files = _files()
    files.os = types.SimpleNamespace(**{**vars(os), "fsync": _fsync})


class _Double:
    """One connection of somebody's who attaches to a source's address."""

    def __init__(self, source: str, url: str) -> None:
        self._source, self._url = source, url

    def run(self) -> None:
        """Stay attached until the link is closed."""
        self._loop = amqp_loop.Loop(self, f"double of {self._source}")
        self._loop.run()
        self._loop.close()

    def on_begin(self) -> None:
        """Connect and attach."""
        self._loop.attach_sender(self._loop.connect(self._url), f"cdc/{self._source}", f"headrace {self._source}")

    def _over(self, _event: Any) -> None:
        self._loop.stop()

    on_link_remote_close = on_connection_remote_close = on_transport_closed = _over


class Edge:
    """One source's edge and what supervises it."""

    def __init__(
        self, scheduler: Scheduler, source: str, urls: list[str], folder: Path, options: dict[str, Any]
    ) -> None:
        self.scheduler, self.source, self.folder = scheduler, source, folder / source.replace("/", "_")
        self.folder.mkdir(parents=True)
        self.database = options.get("database", Database)(scheduler, source, 1_700_000_000)
        _databases[source] = (self.database, self.folder)
        _disk["full_until"] = 0.0
        start = Position.start(self.database.epoch)
        checkpoint = SimulatedCheckpoint(source=source, stage="made", acknowledged=str(start), at=self.database.end)
        (self.folder / "checkpoint.json").write_bytes(msgspec.json.encode(checkpoint))
        self.config = msgspec.convert(
            {
                "source": {"name": source, "postgresql": {"host": "x", "database": "x", "user": "x"}},
                "interconnect": {"url": urls},
                "state": {"folder": str(self.folder)},
                "batches": {"kilobytes": options.get("kilobytes", 1), "window_megabytes": options.get("window", 1)},
                "spool": {"megabytes": options.get("spool", 16), "after_seconds": options.get("spool_after", 30.0)},
                "heartbeat_seconds": 10.0,
                "requests": {"allow": options.get("requests", [])},
            },
            EdgeFile,
        )
        self.name = f"edge {source}"
        self.process: Process | None = None
        self.agent: Any = None
        #: What ended it that a supervisor does not answer with a restart.
        self.stopped_by: BaseException | None = None
        self.starts = 0
        #: How many seconds its machine's clock is ahead.
        self.clock = 0.0

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self.process is not None and self.process.alive:
            return
        self.starts += 1
        self.process = Process(f"edge {self.source} {self.starts}", self.clock)
        process = self.process
        self.scheduler.trace(f"{process.name} starts")
        self.scheduler.spawn(process, "main", lambda: self._main(process))

    def _main(self, process: Process) -> None:
        try:
            self.agent = agent = edge.agent.Agent(self.config)
            agent.run()
        except Exception as error:  # noqa: BLE001 - judged after the run.
            self.scheduler.check()
            self.scheduler.trace(f"{process.name} ends: {type(error).__name__} {error}")
            self.stopped_by = error
            self.error_of = process
            return
        self._start_again()

    def _start_again(self) -> None:
        process = self.process

        # What a process leaves when it exits: daemon threads end with it.
        def again() -> None:
            self.scheduler.kill(process)
            self.start()

        self.scheduler.after(0.5, again)

    def crash(self) -> None:
        """Kill it; it is started again."""
        if self.process is not None and self.process.alive and self.stopped_by is None:
            self.scheduler.kill(self.process)
            self.scheduler.after(self.scheduler.random.random() * 3, self.start)

    def stop(self) -> None:
        """Stop it in order; it is started again."""
        agent, process = self.agent, self.process
        if agent is not None and process is not None and process.alive and self.stopped_by is None:
            self.scheduler.spawn(process, "signal", agent.stop)

    def attach_double(self, seconds: float) -> None:
        """Have somebody attached to its address for a while who sends nothing, as an old machine of it that is started again.

        The edge has much to send just then.
        """
        process = Process(f"double of {self.source}")
        for url in self.config.interconnect.urls:
            self.scheduler.spawn(process, f"to {url}", _Double(self.source, url).run)
        self.scheduler.after(seconds, lambda: self.scheduler.kill(process))
        for _ in range(20):
            self.scheduler.after(self.scheduler.random.random() * 0.2, lambda: self.database.write(6))

    def fill_disk(self, seconds: float) -> None:
        """Have the disk full for a while."""
        _disk["full_until"] = self.scheduler.now + seconds

    def delete(self) -> None:
        """Remove its folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
