"""Sections that several files have (certificates, metrics, registry, requests), a bridge's deliveries, the lake's `[serve]`."""

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlsplit

from msgspec import Meta

from headrace.configuration.load import Section
from headrace.configuration.secret import Secret
from headrace.configuration.value_types import ADDRESSES_OF, LISTEN_ADDRESS, TOPIC_OR_EMPTY

#: Hosts that only this machine reaches.
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
#: A directory of users, a user's name in it, and a search that finds an entry for members of a group alone.
_DIRECTORY = re.compile(
    r"(?P<scheme>ldaps?)://(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?P<port>:\d{1,5})?/(?P<user>[^/?#\x00-\x1f]+)"
    r"(\?(?P<search>[^?#\x00-\x1f]+\?\([^\x00-\x1f]+\)))?"
)


class Serve(Section, frozen=True, kw_only=True):
    """How `headrace lake serve` answers: what is beyond this machine needs users and a certificate."""

    #: `host:port` of Spark Connect, for notebooks, PySpark and `headrace lake sql --server`.
    connect: Annotated[str, Meta(pattern=LISTEN_ADDRESS)] = "127.0.0.1:15002"
    #: `host:port` of the Thrift server, for JDBC and ODBC.
    thrift: Annotated[str, Meta(pattern=LISTEN_ADDRESS)] = "127.0.0.1:10000"
    #: File of the users, a line `name:digest` each: the SHA-256 digest of a token, in hexadecimal digits; or `name:digest:date`,
    #: with the last day (UTC) on which the token is valid. It is read again when it changes. Or a directory that knows their
    #: passwords, `ldaps://HOST[:PORT]/` and a user's name in it, with `{}` for the user: `uid={},ou=people,dc=example,dc=com`, or
    #: `{}@example.com`. With `?BASE?(FILTER)` behind it, and `{}` in that too, those alone may ask for whom this search finds an
    #: entry: a group's members. Without `users` all on this machine may ask.
    users: Annotated[str, Meta(min_length=1)] | None = None
    #: PEM files of the server's certificate, with those between it and its authority, and of its key in PKCS #8.
    certificate: Path | None = None
    key: Path | None = None
    #: File to which a line of JSON is appended when a query begins and when it ends: who, when, what, seconds, rows, no results.
    audit: Path | None = None
    #: Folder in which the server takes loads of `headrace lake load` and Airflow's tasks, of its user on this machine, that then
    #: start no JVM. It makes the folder, and writes the lake. Without it each load has a JVM of its own.
    loads: Path | None = None
    #: Most queries at once; another one is refused.
    queries: Annotated[int, Meta(ge=1, le=1000)] = 16
    #: Most rows of an answer, and seconds that a query may take, until its last row is sent.
    rows: Annotated[int, Meta(ge=1)] = 1_000_000
    seconds: Annotated[int, Meta(ge=1)] = 300

    def __post_init__(self) -> None:
        """Refuse to be reached from elsewhere without users and a certificate, and to send passwords readable."""
        if self.users is not None and "://" in self.users:
            _check_directory(self.users)
        if (self.certificate is None) != (self.key is None):
            raise ValueError("give 'certificate' and 'key' together")
        hosts = [address.rpartition(":")[0] for address in (self.connect, self.thrift)]
        if all(host in _LOOPBACK for host in hosts):
            return
        if self.users is None or self.certificate is None:
            raise ValueError("an address beyond this machine goes with 'users', 'certificate' and 'key'")


def _check_directory(address: str) -> None:
    directory = _DIRECTORY.fullmatch(address)
    if directory is None or directory["user"].count("{}") != 1:
        raise ValueError(
            "'users' is a file, or a directory: 'ldaps://HOST[:PORT]/uid={},ou=people,dc=example,dc=com', where {} is the user, "
            "with '?BASE?(FILTER)' behind it for a group's members"
        )
    search = directory["search"]
    # Without the user in it, or with one half of it, the search would find an entry for everybody.
    if search is not None and ("{}" not in search or not _is_one_group(search.partition("?")[2])):
        raise ValueError(
            "'users' names a search, '?BASE?(FILTER)', without {} for the user, or with a parenthesis too many"
        )
    if directory["scheme"] == "ldap" and directory["host"].strip("[]") not in _LOOPBACK:
        raise ValueError("'users' needs an ldaps:// address: passwords would cross the network readable")


def _is_one_group(text: str) -> bool:
    """Whether a text's first parenthesis is closed by its last one."""
    depth, ends = 0, []
    for place, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth <= 0:
            ends.append(place)
    return ends == [len(text) - 1]


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


def check_tls(urls: Sequence[str]) -> list[str]:
    """Return why AMQP addresses are not for production, of the first that has no TLS; empty where all have it."""
    return [f"{url.partition('://')[0]}:// has no TLS: use amqps://" for url in urls if not url.startswith("amqps://")][
        :1
    ]


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


def check_replication(replication: int) -> list[str]:
    """Return why a topic with so many replicas is not for production; empty where it is."""
    if replication >= _SAFE_REPLICATION:
        return []
    return [f"replication = {replication}: a topic needs {_SAFE_REPLICATION} replicas to outlive a broker"]


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
        return check_replication(self.replication)


#: A field of a delivery's address: `{region}`, `{key}` or `{header.NAME}`.
ADDRESS_FIELD = re.compile(r"\{(region|key|header\.[^{}]+)\}")
_ADDRESS = re.compile(r"[a-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9._/-]*")
#: First parts of addresses that are in use otherwise.
_RESERVED_ADDRESSES = ("cdc", "requests", "answers")

#: An address, or all that begin as one does: `alerts/jakarta`, `alerts/jakarta/*`.
AddressPattern = Annotated[str, Meta(pattern=ADDRESSES_OF)]


class Delivery(Section, frozen=True, kw_only=True):
    """A topic, where its records go, and what happens to those that cannot be delivered."""

    #: The topic; the delivery's own name when empty.
    topic: Annotated[str, Meta(pattern=TOPIC_OR_EMPTY)] = ""
    #: The address of a record: fixed text with `{region}` (the key up to its first `/`), `{key}` or `{header.NAME}`.
    address: Annotated[str, Meta(min_length=1, max_length=200)]
    #: Which client certificates, by common name, may receive from which addresses, where the bridge listens:
    #: `{"jakarta-branch" = ["alerts/jakarta"]}`. Nobody when empty.
    receivers: dict[str, Annotated[list[AddressPattern], Meta(min_length=1)]] = {}
    #: Where records go that nobody can deliver; `TOPIC.dead-letters` when empty.
    dead_letter_topic: Annotated[str, Meta(pattern=TOPIC_OR_EMPTY)] = ""
    #: Records, each of another key, that may be in flight to one address.
    window: Annotated[int, Meta(ge=1, le=10_000)] = 64
    #: Records of one partition that may have been read since the oldest that is not settled; beyond that it is not read on.
    max_pending_records: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    #: The same in MB of those that wait.
    max_pending_megabytes: Annotated[int, Meta(ge=1, le=4096)] = 16
    #: A record that nobody has accepted at this age becomes a dead letter; 0: it waits without limit.
    dead_letter_after_hours: Annotated[float, Meta(ge=0)] = 0.0
    #: Of the two topics, when `headrace bridge init` makes them; and so the following ones.
    partitions: Annotated[int, Meta(ge=1, le=1000)] = 6
    #: Replicas of each partition.
    replication: Annotated[int, Meta(ge=1)] = 1
    #: How many replicas have to have a record before it counts as written; one less than there are when left out.
    min_insync_replicas: Annotated[int, Meta(ge=1)] | None = None
    #: How long Kafka keeps the records, in hours; 0: without limit. Longer than any branch is offline.
    retention_hours: Annotated[int, Meta(ge=0)] = 720
    #: Largest record that the topics take, in MB.
    largest_record_megabytes: Annotated[int, Meta(ge=1, le=64)] = 1

    def __post_init__(self) -> None:
        """Refuse a template that is none, or whose addresses are in use otherwise."""
        rest = ADDRESS_FIELD.sub("x", self.address)
        if not _ADDRESS.fullmatch(rest) or not _ADDRESS.match(self.address):
            raise ValueError(
                "'address' begins with fixed text and '/', and has letters, digits, '.', '_', '-', '/' and the fields "
                '{region}, {key} and {header.NAME}: "alerts/{region}"'
            )
        if self.address.partition("/")[0] in _RESERVED_ADDRESSES:
            raise ValueError(
                f"addresses of {', '.join(_RESERVED_ADDRESSES)} are Headrace's own: begin 'address' with another word"
            )

    def not_for_production(self) -> list[str]:
        """Refuse topics that are lost with a broker."""
        return check_replication(self.replication)

    @property
    def prefix(self) -> str:
        """Return what all addresses begin with: the template up to its first field."""
        return self.address.partition("{")[0]

    def topics(self, name: str) -> tuple[str, str]:
        """Return the topic of the delivery of this name, and the one of its dead letters."""
        topic = self.topic or name
        return topic, self.dead_letter_topic or f"{topic}.dead-letters"


def check_deliveries(deliveries: Mapping[str, Delivery], streams: Collection[str], *, listens: bool) -> None:
    """Raise ValueError when deliveries conflict with each other or with streams.

    Args:
        deliveries: those of a bridge's file.
        streams: the topics of its streams.
        listens: whether the bridge listens.
    """
    topics = [topic for name, delivery in deliveries.items() for topic in delivery.topics(name)]
    if len(topics) != len(set(topics)) or not set(topics).isdisjoint(streams):
        raise ValueError("two deliveries, or a delivery and a stream, have one topic")
    prefixes = sorted(delivery.prefix for delivery in deliveries.values())
    if any(longer.startswith(shorter) for shorter, longer in itertools.pairwise(prefixes)):
        raise ValueError("the addresses of two deliveries begin alike: who may receive from them would not be clear")
    if not listens and any(delivery.receivers for delivery in deliveries.values()):
        raise ValueError("'receivers' goes with a bridge that listens: a router or broker has its own policy")
