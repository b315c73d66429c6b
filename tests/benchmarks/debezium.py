"""Debezium Server, the peer: its own distribution, run as its documentation says, straight to Kafka.

Fetched once, when a benchmark asks for it. It wants Java 21 or newer, which the machine has or the benchmark says so. Tuned for
throughput: large batches and queues, JSON without schemas, lz4, all replicas acknowledge.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from rich.console import Console

from headrace.errors import NeedsOperator
from infra.local import jars
from infra.local.kafka import Kafka
from infra.local.ports import free_port
from infra.local.postgres import Postgres
from tests.end_to_end.supervised import Supervised

_JAVA = 21


def version() -> str:
    """Return what is measured against."""
    return f"Debezium Server {jars.DEBEZIUM.pins[0].rpartition(':')[2]}"


def fetch(console: Console) -> None:
    """Have the distribution in the folder of jars."""
    jars.fetch_all(jars.folder(), console, [jars.DEBEZIUM])


def java() -> Path:
    """Return a Java that is new enough: JAVA_HOME's, PATH's, or one beside them; raise NeedsOperator when there is none."""
    homes = [Path(os.environ["JAVA_HOME"])] if "JAVA_HOME" in os.environ else []
    homes += sorted(Path("/usr/lib/jvm").glob("*"), reverse=True)
    found = shutil.which("java")
    for program in [home / "bin/java" for home in homes] + ([Path(found)] if found else []):
        if program.exists() and _major(program) >= _JAVA:
            return program
    raise NeedsOperator(f"{version()} needs Java {_JAVA} or newer", hint="Install one, and name it in JAVA_HOME.")


def _major(program: Path) -> int:
    said = subprocess.run([program, "-version"], check=False, capture_output=True, text=True, timeout=60).stderr
    match = re.search(r'version "(\d+)', said)
    return int(match[1]) if match else 0


def server(
    folder: Path, kafka: Kafka, postgres: Postgres, *, database: str, slot: str, publication: str, table: str
) -> Supervised:
    """Return a server that is not yet started, which reads the slot and writes to topics that begin with its name."""
    home = folder / f"debezium-{slot}"
    (home / "config").mkdir(parents=True)
    (home / "config/application.properties").write_text(
        "".join(
            f"{name}={value}\n"
            for name, value in {
                "debezium.sink.type": "kafka",
                "debezium.sink.kafka.producer.bootstrap.servers": kafka.bootstrap,
                "debezium.sink.kafka.producer.key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
                "debezium.sink.kafka.producer.value.serializer": "org.apache.kafka.common.serialization.StringSerializer",
                "debezium.sink.kafka.producer.acks": "all",
                "debezium.sink.kafka.producer.compression.type": "lz4",
                "debezium.sink.kafka.producer.linger.ms": 5,
                "debezium.sink.kafka.producer.batch.size": 1_000_000,
                "debezium.format.key": "json",
                "debezium.format.value": "json",
                "debezium.format.key.schemas.enable": "false",
                "debezium.format.value.schemas.enable": "false",
                "debezium.source.connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                "debezium.source.offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
                "debezium.source.offset.storage.file.filename": home / "offsets.dat",
                "debezium.source.offset.flush.interval.ms": 1000,
                "debezium.source.database.hostname": "127.0.0.1",
                "debezium.source.database.port": postgres.port,
                "debezium.source.database.user": "postgres",
                "debezium.source.database.password": "unused",
                "debezium.source.database.dbname": database,
                "debezium.source.topic.prefix": slot,
                "debezium.source.table.include.list": table,
                "debezium.source.plugin.name": "pgoutput",
                "debezium.source.slot.name": slot,
                "debezium.source.publication.name": publication,
                "debezium.source.publication.autocreate.mode": "disabled",
                "debezium.source.snapshot.mode": "no_data",
                "debezium.source.decimal.handling.mode": "string",
                "debezium.source.time.precision.mode": "isostring",
                "debezium.source.tombstones.on.delete": "false",
                "debezium.source.max.batch.size": 8192,
                "debezium.source.max.queue.size": 32768,
                "quarkus.http.port": free_port(),
                "quarkus.log.level": "WARN",
            }.items()
        )
    )
    distribution = jars.unpacked(jars.DEBEZIUM) / "debezium-server"
    (runner,) = distribution.glob("*runner.jar")
    path = ":".join([str(runner), str(home / "config"), str(distribution / "lib/*")])
    command = [str(java()), "-Xmx2g", f"-Djava.io.tmpdir={home}", "-cp", path, "io.debezium.server.Main"]
    return Supervised(slot, command, log=home / "log")
