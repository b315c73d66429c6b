"""One Kafka broker in KRaft mode, its own controller, from the jars: formatted, started, stopped, crashed and started again.

Guarantees that its ports stay the same, that nothing is ever deleted by age, and that it ends with its owner unless it
is detached. Everything replicated has one replica; topics are never created by themselves. Clients on this machine are
trusted. Used by infra/local/stack.py and tests.
"""

import logging
import os
import shutil
import signal
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

from headrace.errors import NeedsOperator
from infra.local import broker_files, jars
from infra.local.ports import PortTaken, free_port, is_free, start_on_port
from infra.local.process import Process, said_since, size

_log = logging.getLogger(__name__)

_START_SECONDS, _STOP_SECONDS = 120.0, 60.0


class Kafka:
    """One broker in a folder; `settings` go to server.properties, over ours.

    Without `port` the broker picks a free one at its first start and keeps it.
    """

    kind = "kafka"

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, object] | None = None,
        heap_megabytes: int = 512,
        log: Path | None = None,
        detached: bool = False,
    ) -> None:
        self.folder = folder.absolute()
        self.settings = {name: str(value) for name, value in (settings or {}).items()}
        self.heap_megabytes = heap_megabytes
        self.log = log or self.folder / "kafka.log"
        self._wanted_port = port
        self._process = Process(
            self.folder / "process.json",
            self.log.with_suffix(".out"),
            end_signal=signal.SIGKILL,
            detached=detached,
        )

    @property
    def port(self) -> int:
        """The TCP port for clients on 127.0.0.1; 0 before the first start, unless one was given."""
        return self._wanted_port or broker_files.kept_port(self.folder, "PLAINTEXT")

    @property
    def bootstrap(self) -> str:
        """What clients call bootstrap servers: host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        """Host and port."""
        return self.bootstrap

    @property
    def version(self) -> str:
        """The broker's version."""
        return next(jar.stem.rpartition("-")[2] for jar in jars.kafka() if jar.name.startswith("kafka_"))

    @property
    def pid(self) -> int | None:
        """The broker's process id; None when it does not run."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the broker runs."""
        return self.pid is not None

    def start(self) -> None:
        """Start the broker, its storage formatted if need be, and wait until it answers; do nothing if it runs.

        Raises NeedsOperator if it cannot start; the message ends with what it said.
        """
        if self.running:
            return
        if shutil.which("java") is None:
            raise NeedsOperator("There is no java on PATH.", hint="Install Java 17.")
        self.folder.mkdir(parents=True, exist_ok=True)
        start_on_port(self._start_on, kept=self.port, what=f"Kafka in {self.folder}")
        _log.debug("kafka: %s listens on %s", self.folder.name, self.bootstrap)

    def stop(self) -> None:
        """Stop the broker and wait until it is gone; do nothing if it does not run."""
        self._process.end(signal.SIGTERM, _STOP_SECONDS)

    def kill(self) -> None:
        """Kill the broker at once, as a crash of the machine would."""
        self._process.kill()

    def restart(self) -> None:
        """Stop the broker if it runs, and start it."""
        self.stop()
        self.start()

    def delete(self) -> None:
        """Remove the broker and its records; kills it first if it runs."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start_on(self, port: int) -> None:
        controller = broker_files.kept_port(self.folder, "CONTROLLER")
        if not controller or not is_free(controller):
            controller = free_port()
        properties = broker_files.configure(self.folder, self.settings, port, controller)
        java = broker_files.java(self.folder, self.log)
        broker_files.format_storage(self.folder, [*java, "-Xmx128m"])
        before = size(self.log)
        self._process.launch(
            [*java, f"-Xmx{self.heap_megabytes}m", "kafka.Kafka", properties],
            folder=self.folder,
            environment=os.environ,
        )
        # Another broker may have the port and answer in our stead.
        if not self._process.wait_until(lambda: _answers(port) and self._process.listens_on(port), _START_SECONDS):
            said = f"{said_since(self.log, before)}\n{said_since(self._process.log, 0)}".strip()
            if "failed to bind" in said or "Address already in use" in said:
                raise PortTaken
            raise NeedsOperator(
                f"Kafka in {self.folder} ended while it started. Its last words:\n{said[-1500:]}",
                hint=f"Read the end of {self.log}.",
            )


def _answers(port: int) -> bool:
    """Say whether the broker answers a request for metadata and names itself in it."""
    # Metadata Request v1 => size api_key api_version correlation_id client_id [topics]; an empty list: no topics.
    request = struct.pack(">hhih8si", 3, 1, 1, 8, b"headrace", 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            # Metadata Response v1 => size correlation_id [brokers] ...: the number of brokers is enough.
            answer = connection.recv(12, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(answer) == 12 and struct.unpack(">iii", answer)[2] > 0
