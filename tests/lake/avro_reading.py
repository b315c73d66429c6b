"""A reader of Avro's binary form by its schema, for tests: written from the specification, and of no encoder's code."""

import json
import struct
from typing import Any


class AvroReader:
    """Reads one value after the other; `rest` is what is left."""

    def __init__(self, data: bytes, schema: str | dict[str, Any]) -> None:
        self.rest = data
        self._schema = json.loads(schema) if isinstance(schema, str) else schema
        self._names: dict[str, Any] = {}
        self._learn(self._schema, "")

    def read(self) -> Any:
        return self._value(self._schema, "")

    def _learn(self, kind: Any, namespace: str) -> None:
        """Take note of the names of records: a later one may refer to one that no value was read of."""
        if isinstance(kind, list):
            for branch in kind:
                self._learn(branch, namespace)
        elif isinstance(kind, dict) and kind["type"] in {"array", "map"}:
            self._learn(kind.get("items", kind.get("values")), namespace)
        elif isinstance(kind, dict) and kind["type"] == "record":
            namespace = kind.get("namespace", namespace)
            self._names[f"{namespace}.{kind['name']}"] = kind, namespace
            for field in kind["fields"]:
                self._learn(field["type"], namespace)

    def _value(self, kind: Any, namespace: str) -> Any:
        if isinstance(kind, list):
            return self._value(kind[self._long()], namespace)
        if isinstance(kind, dict):
            return self._complex(kind, namespace)
        for name in (kind, f"{namespace}.{kind}"):
            if name in self._names:
                return self._complex(*self._names[name])
        return {
            "null": lambda: None, "boolean": lambda: self._take(1) == b"\1", "int": self._long, "long": self._long,
            "float": lambda: struct.unpack("<f", self._take(4))[0], "double": lambda: struct.unpack("<d", self._take(8))[0],
            "bytes": lambda: self._take(self._long()), "string": lambda: self._take(self._long()).decode(),
        }[kind]()  # fmt: skip

    def _complex(self, kind: dict[str, Any], namespace: str) -> Any:
        if kind["type"] == "record":
            namespace = kind.get("namespace", namespace)
            return {field["name"]: self._value(field["type"], namespace) for field in kind["fields"]}
        if kind["type"] == "array":
            items = []
            while count := self._long():
                items += [self._value(kind["items"], namespace) for _ in range(count)]
            return items
        if kind["type"] == "map":
            pairs = {}
            while count := self._long():
                pairs |= {
                    self._value("string", namespace): self._value(kind["values"], namespace) for _ in range(count)
                }
            return pairs
        return self._value(kind["type"], namespace)

    def _take(self, count: int) -> bytes:
        taken, self.rest = self.rest[:count], self.rest[count:]
        assert len(taken) == count, "the data ends within a value"
        return taken

    def _long(self) -> int:
        number = shift = 0
        while True:
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number >> 1 ^ -(number & 1)


def read(data: bytes, schema: str | dict[str, Any]) -> Any:
    """Return the value that data holds, which has to end with it."""
    reader = AvroReader(data, schema)
    value = reader.read()
    assert reader.rest == b"", "something follows the value"
    return value
