"""What an edge's records hold in addition to changes, in which forms values are, and how large a record may be."""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta
from msgspec.structs import force_setattr

from headrace.configuration.load import Section

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
