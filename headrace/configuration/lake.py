"""The lake's file: where tables are, which streams are loaded, and how the sources are reached for verification.

Airflow's DAGs read the same file with the standard library alone (dags/), so its form is a contract.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from headrace.configuration.bridge import SourceName, StreamName
from headrace.configuration.databases import MysqlConnection, PostgresqlConnection
from headrace.configuration.explain import URI
from headrace.configuration.kafka import KafkaConnection, Value, as_texts, check_java, check_librdkafka
from headrace.configuration.load import File, Section
from headrace.configuration.secret import Secret
from headrace.configuration.sections import Lineage, Metastore, Registry, RequestTopics, Serve
from headrace.configuration.value_types import find_expression_problem
from headrace.errors import ConfigurationError

#: Of Kafka's Java client: the class that fetches a token.
_LOGIN = "sasl.login.callback.handler.class"


class Lake(Section, frozen=True, kw_only=True):
    """The root under which `bronze/`, `silver/` and the published positions are: a path, or a URI that Hadoop knows."""

    root: Annotated[str, Meta(extra=URI)]
    #: Days for which `headrace lake maintain` keeps what was published and has been replaced since.
    keep_days: Annotated[int, Meta(ge=1, le=30)] = 7
    #: Days after which it removes records from bronze that no table needs: 7 more than `keep_days` at least, never when absent.
    bronze_keep_days: Annotated[int, Meta(ge=1)] | None = None

    def __post_init__(self) -> None:
        """Refuse to remove what silver as of the last days is made from."""
        if self.bronze_keep_days is not None and self.bronze_keep_days < self.keep_days + 7:
            raise ValueError(
                "'bronze_keep_days' is 7 more than 'keep_days' at least: queries of the last days need bronze"
            )


class Kafka(KafkaConnection, frozen=True, kw_only=True):
    """The central cluster."""

    #: Further settings of the client by which Spark reads records, by Kafka's own names: `{"client.rack" = "a"}`; also the login
    #: of a cloud, `{"sasl.login.callback.handler.class" = "…"}`. What guarantees rest on is refused.
    client: dict[str, Value] = {}
    #: The same of librdkafka, by which the lake looks up offsets and groups.
    librdkafka_client: dict[str, Value] = {}

    def __post_init__(self) -> None:
        """Refuse settings that guarantees rest on, and a token that Spark could not have."""
        super().__post_init__()
        check_java(self.client, "kafka.client")
        check_librdkafka(self.librdkafka_client, "kafka.librdkafka_client")
        if self.token is not None and _LOGIN not in self.client:
            raise ValueError(
                f'Spark\'s client cannot have the token of a command: name in [kafka.client] "{_LOGIN}" the class that fetches '
                "one (docs/cloud.md)"
            )

    def librdkafka(self) -> dict[str, Any]:
        """Return librdkafka's settings, with those that are passed through."""
        return super().librdkafka() | as_texts(self.librdkafka_client)

    def java(self) -> dict[str, str]:
        """Return the settings of Spark's client, with those that are passed through."""
        return super().java() | as_texts(self.client)


#: Names of settings whose values are secrets: those that Spark itself hides, and keys of accounts.
_SECRET = re.compile(r"secret|password|token$|access\.?key|account\.?key|private\.?key", re.IGNORECASE)
#: Settings that Airflow puts on the driver's command line.
_AHEAD = ("spark.driver.", "spark.executor.", "spark.kubernetes.", "spark.yarn.", "spark.submit.", "spark.pyspark.")


def is_secret(name: str) -> bool:
    """Whether the value of a setting of Spark is a secret."""
    return bool(_SECRET.search(name))


def is_reference(name: str, value: str) -> bool:
    """Whether the value of a setting of Spark is a reference to its value.

    `file:` and `command:` are references of secrets alone: of other settings `file:` begins a URI.
    """
    kinds = ("env:", "file:", "command:") if is_secret(name) else ("env:",)
    return value.startswith(kinds) and not value.startswith("file://")


class Spark(Section, frozen=True, kw_only=True):
    """How the jobs run."""

    VERBATIM: ClassVar = True

    #: Where tasks run, for commands and Airflow's loads alike: `local[4]`, `spark://…`, `yarn` or `k8s://…`.
    master: str = "local[2]"
    #: Where the driver of Airflow's loads runs: next to Airflow, or in a cluster of YARN or Kubernetes. Commands are drivers
    #: themselves.
    deploy_mode: Literal["client", "cluster"] = "client"
    driver_memory: str = "2g"
    #: Further settings of the session, `{"spark.some.key" = "value"}`. A value may be `env:NAME`, and that of a key, password,
    #: secret or token `file:PATH` or `command:PROGRAM` too; these are followed when Spark starts, and never shown.
    settings: dict[str, str] = {}

    def not_for_production(self) -> list[str]:
        """Refuse secrets that are in the file itself."""
        return [
            f"settings \"{name}\" has a secret in the file itself: give it as 'env:NAME', 'file:PATH' or 'command:PROGRAM'"
            for name, value in sorted(self.settings.items())
            if is_secret(name) and not is_reference(name, value)
        ]

    def __post_init__(self) -> None:
        """Refuse a driver in a cluster that does not run drivers in Python, and references that a command line would show."""
        for name, value in self.settings.items():
            if not is_reference(name, value):
                continue
            if name.startswith(_AHEAD):
                raise ValueError(
                    f'settings "{name}" is on the driver\'s command line, so it takes no reference to a secret'
                )
            # Raises for a command that cannot be read.
            Secret(value)
        if self.deploy_mode == "cluster" and not self.master.startswith(("k8s://", "yarn")):
            raise ValueError(
                "'deploy_mode = \"cluster\"' goes with a master of YARN or Kubernetes: Spark's standalone clusters run no driver "
                "in Python"
            )


class Schedule(Section, frozen=True, kw_only=True):
    """When and how Airflow runs the load of a stream, or verification."""

    VERBATIM: ClassVar = True

    #: A cron expression or a preset such as `@hourly`; empty for runs by hand only.
    cron: str = ""
    retries: Annotated[int, Meta(ge=0)] = 2
    retry_seconds: Annotated[int, Meta(ge=1)] = 60
    timeout_minutes: Annotated[int, Meta(ge=1)] = 120
    #: Airflow's pool whose slots the tasks take, so that not all streams are loaded at once.
    pool: Annotated[str, Meta(min_length=1)] = "default_pool"


class LoadSchedule(Schedule, frozen=True, kw_only=True):
    """The same of a load."""

    #: In how many tasks, side by side, tables of silver are brought up; of 1 the task that publishes does it.
    table_groups: Annotated[int, Meta(ge=1, le=1000)] = 1


Deletes = Literal["hard", "soft"]
OnIncompatible = Literal["stop", "rebuild"]
OnUnsupported = Literal["stop", "null"]
Readers = Literal["delta", "open"]


class TableOptions(Section, frozen=True, kw_only=True):
    """How one table is treated otherwise than its stream."""

    #: Whether deleted rows go, or stay and are marked; as for the stream when not given.
    deletes: Deletes | None = None
    #: What happens when the table's rows cannot become what its schema is now; as for the stream when not given.
    on_incompatible: OnIncompatible | None = None
    #: What happens at a value that silver's type cannot hold; as for the stream when not given.
    on_unsupported: OnUnsupported | None = None
    #: Which readers of Delta can read the table; as for the stream when not given.
    readers: Readers | None = None
    #: Whether the former rows are kept too; as for the stream when history is not given here.
    history: bool | None = None
    #: Columns whose changes make a new version; all of them when empty.
    track_history_columns: list[str] = []
    #: Or those whose changes do not.
    track_history_except_columns: list[str] = []
    #: What is expected of each of the table's rows, by a name: expressions of Spark SQL over silver's columns, which are true for
    #: a row that meets them. Loads count the rows that do not (`lake.quality`) and keep them.
    expect: dict[Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")], str] = {}
    #: Whether SQL has a view `valid.NAME` too, of the rows that meet all of them.
    valid_view: bool = False

    def tracked(self, columns: Iterable[str]) -> list[str]:
        """Return those of a table's columns whose changes make a new version."""
        only, never = self.track_history_columns, self.track_history_except_columns
        return [name for name in columns if name not in never and (not only or name in only)]

    def keeps_history(self, stream: bool) -> bool:
        """Whether former rows are kept, given the stream's own setting; naming columns to track turns it on."""
        if self.history is not None:
            return self.history
        return stream or bool(self.track_history_columns or self.track_history_except_columns)


class Stream(Section, frozen=True, kw_only=True):
    """A stream to load."""

    #: The topic; the stream's own name when empty.
    topic: str = ""
    #: Whether tables have topics of their own, as the stream's `tables` in the bridge's file say: they are found in Kafka.
    topic_per_table: bool = False
    #: What the tables' topics begin with, `PREFIX.schema.table`; the stream's topic when empty.
    prefix: str = ""
    #: Sources that the stream holds.
    sources: Annotated[list[SourceName], Meta(min_length=1)]
    #: Most records that one bronze micro-batch takes.
    records_per_batch: Annotated[int, Meta(ge=1)] = 2_000_000
    schedule: LoadSchedule = LoadSchedule()
    #: Whether the former rows of every table are kept.
    history: bool = False
    #: Whether rows that were deleted at their source go, or stay and are marked.
    deletes: Deletes = "hard"
    #: Whether a table whose rows cannot become what its schema is now stops, or is rebuilt when a new copy has arrived.
    on_incompatible: OnIncompatible = "stop"
    #: Whether a table stops at a value that silver's type cannot hold, a date with a zero month say, or has null there.
    on_unsupported: OnUnsupported = "stop"
    #: Whether tables need a reader that knows all of Delta, or are kept as every reader knows them, which costs loads more.
    readers: Readers = "delta"
    #: Tables that are treated otherwise, by their source's `schema.table`.
    tables: dict[str, TableOptions] = {}

    def __post_init__(self) -> None:
        """Refuse a prefix of topics that the stream does not have."""
        if self.prefix and not self.topic_per_table:
            raise ValueError("'prefix' goes with 'topic_per_table = true'")

    def history_of(self, table: str) -> TableOptions | None:
        """Return how a table's history is kept; None when it is not."""
        options = self.tables.get(table, TableOptions())
        return options if options.keeps_history(self.history) else None

    def marks_deleted(self, table: str) -> bool:
        """Whether a table's deleted rows stay, marked."""
        return (self.tables.get(table, TableOptions()).deletes or self.deletes) == "soft"

    def nulls_unsupported(self, table: str) -> bool:
        """Whether a value of a table that silver's type cannot hold is null."""
        return (self.tables.get(table, TableOptions()).on_unsupported or self.on_unsupported) == "null"

    def is_open(self, table: str) -> bool:
        """Whether a table is kept as every reader of Delta knows it."""
        return (self.tables.get(table, TableOptions()).readers or self.readers) == "open"

    def expected_of(self, table: str) -> dict[str, str]:
        """Return what is expected of a table's rows."""
        return self.tables.get(table, TableOptions()).expect

    def rebuilds(self, table: str) -> bool:
        """Whether a table is rebuilt by itself when its schema has become incompatible."""
        return (self.tables.get(table, TableOptions()).on_incompatible or self.on_incompatible) == "rebuild"


class Verify(Section, frozen=True, kw_only=True):
    """How Airflow verifies the lake."""

    VERBATIM: ClassVar = True

    schedule: Schedule = Schedule()
    #: Share of each table's ranges to compare, in percent.
    sample: Annotated[float, Meta(gt=0, le=100)] = 100.0


class MaintenanceSchedule(Schedule, frozen=True, kw_only=True):
    """The same of maintenance, which is daily when not given."""

    cron: str = "@daily"


class Maintenance(Section, frozen=True, kw_only=True):
    """How Airflow maintains the lake."""

    schedule: MaintenanceSchedule = MaintenanceSchedule()


class VerifiedMysql(MysqlConnection, frozen=True, kw_only=True):
    """A MariaDB or MySQL server, and what of it is captured."""

    #: Databases to compare, as the edge's file names them; empty for all but the server's own.
    databases: list[str] = []


class VerifiedSource(Section, frozen=True, kw_only=True):
    """How `headrace verify` reaches a source: by its edge, unless a connection is given."""

    #: `interconnect`: the edge computes in the region, and nothing connects there; so it is for sources that this file does not
    #: name, too. `direct`: a connection to the database, one of those below; so it is as well where one is given alone.
    #: `sqlserver`, `oracle`, `db2`: a statement that `headrace verify` prints, with what it has to give there.
    via: Literal["interconnect", "direct", "sqlserver", "oracle", "db2"] | None = None
    postgresql: PostgresqlConnection | None = None
    mariadb: VerifiedMysql | None = None
    mysql: VerifiedMysql | None = None

    def __post_init__(self) -> None:
        """Refuse several databases, and none where one is connected to."""
        given = sum(each is not None for each in (self.postgresql, self.mariadb, self.mysql))
        if given > 1 or (self.via == "direct" and not given):
            raise ValueError("give exactly one of 'postgresql', 'mariadb' and 'mysql'")
        if given and self.by_hand is not None:
            raise ValueError(f"'via' is {self.via!r}, so give none of 'postgresql', 'mariadb' and 'mysql'")

    @property
    def is_direct(self) -> bool:
        """Whether the database is connected to."""
        return self.via != "interconnect" and any((self.postgresql, self.mariadb, self.mysql))

    @property
    def by_hand(self) -> str | None:
        """Return the engine at which a person runs a statement; None where the source's half is computed otherwise."""
        return None if self.via in {None, "interconnect", "direct"} else self.via


def local_path(path: str) -> str:
    """Return a path of this machine without its scheme; as for Hadoop, `%20` and `#` are characters of a name."""
    return re.sub("^file:/*", "/", path)


class LakeFile(File, frozen=True, kw_only=True):
    """A whole lake file."""

    lake: Lake
    kafka: Kafka
    spark: Spark = Spark()
    streams: Annotated[dict[StreamName, Stream], Meta(min_length=1)]
    #: How sources are verified that are not verified by their edges.
    sources: dict[SourceName, VerifiedSource] = {}
    requests: RequestTopics = RequestTopics()
    #: The registry that the bridge registers schemas in, for streams whose changes are in Avro.
    registry: Registry | None = None
    verify: Verify = Verify()
    maintenance: Maintenance = Maintenance()
    serve: Serve = Serve()
    metastore: Metastore | None = None
    lineage: Lineage | None = None

    @property
    def root(self) -> str:
        """Return the lake's root: a URI as it is, a path made absolute."""
        return self.lake.root if urlsplit(self.lake.root).scheme else str(self.resolve(self.lake.root))

    @property
    def folder(self) -> Path | None:
        """Return the root as a folder of this machine; None where it is elsewhere, or Hadoop alone knows.

        For what can be read without Spark.
        """
        scheme = urlsplit(self.root).scheme
        if scheme == "file":
            return Path(local_path(self.root))
        elsewhere = scheme or "HADOOP_CONF_DIR" in os.environ or "spark.hadoop.fs.defaultFS" in self.spark.settings
        return None if elsewhere else Path(self.root)

    def spark_settings(self) -> dict[str, str]:
        """Return [spark.settings] with references followed.

        Raises ConfigurationError when a reference leads nowhere, and NotConnected when a command fails.
        """
        folder = Path(self.path).parent
        return {
            name: Secret(value, folder).reveal() if is_reference(name, value) else value
            for name, value in self.spark.settings.items()
        }

    def stream(self, name: str) -> Stream:
        """Return a stream; raise ConfigurationError when the file has none of that name."""
        if name not in self.streams:
            raise ConfigurationError(
                f"no stream {name!r} in {self.path}",
                hint=f"It has: {', '.join(sorted(self.streams))}.",
            )
        return self.streams[name]

    def wrong_expectations(self) -> list[str]:
        """Return a sentence for each expectation that no load can count; no load fails because of one."""
        return [
            f'streams.{name}.tables."{table}".expect.{expectation}: {problem}'
            for name, stream in self.streams.items()
            for table, options in stream.tables.items()
            for expectation, expression in options.expect.items()
            if (problem := find_expression_problem(expression)) is not None
        ]

    def topic(self, name: str) -> str:
        """Return the topic of a stream."""
        return self.stream(name).topic or name

    def prefix(self, name: str) -> str:
        """Return what the topics of a stream's tables begin with."""
        return self.stream(name).prefix or self.topic(name)

    def has_topic(self, stream: str, name: str) -> bool:
        """Whether a topic is the stream's own, or one of its tables'; one of a longer prefix is of the stream that has that."""
        if name in {self.topic(other) for other in self.streams}:
            return name == self.topic(stream)
        prefixes = [self.prefix(other) for other, section in self.streams.items() if section.topic_per_table]
        fitting = [prefix for prefix in prefixes if name.startswith(f"{prefix}.") and "." in name[len(prefix) + 1 :]]
        return bool(fitting) and max(fitting, key=len) == self.prefix(stream)
