"""A table's newest schema in Kafka: the last schema record that a source wrote of it, in the stream's own topic.

Reads the whole topic; called by `headrace bridge schema`.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from bridge.kafka.entries import reading, records
from headrace.configuration.bridge import BridgeFile
from headrace.errors import ConfigurationError, NeedsOperator
from headrace.formats import UNREADABLE
from headrace.schema import TableSchema

#: What a schema record has, and changes have not as a name of a field; a row's text may have it.
_HINT = b'"tableChanges"'


class SourceSchema(NamedTuple):
    """A table's schema, and where its topic's name and engine come from."""

    schema: TableSchema
    #: `source.connector` of the table's records.
    connector: str
    #: What names of the stream's topics for tables begin with.
    prefix: str


class _Source(msgspec.Struct):
    connector: str
    schema: str
    table: str


class _Head(msgspec.Struct):
    source: _Source
    tableChanges: msgspec.Raw = msgspec.Raw()  # noqa: N815 - Debezium's name.


def read_newest(file: BridgeFile, table: str, source: str | None = None) -> SourceSchema:
    """Return the newest schema of a table, SCHEMA.TABLE; of one source, or the one that all sources share.

    Raises ConfigurationError for a source that the file has not, NeedsOperator when there is no schema or sources differ,
    NotConnected.
    """
    wanted = {source: file.stream_of(source)} if source else {each: file.stream_of(each) for each in _sources(file)}
    schemas: dict[str, SourceSchema] = {}
    with reading(file.kafka, file.group) as client:
        for each, stream in wanted.items():
            topic = file.topic(stream)
            for partition in file.stream(stream).sources[each]:
                for record in records(client, topic, partition):
                    if (schema := schema_in(record.value(), table)) is not None:
                        schemas[each] = SourceSchema(*schema, file.prefix(stream))
    return shared_schema(schemas, table)


def shared_schema(schemas: Mapping[str, SourceSchema], table: str) -> SourceSchema:
    """Return the schema that all sources have; raise NeedsOperator when there is none, ConfigurationError when they differ."""
    if not schemas:
        raise NeedsOperator(
            f"no schema record of table {table!r} is in Kafka",
            hint="Write it as SCHEMA.TABLE. A schema record precedes a table's first change, and retention may have removed it: "
            "'headrace edge snapshot TABLE' writes another one.",
        )
    first = next(iter(schemas.values()))
    if any(other.schema.change() != first.schema.change() for other in schemas.values()):
        raise ConfigurationError(
            f"table {table!r} is not the same in all sources: {', '.join(sorted(schemas))}",
            hint="Name one of them: --source REGION/NAME.",
        )
    return first


def _sources(file: BridgeFile) -> list[str]:
    return [source for stream in file.streams.values() for source in stream.sources]


def schema_in(value: bytes | None, table: str) -> tuple[TableSchema, str] | None:
    """Return the schema in a record's value, and the engine; None for one that is no schema record of the table."""
    if value is None or _HINT not in value:
        return None
    try:
        head = msgspec.json.decode(value, type=_Head)
    except UNREADABLE:
        return None
    if not bytes(head.tableChanges) or f"{head.source.schema}.{head.source.table}" != table:
        return None
    return TableSchema.parse(value), head.source.connector
