"""What an edge's records hold besides changes, in which forms values are, and how large a record may be."""

from typing import Annotated, Literal

from msgspec import Meta

from headrace.configuration.load import Section


class Records(Section, frozen=True, kw_only=True):
    """The section `[records]`; `decimal` and `time` take the words of Debezium's options."""

    #: How `numeric` is written; anything but `string` is for consumers that expect Debezium's own forms.
    decimal: Literal["string", "precise", "double"] = "string"
    #: How `date`, `time` and `timestamp` are written; as above.
    time: Literal["iso", "adaptive", "connect"] = "iso"
    #: Prefixes of `pg_logical_emit_message` whose messages become records; `*` for all.
    messages: list[str] = []
    #: Whether a record marks where a transaction begins, and one where it ends.
    transactions: bool = False
    #: Whether a record without a value follows a delete.
    tombstones: bool = False
    #: Largest value of a record, in MB; the topic's `max.message.bytes` has to be greater.
    largest_megabytes: Annotated[int, Meta(ge=1, le=200)] = 15
    #: What becomes of a change that is larger: the edge stops, or a record without the row takes its place.
    on_too_large: Literal["stop", "dead-letter"] = "stop"

    @property
    def largest_bytes(self) -> int:
        """Return the largest value of a record, in bytes."""
        return self.largest_megabytes << 20
