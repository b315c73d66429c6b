"""The files of a Kafka broker: its properties, its logging, its formatted storage.

Guarantees that storage is formatted once, completely or not at all. The defaults suit one broker on a small machine that
starts often and forgets nothing. Used by infra/local/kafka.py.
"""

import re
import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from headrace.errors import NeedsOperator
from infra.local import jars

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


def configure(folder: Path, settings: Mapping[str, str], port: int, controller: int) -> Path:
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


def kept_port(folder: Path, listener: str) -> int:
    """Return the port of the listener that was configured last; 0 if none was."""
    with suppress(OSError):
        listeners = rf"^listeners=.*\b{listener}://127\.0\.0\.1:(\d+)"
        if found := re.search(listeners, _properties(folder).read_text(), re.MULTILINE):
            return int(found[1])
    return 0


def java(folder: Path, log: Path) -> list[str]:
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
    ]
    return ["java", "-cp", class_path, *options]


def cluster(folder: Path) -> str:
    """Return the id of the cluster for which a broker's storage was formatted."""
    found = re.search(r"^cluster\.id=(.+)$", (folder / "data" / "meta.properties").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def format_storage(folder: Path, command: Sequence[str], cluster: str = "") -> None:
    """Format the storage if it is not, for a cluster, or one of its own; raise NeedsOperator if that fails."""
    data = folder / "data"
    if (data / "meta.properties").exists():
        return
    shutil.rmtree(data, ignore_errors=True)
    cluster = cluster or urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # Quick to start matters here, not quick in the long run.
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    tool = ["kafka.tools.StorageTool", "format", "--config", str(_properties(folder)), f"--cluster-id={cluster}"]
    done = subprocess.run([*command, *options, *tool], cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise NeedsOperator(f"Kafka's storage in {data} cannot be formatted: {said}", hint="Check the settings given.")


def _properties(folder: Path) -> Path:
    return folder / "server.properties"
