"""How `headrace lake serve` answers: `[serve]` of the lake's file."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from headrace.configuration.load import Section
from headrace.configuration.value_types import LISTEN_ADDRESS

#: Hosts that only this machine reaches.
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Serve(Section, frozen=True, kw_only=True):
    """How `headrace lake serve` answers: what is beyond this machine needs users and a certificate."""

    #: `host:port` of Spark Connect, for notebooks, PySpark and `headrace lake sql --server`.
    connect: Annotated[str, Meta(pattern=LISTEN_ADDRESS)] = "127.0.0.1:15002"
    #: `host:port` of the Thrift server, for JDBC and ODBC.
    thrift: Annotated[str, Meta(pattern=LISTEN_ADDRESS)] = "127.0.0.1:10000"
    #: File of the users, a line `name:digest` each: the SHA-256 digest of a token, in hexadecimal digits; or `name:digest:date`,
    #: with the last day (UTC) on which the token is valid. It is read again when it changes. Without it all on this machine may
    #: ask.
    users: Path | None = None
    #: PEM files of the server's certificate, with those between it and its authority, and of its key in PKCS #8.
    certificate: Path | None = None
    key: Path | None = None
    #: File to which a line of JSON is appended when a query begins and when it ends: who, when, what, seconds, rows, no results.
    audit: Path | None = None
    #: Most queries at once; another one is refused.
    queries: Annotated[int, Meta(ge=1, le=1000)] = 16
    #: Most rows of an answer, and seconds that a query may take, until its last row is sent.
    rows: Annotated[int, Meta(ge=1)] = 1_000_000
    seconds: Annotated[int, Meta(ge=1)] = 300

    def __post_init__(self) -> None:
        """Refuse to be reached from elsewhere without users and a certificate."""
        if (self.certificate is None) != (self.key is None):
            raise ValueError("give 'certificate' and 'key' together")
        hosts = [address.rpartition(":")[0] for address in (self.connect, self.thrift)]
        if all(host in _LOOPBACK for host in hosts):
            return
        if self.users is None or self.certificate is None:
            raise ValueError("an address beyond this machine goes with 'users', 'certificate' and 'key'")
