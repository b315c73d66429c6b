"""The edge's file: one source, the interconnect, where state is, what may leave the region (`[policy]`), and the form of records.

Patterns of the policy are those of file names: `*` for any run of characters, `?` for one. A table is named `schema.table`, a
column `schema.table.column`.
"""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, field
from msgspec.structs import force_setattr

from headrace.configuration.databases import Debezium, MysqlConnection, PostgresqlConnection
from headrace.configuration.load import File, Section
from headrace.configuration.secret import Secret
from headrace.configuration.sections import Client, Metrics, check_tls
from headrace.configuration.value_types import AMQP_ADDRESS, COLUMN_PATTERN, IDENTIFIER, SOURCE_NAME, TABLE_PATTERN

Profile = Literal["headrace", "debezium"]

#: What each profile means, for fields that the file does not give.
PROFILES: Final[dict[str, dict[str, Any]]] = {
    "headrace": {
        "envelope": "headrace",
        "key_change": "update",
        "unavailable": "absent",
        "truncates": True,
        "tombstones": False,
        "decimal": "string",
        "time": "iso",
        "binary": "base64",
        "interval": "text",
        "hstore": "text",
        "types": "headrace",
    },
    "debezium": {
        "envelope": "debezium",
        "key_change": "delete-create",
        "unavailable": "placeholder",
        "truncates": False,
        "tombstones": True,
        "decimal": "precise",
        "time": "adaptive",
        "binary": "base64",
        "interval": "numeric",
        "hstore": "json",
        "types": "debezium",
    },
}

#: Those that edges of every engine follow; others are for PostgreSQL.
EVERY_ENGINE: Final = frozenset(
    {"envelope", "key_change", "truncates", "tombstones", "decimal", "time", "binary", "types"}
)

#: Fields that work in this release, and whose form is the profile's from release 0.3 on.
GONE_IN_0_3: Final = frozenset({"binary", "interval", "hstore"})
TablePattern = Annotated[str, Meta(pattern=TABLE_PATTERN)]
ColumnPattern = Annotated[str, Meta(pattern=COLUMN_PATTERN)]


class Records(Section, frozen=True, kw_only=True):
    """The section `[records]`; forms of values take the words of Debezium's options.

    A field without a default below has that of the profile.
    """

    #: `avro`: changes are in Avro, and the bridge registers their schemas (its file needs `[registry]`); `json` for all else.
    format: Literal["json", "avro"] = "json"
    #: `debezium` sets all that the fields below leave open as Debezium's connectors do by default: for consumers that were
    #: written for them. `headrace` is shorter, and keeps every value exactly.
    profile: Profile = "headrace"
    #: `debezium` adds `ts_us`, `ts_ns`, `source.sequence`, `source.xmin`, `transaction.data_collection_order` and each change's
    #: own `source.lsn`, and schema records say which columns are NOT NULL; for MariaDB and MySQL also `source.thread`,
    #: `source.query` and each change's own `source.pos`.
    envelope: Profile | None = None
    #: A change of a key: one `u` under the new key, or, as Debezium writes it, a `d` of the old key and a `c` of the new one,
    #: each with a header that has the other key.
    key_change: Literal["update", "delete-create"] | None = None
    #: A column that the log does not carry is absent from its row, or has Debezium's `__debezium_unavailable_value`; `unchanged`
    #: names it in both cases. With `placeholder`, `before` has all columns too: those that the log does not carry are null or
    #: empty.
    unavailable: Literal["absent", "placeholder"] | None = None
    #: Whether a truncate is a record, as it is with `headrace`. Debezium skips them, since some consumers stop at one: then a
    #: reader, a lake too, keeps the rows that a truncate removed. `edge snapshot --replace` writes its own in both cases.
    truncates: bool | None = None
    #: How `numeric` is written; anything but `string` is for consumers that expect Debezium's own forms.
    decimal: Literal["string", "precise", "double"] | None = None
    #: How `date`, `time` and `timestamp` are written; anything but `iso` as Debezium's `time.precision.mode`.
    time: (
        Literal["iso", "adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"]
        | None
    ) = None
    #: Deprecated. How binary values are written, as Debezium's `binary.handling.mode`; its `bytes` is base64 in JSON, and bytes
    #: in Avro.
    binary: Literal["base64", "base64-url-safe", "hex"] | None = None
    #: Deprecated. How `interval` is written: the database's text, or as Debezium's `interval.handling.mode`: microseconds, or
    #: ISO 8601.
    interval: Literal["text", "numeric", "string"] | None = None
    #: Deprecated. How `hstore` is written: the database's text, or as Debezium's `hstore.handling.mode`.
    hstore: Literal["text", "json", "map"] | None = None
    #: How other types are written that have a form of their own in Debezium: arrays, bits, money, `timetz`, geometric types,
    #: `ENUM`, `SET` and `YEAR`.
    types: Profile | None = None
    #: Prefixes of `pg_logical_emit_message` whose messages become records; `*` for all.
    messages: list[str] = []
    #: Whether a record marks where a transaction begins, and one where it ends.
    transactions: bool = False
    #: Whether a record without a value follows a delete.
    tombstones: bool | None = None
    #: Whether changes and messages have the headers of CloudEvents 1.0, Kafka's binding, binary mode.
    cloudevents: bool = False
    #: Largest value of a record, in MB; the topic's `max.message.bytes` has to be greater.
    largest_megabytes: Annotated[int, Meta(ge=1, le=200)] = 15
    #: What becomes of a change that is larger, or has a value that cannot be decoded: the edge stops, or a record without the row
    #: takes its place.
    on_too_large: Literal["stop", "dead-letter"] = "dead-letter"

    def __post_init__(self) -> None:
        """Take from the profile what the file does not give."""
        for name, value in PROFILES[self.profile].items():
            if getattr(self, name) is None:
                force_setattr(self, name, value)

    @property
    def largest_bytes(self) -> int:
        """Return the largest value of a record, in bytes."""
        return self.largest_megabytes << 20


class ColumnRule(Section, frozen=True, kw_only=True):
    """What is done to columns."""

    columns: Annotated[list[ColumnPattern], Meta(min_length=1)]
    #: `exclude`: not captured at all; `mask`: a fixed text; `hash`: HMAC-SHA-256 of the value's text, in hexadecimal, so the same
    #: for the same value in any column; `truncate`: its first characters.
    action: Literal["exclude", "mask", "hash", "truncate"]
    #: The value of a masked column.
    mask: str = "****"
    #: How many characters a truncated column keeps.
    characters: Annotated[int, Meta(ge=0)] | None = None

    def __post_init__(self) -> None:
        """Refuse a truncation without its length."""
        if (self.action == "truncate") != (self.characters is not None):
            raise ValueError("give 'characters' with action = \"truncate\", and only then")


class Policy(Section, frozen=True, kw_only=True):
    """The section; without it everything that the publication carries leaves."""

    #: Tables whose changes leave, and of no others; empty for all.
    include_tables: list[TablePattern] = []
    #: Tables whose changes stay, even if included above.
    exclude_tables: list[TablePattern] = []
    #: The key of all hashes. The same key in several regions gives the same hashes there.
    hash_key: Secret | None = None
    #: The first rule that matches a column counts.
    columns: list[ColumnRule] = []

    def __post_init__(self) -> None:
        """Refuse hashes without a key."""
        if self.hash_key is None and any(rule.action == "hash" for rule in self.columns):
            raise ValueError("action = \"hash\" needs 'hash_key'")


Address = Annotated[str, Meta(pattern=AMQP_ADDRESS)]


#: Bytes of a name, in UTF-8.
_LONGEST_NAME = 63


class Postgresql(PostgresqlConnection, frozen=True, kw_only=True):
    """The captured database, with the names that `headrace edge init` gives to slot and publication."""

    slot: Annotated[str, Meta(pattern=IDENTIFIER)] = "headrace"
    publication: Annotated[str, Meta(pattern=IDENTIFIER)] = "headrace"
    #: Tables to capture, `schema.table`; empty for all tables of the database.
    tables: list[str] = []
    #: Conditions in SQL by table, of those in `tables`: `init` publishes only rows that meet them (PostgreSQL 15 and newer).
    row_filters: dict[str, str] = {}
    #: Whether `init` makes the slot one that standbys keep ready for a failover (PostgreSQL 17 and newer).
    failover: bool = False

    def __post_init__(self) -> None:
        """Refuse the filter of a table that is not listed, and names that the server would cut."""
        super().__post_init__()
        for table in self.tables:
            if table.count(".") == 1 and any(len(name.encode()) > _LONGEST_NAME for name in table.split(".")):
                raise ValueError(
                    f"'tables' names {table}: the server cuts names to {_LONGEST_NAME} bytes, so give them so"
                )
        if unlisted := sorted(set(self.row_filters) - set(self.tables)):
            raise ValueError(f"'row_filters' names {unlisted[0]}, which is not in 'tables'")


class Mysql(MysqlConnection, frozen=True, kw_only=True):
    """The captured MariaDB or MySQL server, and the number by which it knows this edge among its replicas."""

    #: Unique among all servers and replicas of the same source.
    server_id: Annotated[int, Meta(ge=1, le=4_294_967_295)]
    #: Databases to capture; empty for all but the server's own.
    databases: list[str] = []
    #: Tables to capture, `database.table`; empty for all of those databases.
    tables: list[str] = []
    #: What becomes of dates with a year, month or day of zero: the server's own text, or null.
    zero_dates: Literal["text", "null"] = "text"


class Source(Section, frozen=True, kw_only=True):
    """What is captured."""

    #: `region/name`.
    name: Annotated[str, Meta(pattern=SOURCE_NAME)]
    postgresql: Postgresql | None = None
    mariadb: Mysql | None = None
    mysql: Mysql | None = None
    #: Experimental.
    debezium: Debezium | None = None

    def __post_init__(self) -> None:
        """Refuse no database, and several."""
        if sum(given is not None for given in (self.postgresql, self.mariadb, self.mysql, self.debezium)) != 1:
            raise ValueError("give exactly one of 'postgresql', 'mariadb', 'mysql' and 'debezium'")


class Interconnect(Client, frozen=True, kw_only=True):
    """Where batches are sent: a bridge that listens, a router or a broker."""

    #: One address, or several that lead to the same place: when one fails, the next is tried.
    url: Address | Annotated[list[Address], Meta(min_length=1)]

    def __post_init__(self) -> None:
        """Refuse certificates where they would not be used."""
        super().__post_init__()
        if (self.authority or self.certificate) and not all(url.startswith("amqps://") for url in self.urls):
            raise ValueError("'authority' and 'certificate' go with amqps:// addresses")

    def not_for_production(self) -> list[str]:
        """Refuse addresses without TLS."""
        return check_tls(self.urls)

    @property
    def urls(self) -> list[str]:
        """Return the addresses."""
        return [self.url] if isinstance(self.url, str) else self.url


class State(Section, frozen=True, kw_only=True):
    """Where the edge keeps its checkpoint."""

    folder: str


class Batches(Section, frozen=True, kw_only=True):
    """How changes are cut into batches and how many may be in flight."""

    #: Compressed size that a batch aims at; routers let messages above about 190 kB be overtaken.
    kilobytes: Annotated[int, Meta(ge=1, le=180)] = 64
    #: Compressed batches waiting for an outcome, in all; capture waits when it is reached.
    window_megabytes: Annotated[int, Meta(ge=1, le=4096)] = 32


class Spool(Section, frozen=True, kw_only=True):
    """Where batches go that are not acknowledged for long: a file in the state folder."""

    #: Largest size of the file; 0 for no spool: then the source keeps its log for as long as the far side is unavailable.
    megabytes: Annotated[int, Meta(ge=0)] = 1024
    #: A batch that waited so long for its acknowledgement is made durable here, and the source may discard it.
    after_seconds: Annotated[float, Meta(ge=0)] = 30.0


class Limits(Section, frozen=True, kw_only=True):
    """From where on the edge warns."""

    #: Log that the source keeps for this edge; 0 for no warning.
    retained_wal_megabytes: Annotated[int, Meta(ge=0)] = 10_240


class Snapshot(Section, frozen=True, kw_only=True):
    """The copy of rows that are there before capture begins; `mode` takes the words of Debezium's `snapshot.mode`."""

    #: Whether `headrace edge init` asks for a snapshot of every published table, when it makes the source.
    mode: Literal["no_data", "initial"] = "no_data"
    #: What follows when a table was altered in a way that changed its rows without a record: `report` it, or `copy` it again too.
    after_alter: Literal["report", "copy"] = "report"
    #: Size that a chunk aims at, in the database's text form; the stream waits while a chunk takes its place in it.
    chunk_kilobytes: Annotated[int, Meta(ge=16, le=65_536)] = 1024


RequestKind = Literal["status", "doctor", "verify", "snapshot"]


class Requests(Section, frozen=True, kw_only=True):
    """What headquarters may ask of this edge, on the connection that the edge opened (docs/requests.md)."""

    #: Kinds of requests that are handled; others are refused. None, `[]`, and the edge receives no requests at all. `snapshot`
    #: changes something; the others read.
    allow: list[RequestKind] = field(default_factory=lambda: ["status", "doctor", "verify"])
    #: Longest statement that `verify` may run in the database, in seconds; it reads whole ranges of tables.
    verify_statement_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 3600


class EdgeFile(File, frozen=True, kw_only=True):
    """A whole edge file."""

    source: Source
    interconnect: Interconnect
    state: State
    batches: Batches = Batches()
    records: Records = Records()
    policy: Policy = Policy()
    spool: Spool = Spool()
    limits: Limits = Limits()
    snapshot: Snapshot = Snapshot()
    metrics: Metrics = Metrics()
    requests: Requests = Requests()
    #: Seconds between the empty batches of an idle source.
    heartbeat_seconds: Annotated[float, Meta(gt=0)] = 10.0

    def __post_init__(self) -> None:
        """Refuse settings that would not be followed."""
        if self.source.postgresql is None:
            # What the profile sets is for columns that these servers do not have.
            usual = {"messages": []} | PROFILES[self.records.profile]
            for name in ("messages", *PROFILES["headrace"].keys() - EVERY_ENGINE):
                if getattr(self.records, name) != usual[name]:
                    raise ValueError(f"'{name}' of 'records' is for 'postgresql' sources")
            if self.source.debezium is not None:
                for name in PROFILES["headrace"].keys() - {"tombstones"} | {"format"}:
                    if getattr(self.records, name) != (PROFILES["headrace"] | {"format": "json"})[name]:
                        raise ValueError(f"'{name}' of 'records' is not for 'debezium' sources")
                if self.spool.megabytes and self.source.debezium.connector in {"sqlserver", "db2"}:
                    # Its file has places of 64 bits.
                    raise ValueError("'spool' is not for 'sqlserver' and 'db2' sources: set its 'megabytes' to 0")
            if self.records.time == "isostring":
                # A TIME of these servers may be negative or longer than a day, which that form does not have.
                raise ValueError("'isostring' for 'time' of 'records' is for 'postgresql' sources")
