"""Sections of files: those that several have (certificates, metrics, registry, topics of requests), and the lake's `[serve]`."""

from pathlib import Path
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlsplit

from msgspec import Meta

from headrace.configuration.load import Section
from headrace.configuration.secret import Secret
from headrace.configuration.value_types import LISTEN_ADDRESS, TOPIC_OR_EMPTY

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


class Metastore(Section, frozen=True, kw_only=True):
    """A Hive metastore that is to know the lake's tables: loads renew them, `headrace lake register` does all of them."""

    uri: Annotated[str, Meta(pattern=r"^thrift://[^/\s]+$")]
    #: What the names of its databases begin with: `silver` has views of what is published, `silver_tables` the tables.
    prefix: Annotated[str, Meta(pattern=r"^[a-z0-9_]*$")] = ""
    #: Settings of Hive's client, such as those of Kerberos.
    settings: dict[str, str] = {}


class Lineage(Section, frozen=True, kw_only=True):
    """Where loads are reported as events of OpenLineage: a server such as Marquez, or a file."""

    #: `https://HOST[:PORT]` of a server.
    url: Annotated[str, Meta(pattern=r"^(https?://[^/?#@\s]+/?)?$")] = ""
    #: Or the file to which a line of JSON is appended for each event.
    file: Path | None = None
    #: A bearer token.
    api_key: Secret | None = None
    #: OpenLineage's namespace of the jobs.
    namespace: Annotated[str, Meta(min_length=1)] = "headrace"

    def __post_init__(self) -> None:
        """Refuse two places, and to send a token readable."""
        if bool(self.url) == (self.file is not None):
            raise ValueError("give either 'url' or 'file'")
        parts = urlsplit(self.url)
        if self.api_key is not None and parts.scheme != "https" and parts.hostname not in _LOOPBACK:
            raise ValueError("'api_key' goes with an https:// address: it would cross the network readable")


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


class Metrics(Section, frozen=True, kw_only=True):
    """The part's own endpoint: metrics, health and status, over HTTP; no secret and no row can be had from it.

    Off unless asked for: two edges on one machine would want the same port.
    """

    #: `host:port`; port 0 takes a free one, which the log names.
    listen: Annotated[str, Meta(pattern=LISTEN_ADDRESS)] | None = None


#: Which change of a schema the registry takes (its own setting when left empty).
Compatibility = Literal[
    "", "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"
]
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


class Registry(Certificates, frozen=True, kw_only=True):
    """The section `[registry]`: by `user` and `password`, by `token`, by a client certificate, or without any."""

    #: Of the API, with its path where it has one: `https://registry.example.org/apis/ccompat/v7` for Apicurio.
    url: Annotated[str, Meta(pattern=r"^https?://[^/?#@\s]+(/[^?#\s]*)?$")]
    user: str | None = None
    password: Secret | None = None
    #: A bearer token.
    token: Secret | None = None
    #: Seconds that an answer may take.
    timeout_seconds: Annotated[float, Meta(gt=0, le=60)] = 5.0

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        super().__post_init__()
        if (self.user is None) != (self.password is None):
            raise ValueError("give 'user' and 'password' together")
        if self.user is not None and self.token is not None:
            raise ValueError("give either 'user' and 'password' or 'token'")
        if self._is_private:
            return
        if self.user is not None or self.token is not None:
            raise ValueError("a password or token goes with an https:// address: it would cross the network readable")
        if self.certificate is not None or self.authority is not None:
            raise ValueError("'authority' and 'certificate' go with an https:// address")

    @property
    def _is_private(self) -> bool:
        """Whether a password may be sent there: over TLS, or on this machine."""
        parts = urlsplit(self.url)
        return parts.scheme == "https" or (parts.hostname in _LOCAL and self.certificate is None)

    def not_for_production(self) -> list[str]:
        """Refuse an address without TLS."""
        return [] if self.url.startswith("https://") else ["http:// has no TLS: use https://"]


#: With fewer replicas a topic is lost with one broker.
_SAFE_REPLICATION = 3


class Topics(NamedTuple):
    """The two topics."""

    requests: str
    answers: str


class RequestTopics(Section, frozen=True, kw_only=True):
    """The topics of requests to edges and of their answers: the same in the bridge's file and in the lake's."""

    #: The topic of requests; `PREFIX.requests` when empty, with the prefix of `[kafka]`.
    topic: Annotated[str, Meta(pattern=TOPIC_OR_EMPTY)] = ""
    #: The topic of answers; `PREFIX.answers` when empty.
    answers_topic: Annotated[str, Meta(pattern=TOPIC_OR_EMPTY)] = ""

    def topics(self, prefix: str) -> Topics:
        """Return the two topics."""
        return Topics(self.topic or f"{prefix}.requests", self.answers_topic or f"{prefix}.answers")


class Requests(RequestTopics, frozen=True, kw_only=True):
    """Has the bridge carry requests to edges and their answers."""

    #: Of the two topics, when `headrace bridge init` makes them; and so the following ones.
    partitions: Annotated[int, Meta(ge=1, le=100)] = 1
    #: Replicas of each partition.
    replication: Annotated[int, Meta(ge=1)] = 1
    #: How many replicas have to have a record before it counts as written; one less than there are when left out.
    min_insync_replicas: Annotated[int, Meta(ge=1)] | None = None
    #: How long Kafka keeps requests and answers, in hours: for this long they record who asked what; 0: without limit.
    retention_hours: Annotated[int, Meta(ge=0)] = 720
    #: Largest record that the topics take, in MB.
    largest_record_megabytes: Annotated[int, Meta(ge=1, le=64)] = 1

    def not_for_production(self) -> list[str]:
        """Refuse topics that are lost with a broker."""
        if self.replication >= _SAFE_REPLICATION:
            return []
        return [f"replication = {self.replication}: a topic needs {_SAFE_REPLICATION} replicas to outlive a broker"]
