"""The certificates of one connection: the same three names for the interconnect and for Kafka; and who a client is.

Each is the path of a PEM file, relative to the configuration file. They are read when a connection is made, so a renewed file
takes effect without a restart.
"""

from pathlib import Path

from headrace.configuration.load import Section
from headrace.configuration.secret import Secret


class Certificates(Section, frozen=True, kw_only=True):
    """Whom to trust, and who we are."""

    #: Certificates of the authorities that the other side's certificate must come from; the system's own when left out.
    authority: Path | None = None
    #: Our own certificate, with those between it and its authority, and its private key.
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        """Refuse one of certificate and key without the other."""
        if (self.certificate is None) != (self.key is None):
            raise ValueError("give 'certificate' and 'key' together")


class Client(Certificates, frozen=True, kw_only=True):
    """Who connects to an interconnect: by certificate, or by a user, for a router or broker that knows users."""

    user: str | None = None
    password: Secret | None = None
