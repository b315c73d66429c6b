"""The records of a topic as JSON, each by the schema whose id it names."""

import json
import struct
from collections.abc import Mapping
from typing import Final

from headrace.schemas.avro_json.envelope import HEAD, KeyReader, ValueReader

_MARK: Final = 0


class UnknownSchema(Exception):  # noqa: N818 - a state, which reads best without a suffix.
    """A record names a schema that is not among those given."""


class Records:
    """Reads the records of a topic, those in Avro and those in JSON, which stay as they are."""

    def __init__(self, schemas: Mapping[int, str]) -> None:
        self._schemas = dict(schemas)
        self._keys: dict[int, KeyReader] = {}
        self._values: dict[int, ValueReader] = {}

    def key(self, key: bytes | None) -> bytes | None:
        """Return a key as JSON; raise UnknownSchema, and ValueError for what is none of ours."""
        if not key or key[0] != _MARK:
            return key
        number = int.from_bytes(key[1:HEAD], "big")
        reader = self._keys.get(number)
        if reader is None:
            reader = self._keys[number] = KeyReader(self._schema(number))
        return _read(reader, bytes(key))

    def value(self, value: bytes | None) -> bytes | None:
        """Return a value as JSON; raise errors as `key`."""
        if not value or value[0] != _MARK:
            return value
        number = int.from_bytes(value[1:HEAD], "big")
        reader = self._values.get(number)
        if reader is None:
            reader = self._values[number] = ValueReader(self._schema(number))
        return _read(reader, bytes(value))

    def _schema(self, number: int) -> str:
        if number not in self._schemas:
            raise UnknownSchema(f"schema {number} is not known")
        return self._schemas[number]


def _read(reader: KeyReader | ValueReader, data: bytes) -> bytes:
    try:
        return reader.read(data)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ValueError("the record is not of its schema") from error


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
