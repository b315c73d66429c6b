"""A record to deliver: what Kafka holds, and the id by which a receiver knows it again."""

from typing import NamedTuple

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
