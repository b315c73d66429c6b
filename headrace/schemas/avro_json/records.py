"""The records of a topic as JSON, each by the schema whose id it names."""

import json
import struct
from collections.abc import Mapping
from typing import Final

from headrace.schemas.avro_json.envelope import HEAD, KeyReader, ValueReader

_MARK: Final = 0
#: What reading fails with where a record is not of its schema.
_OTHERS: Final = (IndexError, struct.error, UnicodeDecodeError)
_WRONG: Final = "the record is not of its schema"


class UnknownSchema(Exception):  # noqa: N818 - a state, which reads best without a suffix.
    """A record names a schema that is not among those given."""


class Records:
    """Reads the records of a topic, those in Avro and those in JSON, which stay as they are."""

    def __init__(self, schemas: Mapping[int, str]) -> None:
        self._schemas = dict(schemas)
        self._keys: dict[bytes, KeyReader] = {}
        self._values: dict[bytes, ValueReader] = {}

    def key(self, key: bytes | None) -> bytes | None:
        """Return a key as JSON; raise UnknownSchema, and ValueError for what is none of ours."""
        if not key or key[0] != _MARK:
            return key
        data = bytes(key)
        reader = self._keys.get(data[:HEAD])
        if reader is None:
            reader = self._keys[data[:HEAD]] = KeyReader(self._schema(data))
        try:
            return reader.read(data)
        except _OTHERS as error:
            raise ValueError(_WRONG) from error

    def value(self, value: bytes | None) -> bytes | None:
        """Return a value as JSON; raise errors as `key`."""
        if not value or value[0] != _MARK:
            return value
        data = bytes(value)
        reader = self._values.get(data[:HEAD])
        if reader is None:
            reader = self._values[data[:HEAD]] = ValueReader(self._schema(data))
        try:
            return reader.read(data)
        except _OTHERS as error:
            raise ValueError(_WRONG) from error

    def _schema(self, data: bytes) -> str:
        number = int.from_bytes(data[1:HEAD], "big")
        if number not in self._schemas:
            raise UnknownSchema(f"schema {number} is not known")
        return self._schemas[number]


def reader_of(schema: str) -> KeyReader | ValueReader:
    """Return what reads records of a schema; raise ValueError, KeyError or TypeError for one that no edge writes."""
    return ValueReader(schema) if json.loads(schema).get("name") == "Envelope" else KeyReader(schema)


class Reader:
    """The records of a batch, one call each, in a process of Spark's: sent there with the schemas, which it reads on first use.

    Fails with `unknown` in the text where a schema is missing, else with `wrong`, formatted with topic, partition and offset.
    """

    def __init__(self, schemas: Mapping[int, str], wrong: str, unknown: str) -> None:
        self._schemas, self._wrong, self._unknown = schemas, wrong, unknown
        self._records: Records | None = None

    def __call__(
        self, topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None
    ) -> tuple[bytes | None, bytes | None]:
        """Return key and value as JSON."""
        if self._records is None:
            self._records = Records(self._schemas)
        try:
            return self._records.key(key), self._records.value(value)
        except UnknownSchema as error:
            raise ValueError(self._unknown) from error
        except ValueError:
            pass
        # Without its cause, and without what it was called with.
        raise ValueError(self._wrong.format(topic=topic, partition=partition, offset=offset))
