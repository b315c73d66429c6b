"""How to reach a PostgreSQL database: the same table in the edge's file and in the lake's."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from headrace.configuration.load import Section
from headrace.configuration.names import PORTS
from headrace.configuration.secret import Secret


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
        known: dict[str, str | int] = {
            "host": self.host,
            "port": self.port,
            "dbname": self.database,
            "user": self.user,
            "sslmode": self.sslmode,
            "connect_timeout": self.connect_timeout,
        }
        if "," in self.host:
            known["target_session_attrs"] = "read-write"
        files = {"sslrootcert": self.sslrootcert, "sslcert": self.sslcert, "sslkey": self.sslkey}
        known |= {name: str(path) for name, path in files.items() if path is not None}
        return known | ({"password": self.password.reveal()} if self.password else {})

    def __str__(self) -> str:
        """Return the address without any secret."""
        return f"{self.host}:{self.port}/{self.database}"
