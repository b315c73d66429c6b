"""How to reach a database: the tables for PostgreSQL and for MariaDB or MySQL, in the edge's file and in the lake's."""

import ssl
from pathlib import Path
from typing import Annotated, Any, Literal

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
