"""How to reach a MariaDB or MySQL server: the same table in the edge's file and in the lake's."""

import ssl
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from headrace.configuration.load import Section
from headrace.configuration.secret import Secret
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
        known: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password.reveal() if self.password else "",
            "connect_timeout": self.connect_timeout,
        }
        if self.sslmode == "disable":
            return known | {"ssl_disabled": True, "auth_plugin_map": dict.fromkeys(_IN_THE_CLEAR, _Refusing)}
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
        return known | {"ssl": context}

    def __str__(self) -> str:
        """Return the address without any secret."""
        return f"{self.host}:{self.port}"
