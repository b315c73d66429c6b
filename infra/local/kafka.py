"""One Kafka broker in KRaft mode, its own controller, from the jars: formatted, started, stopped, crashed and started again.

Guarantees that its ports stay the same, that nothing is ever deleted by age, and that it ends with its owner unless it
is detached. Everything replicated has one replica; topics are never created by themselves. Clients on this machine are
trusted. Used by infra/local/stack.py and tests.
"""

import logging
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from headrace.errors import NeedsOperator
from infra.local import jars
from infra.local.ports import PortTaken, free_port, is_free
from infra.local.process import Process, tail

_log = logging.getLogger(__name__)

_START_SECONDS, _STOP_SECONDS = 120.0, 60.0
_SETTINGS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "5",
    "log.retention.ms": "-1",
    # A killed broker may come back only after its predecessor's session has run out.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
# The program's own log is bounded: two files of 5 MB.
_LOGGING = """\
status = error
appenders = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %m (%c{{1}})%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 5MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
rootLogger.level = warn
rootLogger.appenderRefs = file
rootLogger.appenderRef.file.ref = file
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = info
"""


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
        self.settings = {**_SETTINGS, **{name: str(value) for name, value in (settings or {}).items()}}
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
        return self._wanted_port or self._kept_port("PLAINTEXT")

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
        class_path = ":".join(str(jar) for jar in jars.kafka())
        if shutil.which("java") is None:
            raise NeedsOperator("There is no java on PATH.", hint="Install Java 17.")
        self.folder.mkdir(parents=True, exist_ok=True)
        kept, controller = self.port, self._kept_port("CONTROLLER")
        for attempt in range(10):
            try:
                self._start_on(kept or free_port(), controller or free_port(), class_path)
            except PortTaken:
                controller = 0
                if kept and (self._wanted_port or attempt or not is_free(kept)):
                    raise NeedsOperator(
                        f"Kafka in {self.folder} cannot listen on its port {kept}: another process has it.",
                        hint="Stop what listens there, or delete the folder to start anew.",
                    ) from None
            else:
                _log.debug("kafka: %s listens on %s", self.folder.name, self.bootstrap)
                return
        raise NeedsOperator("Kafka found no free port on 127.0.0.1 in ten attempts.", hint=f"Read {self.log}.")

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

    def _start_on(self, port: int, controller: int, class_path: str) -> None:
        properties = self._write_properties(port, controller)
        if not (self._data / "meta.properties").exists():
            self._format(class_path, properties)
        before = self.log.stat().st_size if self.log.exists() else 0
        self._process.launch(
            [*_java(class_path, f"{self.heap_megabytes}m"), *self._log_options(), "kafka.Kafka", properties],
            folder=self.folder,
            environment=_environment(),
        )
        if not self._process.wait_until(lambda: _answers(port), _START_SECONDS):
            with self.log.open("rb") as file:
                file.seek(before if before <= self.log.stat().st_size else 0)
                said = file.read()
            if b"failed to bind" in said or b"Address already in use" in said:
                raise PortTaken
            raise NeedsOperator(
                f"Kafka in {self.folder} ended while it started.\n{tail(self.log)}\n{tail(self._process.log)}",
                hint=f"Read the end of {self.log}.",
            )

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _kept_port(self, listener: str) -> int:
        with suppress(OSError):
            text = (self.folder / "server.properties").read_text()
            if found := re.search(rf"^listeners=.*\b{listener}://127\.0\.0\.1:(\d+)", text, re.MULTILINE):
                return int(found[1])
        return 0

    def _write_properties(self, port: int, controller: int) -> Path:
        settings = {
            **self.settings,
            "log.dirs": str(self._data),
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.quorum.voters": f"{self.settings['node.id']}@127.0.0.1:{controller}",
        }
        path = self.folder / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in sorted(settings.items())))
        return path

    def _format(self, class_path: str, properties: Path) -> None:
        shutil.rmtree(self._data, ignore_errors=True)
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = ["kafka.tools.StorageTool", "format", "--config", str(properties), "--cluster-id", cluster]
        done = subprocess.run(
            # Quick to start matters here, not quick in the long run.
            [*_java(class_path, "128m"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *self._log_options(), *tool],
            cwd=self.folder,
            env=_environment(),
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()
            raise NeedsOperator(
                f"Kafka's storage in {self._data} cannot be formatted: {said}", hint=f"Read {self.log}."
            )

    def _log_options(self) -> list[str]:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        path = self.folder / "log4j2.properties"
        path.write_text(_LOGGING.format(log=self.log))
        return [f"-Dlog4j2.configurationFile={path}"]


def _java(class_path: str, heap: str) -> list[str]:
    return ["java", f"-Xmx{heap}", "-Djava.awt.headless=true", "-XX:-UsePerfData", "-cp", class_path]


def _environment() -> dict[str, str]:
    return dict(os.environ)


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
