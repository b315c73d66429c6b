"""A record to deliver: what Kafka holds, and the id by which a receiver recognises it.

Addresses of records: a template of the bridge's file, filled from a record's key or headers.

Figures of each delivery: written by its thread and the receiver's, read by anybody. docs/metrics.md explains each.
"""

import re
import time
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.configuration.sections import ADDRESS_FIELD
from headrace.metrics.collector import Rate, counter, gauge, states, worked_out

STATES = ("starting", "delivering", "waiting for Kafka", "needs an operator", "stopped")


@dataclass(slots=True)
class DeliveryMetrics:
    """One delivery's figures; counts are since the bridge started."""

    state: str = states("state", "1 for the state that the delivery is in, 0 for the others.", STATES)
    #: What explains the state; empty while it delivers.
    reason: str = ""
    read: int = counter("read_records_total", "Records read from the topic.")
    delivered: int = counter("delivered_records_total", "Records that a receiver accepted.")
    redelivered: int = counter("redelivered_records_total", "Times that a record was sent again.")
    dead_lettered: int = counter("dead_lettered_records_total", "Records written to the dead-letter topic.")
    removed: int = counter(
        "removed_records_total", "Records that Kafka's retention removed before they were delivered, at most."
    )
    pending: int = gauge("pending_records", "Records read that are neither accepted nor dead letters.", 0)
    paused: int = gauge("paused_partitions", "Partitions not read on, as too many of their records are pending.", 0)
    assigned: int = gauge("assigned_partitions", "Partitions that this bridge delivers.", 0)
    #: Addresses with pending records that have no receiver, or one without credit.
    waiting_addresses: int = gauge("waiting_addresses", "Addresses with records and nobody who takes them.", 0)
    #: The timestamp of the oldest pending record, in milliseconds since 1970; None while none is pending.
    oldest_ms: int | None = None
    #: Why addresses wait, shown by `headrace status`.
    notes: list[str] = field(default_factory=list)
    rate: Rate = field(default_factory=Rate)

    @property
    @worked_out("oldest_pending_seconds", "Age of the oldest pending record by its timestamp; 0 while none is pending.")
    def oldest_age(self) -> float:
        """Seconds."""
        return 0.0 if self.oldest_ms is None else max(0.0, time.time() - self.oldest_ms / 1000)


Headers = tuple[tuple[str, bytes | None], ...]
#: What keeps its order: records of one key, which are in one partition. Those without a key keep the order of their partition.
OrderKey = tuple[int, bytes | None]


class Record(NamedTuple):
    """One Kafka record."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    #: None is a tombstone.
    value: bytes | None
    headers: Headers = ()
    #: Milliseconds since 1970; 0 when Kafka has none.
    timestamp: int = 0

    @property
    def id(self) -> str:
        """Return the id of the message, the same each time that the record is sent."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def order_key(self) -> OrderKey:
        """Return what it has to stay in order with."""
        return self.partition, self.key

    @property
    def size(self) -> int:
        """Return the bytes of key, value and headers."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


_LONGEST = 200
_SEGMENT = r"[A-Za-z0-9_.@=+~-]+"
_SEGMENTS = rf"{_SEGMENT}(?:/{_SEGMENT})*"
_REGION = r"[A-Za-z0-9][A-Za-z0-9_.-]*"


class Undeliverable(Exception):  # noqa: N818 - a state, which reads best without a suffix.
    """A record has no address."""


class AddressTemplate:
    """A template such as `alerts/{region}`."""

    def __init__(self, text: str) -> None:
        self._text = text
        pattern = "".join(
            re.escape(part) if number % 2 == 0 else (_REGION if part == "region" else _SEGMENTS)
            for number, part in enumerate(ADDRESS_FIELD.split(text))
        )
        self._pattern = re.compile(pattern)
        self._fields = ADDRESS_FIELD.findall(text)

    def address(self, record: Record) -> str:
        """Return a record's address; raise Undeliverable, with the reason and without the value, when it has none."""
        values = {field: _value(field, record) for field in self._fields}
        address = ADDRESS_FIELD.sub(lambda match: values[match.group(1)], self._text)
        if len(address) > _LONGEST:
            raise Undeliverable(f"the address would be longer than {_LONGEST} characters")
        return address

    def matches(self, address: str) -> bool:
        """Return whether a record could have this address."""
        return len(address) <= _LONGEST and self._pattern.fullmatch(address) is not None


def _value(field: str, record: Record) -> str:
    if field.startswith("header."):
        name = field.removeprefix("header.")
        # The last of several, as Kafka's own clients take it.
        values = [value for header, value in record.headers if header == name]
        return _checked(values[-1] if values else None, f"header {name!r}", _SEGMENTS)
    if field == "region":
        key = record.key.partition(b"/")[0] if record.key is not None else None
        return _checked(key, "region in the key", _REGION)
    return _checked(record.key, "key", _SEGMENTS)


def _checked(value: bytes | None, what: str, pattern: str) -> str:
    if not value:
        raise Undeliverable(f"no {what}")
    try:
        text = value.decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if not re.fullmatch(pattern, text):
        raise Undeliverable(f"the {what} has characters that no address may have")
    return text
