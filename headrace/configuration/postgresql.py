"""How to reach a PostgreSQL database: the same table in the edge's file and in the lake's."""

from typing import Annotated

from msgspec import Meta

from headrace.configuration.load import Section
from headrace.configuration.secret import Secret


class PostgresqlConnection(Section, frozen=True, kw_only=True):
    """Where a database is and who asks; everything else is libpq's default."""

    host: str
    port: Annotated[int, Meta(ge=1, le=65535)] = 5432
    database: str
    user: str
    password: Secret | None = None
    sslmode: str = "prefer"
    #: Seconds until an attempt to connect is given up.
    connect_timeout: Annotated[int, Meta(ge=1)] = 10

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
        return known | ({"password": self.password.reveal()} if self.password else {})

    def __str__(self) -> str:
        """Return the address without any secret."""
        return f"{self.host}:{self.port}/{self.database}"
