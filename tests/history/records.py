"""Kafka's side of a history: records of a `read_committed` read, opened with the standard library's JSON alone."""

import json
from typing import Any, NamedTuple

from tests.history.transactions import Number


class Record(NamedTuple):
    """One Kafka record: a change, or a table's schema."""

    partition: int
    offset: int
    key: dict[str, Any] | None
    value: dict[str, Any]

    @property
    def is_schema(self) -> bool:
        """Whether it describes a table."""
        return "tableChanges" in self.value

    @property
    def is_mark(self) -> bool:
        """Whether it marks the beginning or the end of a table's copy."""
        return self.is_schema and "transaction" in self.value

    @property
    def is_copy(self) -> bool:
        """Whether a snapshot read it."""
        return bool(self.value.get("op") == "r")

    @property
    def source(self) -> dict[str, Any]:
        """What the record says about where it comes from."""
        held: dict[str, Any] = self.value["source"]
        return held

    @property
    def table(self) -> str:
        """`schema.table`."""
        return f"{self.source['schema']}.{self.source['table']}"

    @property
    def position(self) -> tuple[int, int, int]:
        """Epoch, commit and ordinal."""
        epoch, commit, ordinal = (int(part, 16) for part in self.source["position"].split("/"))
        return epoch, commit, ordinal

    @property
    def xid(self) -> int:
        """The transaction's number at the source."""
        return int(self.source["txId"].text)

    def __str__(self) -> str:
        """Where it stands, in words."""
        return f"record {self.partition}:{self.offset} (transaction {self.xid}, position {self.source['position']})"


def record(partition: int, offset: int, key: bytes | None, value: bytes) -> Record:
    """Return the record that Kafka's bytes hold."""
    return Record(partition, offset, _loads(key) if key is not None else None, _loads(value))


def _loads(text: bytes) -> Any:
    return json.loads(text, parse_int=Number, parse_float=Number)
