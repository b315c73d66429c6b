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
from infra.local.jars import unpacked
from infra.local.kafka import Kafka
from infra.local.mariadb import Mariadb
from infra.local.postgres import Postgres
from infra.local.server import free_port
from tests.end_to_end.supervised import Supervised
from tests.servers import jars

_JAVA = 21


def version() -> str:
    """Return what is measured against."""
    return f"Debezium Server {jars.DEBEZIUM.pins[0].rpartition(':')[2]}"


def fetch(console: Console) -> None:
    """Have the distribution in the folder of jars."""
    jars.debezium(console)


def java() -> Path:
    """Return a Java that is new enough: JAVA_HOME's, PATH's, or one beside them; raise NeedsOperator when there is none."""
    homes = [Path(os.environ["JAVA_HOME"])] if "JAVA_HOME" in os.environ else []
    homes += sorted(Path("/usr/lib/jvm").glob("*"), reverse=True)
    result = shutil.which("java")
    for program in [home / "bin/java" for home in homes] + ([Path(result)] if result else []):
        if program.exists() and _major(program) >= _JAVA:
            return program
    raise NeedsOperator(f"{version()} needs Java {_JAVA} or newer", hint="Install one, and name it in JAVA_HOME.")


def _major(program: Path) -> int:
    said = subprocess.run([program, "-version"], check=False, capture_output=True, text=True, timeout=60).stderr
    match = re.search(r'version "(\d+)', said)
    return int(match[1]) if match else 0


def of_postgres(postgres: Postgres, *, database: str, slot: str, publication: str, table: str) -> dict[str, object]:
    """Return the settings of a source that reads a slot."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.port": postgres.port,
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": database,
        "table.include.list": table,
        "plugin.name": "pgoutput",
        "slot.name": slot,
        "publication.name": publication,
        "publication.autocreate.mode": "disabled",
    }


def of_mariadb(folder: Path, mariadb: Mariadb, *, database: str, table: str, server_id: int) -> dict[str, object]:
    """Return the settings of a source that reads the binlog from where it stands when it is first started."""
    return {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.port": mariadb.port,
        "database.user": "root",
        "database.password": "",
        "database.server.id": server_id,
        "database.include.list": database,
        "table.include.list": f"{database}.{table}",
        "database.ssl.mode": "disable",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": folder / f"history-{server_id}.dat",
        "include.schema.changes": "false",
    }


def server(folder: Path, kafka: Kafka, name: str, source: dict[str, object]) -> Supervised:
    """Return a server that is not yet started, which writes to topics that begin with its name."""
    home = folder / f"debezium-{name}"
    (home / "config").mkdir(parents=True)
    (home / "config/application.properties").write_text(
        "".join(
            f"{setting}={value}\n"
            for setting, value in {
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
                "debezium.source.offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
                "debezium.source.offset.storage.file.filename": home / "offsets.dat",
                "debezium.source.offset.flush.interval.ms": 1000,
                "debezium.source.database.hostname": "127.0.0.1",
                "debezium.source.topic.prefix": name,
                "debezium.source.snapshot.mode": "no_data",
                "debezium.source.decimal.handling.mode": "string",
                "debezium.source.time.precision.mode": "isostring",
                "debezium.source.tombstones.on.delete": "false",
                "debezium.source.max.batch.size": 8192,
                "debezium.source.max.queue.size": 32768,
                "quarkus.http.port": free_port(),
                "quarkus.log.level": "WARN",
                **{f"debezium.source.{setting}": value for setting, value in source.items()},
            }.items()
        )
    )
    distribution = unpacked(jars.DEBEZIUM) / "debezium-server"
    (runner,) = distribution.glob("*runner.jar")
    path = ":".join([str(runner), str(home / "config"), str(distribution / "lib/*")])
    command = [str(java()), "-Xmx2g", f"-Djava.io.tmpdir={home}", "-cp", path, "io.debezium.server.Main"]
    return Supervised(name, command, log=home / "log")
