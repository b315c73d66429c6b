"""How to reach a MariaDB or MySQL server: the same table in the edge's file and in the lake's."""

from typing import Annotated, Literal

from msgspec import Meta

from headrace.configuration.load import Section
from headrace.configuration.secret import Secret


class MysqlConnection(Section, frozen=True, kw_only=True):
    """Where a server is and who asks."""

    host: str
    port: Annotated[int, Meta(ge=1, le=65535)] = 3306
    user: str
    password: Secret | None = None
    #: As libpq names them: `require` encrypts, `verify-ca` and `verify-full` also look at the certificate.
    sslmode: Literal["disable", "require", "verify-ca", "verify-full"] = "disable"
    #: Certificates that are trusted, a PEM file; the system's when absent.
    sslrootcert: str | None = None
    #: Seconds until an attempt to connect is given up.
    connect_timeout: Annotated[int, Meta(ge=1)] = 10

    def __str__(self) -> str:
        """Return the address without any secret."""
        return f"{self.host}:{self.port}"
