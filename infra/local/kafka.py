"""A Kafka broker in KRaft mode from the jars: formatted, started, stopped, crashed and started again.

It is its own controller, or joins a broker that is; then that one has to run. Guarantees that its ports stay the same, that
nothing is ever deleted by age, and that it ends with its owner unless it is detached. Everything replicated has one replica,
unless settings say otherwise; topics are never created by themselves. Clients on this machine are trusted. Used by
infra/local/stack.py and tests.
"""

import os
import shutil
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

from headrace.errors import NeedsOperator
from infra.local import broker_files, jars
from infra.local.ports import free_port, is_free
from infra.local.server import Server

#: What starts with half the processor time and is slower once it is warm.
_BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Kafka(Server):
    """One broker in a folder; `settings` go to server.properties, over ours.

    One that `joins` another is of its cluster, with a `number` of its own; the other's is 1. One that is `lasting`, or
    detached, is compiled for speed in the long run; any other for a quick start.
    """

    kind, name = "kafka", "Kafka"
    start_seconds = 120.0
    port_taken = ("failed to bind", "Address already in use")

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, object] | None = None,
        heap_megabytes: int = 512,
        joins: "Kafka | None" = None,
        number: int = 1,
        lasting: bool = False,
        log: Path | None = None,
        detached: bool = False,
    ) -> None:
        super().__init__(folder, port=port, log=log, detached=detached)
        self.settings = {name: str(value) for name, value in (settings or {}).items()}
        self.heap_megabytes = heap_megabytes
        self.number = number
        self._joins = joins
        self._options = () if lasting or detached else _BRIEF

    @property
    def bootstrap(self) -> str:
        """What clients call bootstrap servers: host and port."""
        return self.address

    @property
    def version(self) -> str:
        """The broker's version."""
        return next(jar.stem.rpartition("-")[2] for jar in jars.kafka() if jar.name.startswith("kafka_"))

    @property
    def _output(self) -> Path:
        # What it prints before it logs.
        return self.log.with_suffix(".out")

    def _make(self) -> None:
        if shutil.which("java") is None:
            raise NeedsOperator("There is no java on PATH.", hint="Install Java 17.")
        self.folder.mkdir(parents=True, exist_ok=True)

    def _kept_port(self) -> int:
        return broker_files.kept_port(self.folder, "PLAINTEXT")

    def _launch(self, port: int) -> None:
        controller = broker_files.kept_port(self.folder, "CONTROLLER")
        if not controller or not is_free(controller):
            controller = free_port()
        properties = broker_files.configure(self.folder, self._joining(port) | self.settings, port, controller)
        java = broker_files.java(self.folder, self.log)
        cluster = broker_files.cluster(self._joins.folder) if self._joins is not None else ""
        broker_files.format_storage(self.folder, [*java, "-Xmx128m"], cluster)
        self._process.launch(
            [*java, *self._options, f"-Xmx{self.heap_megabytes}m", "kafka.Kafka", properties],
            folder=self.folder,
            environment=os.environ,
        )

    def _joining(self, port: int) -> dict[str, str]:
        """Return what a broker that is no controller has in place of the usual."""
        if self._joins is None:
            return {}
        return {
            "node.id": str(self.number),
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.quorum.voters": f"1@127.0.0.1:{broker_files.kept_port(self._joins.folder, 'CONTROLLER')}",
        }

    def _is_ready(self, port: int) -> bool:
        # Another broker may have the port and answer in our stead.
        return _names(port, self.number) and self._process.listens_on(port)


def _names(port: int, number: int) -> bool:
    """Say whether a broker answers a request for metadata and names the one with this number, which then is not fenced."""
    # Metadata Request v1 => size api_key api_version correlation_id client_id [topics]; an empty list: no topics.
    request = struct.pack(">hhih8si", 3, 1, 1, 8, b"headrace", 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            # Metadata Response v1 => size correlation_id [brokers] ...; broker => node_id host port rack.
            (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            answer = connection.recv(size, socket.MSG_WAITALL)
        (brokers,), at = struct.unpack_from(">i", answer, 4), 8
        for _ in range(brokers):
            node, host = struct.unpack_from(">ih", answer, at)
            if node == number:
                return True
            (rack,) = struct.unpack_from(">h", answer, at + 6 + host + 4)
            at += 6 + host + 4 + 2 + max(0, rack)
    except (OSError, struct.error):
        return False
    return False
