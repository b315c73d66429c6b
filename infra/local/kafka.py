"""A Kafka broker in KRaft mode from the jars: its files and formatted storage, started, stopped, crashed and started again.

It is its own controller, or joins a broker that is; then that one has to run. Guarantees that storage is formatted once,
completely or not at all, that its ports stay the same, that nothing is ever deleted by age, and that it ends with its owner
unless it is detached. Everything replicated has one replica, unless settings differ; topics are never created by
themselves. The defaults suit one broker on a small machine that starts often and forgets nothing. Clients on this machine are
trusted. Used by infra/local/stack.py and tests.
"""

import os
import re
import shutil
import socket
import struct
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from headrace.errors import NeedsOperator
from headrace.process import jvm_options
from infra.local import jars
from infra.local.server import Server, free_port, is_free

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
    # The first entry of an index that is mapped into memory makes the kernel read ahead through the whole empty file: with
    # Kafka's 10 MB, and a disk that reads 8 MB ahead, 6 ms of CPU for each of the two indexes of each new partition.
    "log.index.size.max.bytes": "1048576",
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


def _configure(folder: Path, settings: Mapping[str, str], port: int, controller: int) -> Path:
    """Write the properties that the next start uses, and return their path."""
    complete = {
        **_SETTINGS,
        "log.dirs": str(folder / "data"),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        **settings,
    }
    path = _properties(folder)
    path.write_text("".join(f"{name}={value}\n" for name, value in sorted(complete.items())))
    return path


def _kept_port(folder: Path, listener: str) -> int:
    """Return the port of the listener that was configured last; 0 if none was."""
    with suppress(OSError):
        listeners = rf"^listeners=.*\b{listener}://127\.0\.0\.1:(\d+)"
        if match := re.search(listeners, _properties(folder).read_text(), re.MULTILINE):
            return int(match[1])
    return 0


def _java(folder: Path, log: Path) -> list[str]:
    """Return the beginning of a command that runs a class of Kafka's, which logs to the file, at most 10 MB in all."""
    log.parent.mkdir(parents=True, exist_ok=True)
    logging = folder / "log4j2.properties"
    logging.write_text(_LOGGING.format(log=log))
    class_path = ":".join(str(jar) for jar in jars.kafka())
    # Native libraries are unpacked there and stay behind after a kill.
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    options = [
        "-Djava.awt.headless=true",
        "-XX:-UsePerfData",
        f"-Djava.io.tmpdir={temporary}",
        f"-Dlog4j2.configurationFile={logging}",
        *jvm_options(jars.kafka()),
    ]
    return ["java", "-cp", class_path, *options]


def _cluster(folder: Path) -> str:
    """Return the id of the cluster for which a broker's storage was formatted."""
    match = re.search(r"^cluster\.id=(.+)$", (folder / "data" / "meta.properties").read_text(), re.MULTILINE)
    assert match is not None
    return match[1]


def _cluster_of(quorum: Mapping[int, int]) -> str:
    """Return the id of the cluster that controllers are, the same at each of them; empty for none."""
    cluster = uuid.uuid5(uuid.NAMESPACE_OID, repr(sorted(quorum.items())))
    return urlsafe_b64encode(cluster.bytes).decode().rstrip("=") if quorum else ""


def _format_storage(folder: Path, command: Sequence[str], cluster: str = "") -> None:
    """Format the storage if it is not, for a cluster, or one of its own; raise NeedsOperator if that fails."""
    data = folder / "data"
    if (data / "meta.properties").exists():
        return
    shutil.rmtree(data, ignore_errors=True)
    cluster = cluster or urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # Quick to start matters here, not quick in the long run.
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    tool = ["kafka.tools.StorageTool", "format", "--config", str(_properties(folder)), f"--cluster-id={cluster}"]
    process = subprocess.run([*command, *options, *tool], cwd=folder, check=False, capture_output=True, text=True)
    if process.returncode != 0:
        output = (process.stderr or process.stdout).strip()
        raise NeedsOperator(
            f"Kafka's storage in {data} cannot be formatted: {output}", hint="Check the settings given."
        )


def _properties(folder: Path) -> Path:
    return folder / "server.properties"


#: What starts with half the processor time and is slower once it is warm.
_BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Kafka(Server):
    """One broker in a folder; `settings` go to server.properties, over ours.

    One that `joins` another is of its cluster, with a `number` of its own; the other's is 1. Several that share a `quorum`, the
    ports of their controllers by number, are a cluster too, and each a controller: one alone does not start. One that is
    `lasting`, or detached, is compiled for speed in the long run; any other for a quick start. `options` are more of its JVM.
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
        quorum: Mapping[int, int] | None = None,
        number: int = 1,
        lasting: bool = False,
        options: Sequence[str] = (),
        log: Path | None = None,
        detached: bool = False,
    ) -> None:
        super().__init__(folder, port=port, log=log, detached=detached)
        self.settings = {name: str(value) for name, value in (settings or {}).items()}
        self.heap_megabytes = heap_megabytes
        self.number = number
        self._joins = joins
        self._quorum = dict(quorum or {})
        self._options = (*(() if lasting or detached else _BRIEF), *options)

    @property
    def bootstrap(self) -> str:
        """What clients call bootstrap servers: host and port."""
        return self.address

    def move(self) -> str:
        """Have its next start take another port; return its former address."""
        former, self._wanted_port = self.address, free_port()
        return former

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
        return _kept_port(self.folder, "PLAINTEXT")

    def _launch(self, port: int) -> None:
        controller = self._quorum.get(self.number) or _kept_port(self.folder, "CONTROLLER")
        if not self._quorum and (not controller or not is_free(controller)):
            controller = free_port()
        properties = _configure(self.folder, self._joining(port) | self.settings, port, controller)
        java = _java(self.folder, self.log)
        cluster = _cluster(self._joins.folder) if self._joins is not None else _cluster_of(self._quorum)
        _format_storage(self.folder, [*java, "-Xmx128m"], cluster)
        self._process.launch(
            [*java, *self._options, f"-Xmx{self.heap_megabytes}m", "kafka.Kafka", properties],
            folder=self.folder,
            environment=os.environ,
        )

    def _joining(self, port: int) -> dict[str, str]:
        """Return what a broker that is not its only controller has in place of the usual."""
        if self._quorum:
            voters = ",".join(f"{number}@127.0.0.1:{controller}" for number, controller in self._quorum.items())
            return {"node.id": str(self.number), "controller.quorum.voters": voters}
        if self._joins is None:
            return {}
        return {
            "node.id": str(self.number),
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.quorum.voters": f"1@127.0.0.1:{_kept_port(self._joins.folder, 'CONTROLLER')}",
        }

    def _is_ready(self, port: int) -> bool:
        # Another broker may have the port and answer in our stead.
        return _names(port, self.number) and self._process.listens_on(port)


def _names(port: int, number: int) -> bool:
    """Return whether a broker answers a request for metadata and names the one with this number, which then is not fenced."""
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
