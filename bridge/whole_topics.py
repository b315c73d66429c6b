"""What commands find by reading whole topics: dead letters, and a table's newest schema.

Dead letters are records in place of a change whose row was too large or could not be decoded (docs/records.md). They are in the
source's own order, in the place of the change, so nothing is hidden and no chain is broken. What is left to do is the edge's:
raise the limit, put the values right, and copy the rows again (edge/commands/snapshot.py). One is open until a later record of
the same key has brought the row, or removed it. Schemas are in the stream's own topic: each source wrote the last schema record
of a table.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple

import msgspec

from bridge.kafka.client import admin
from bridge.kafka.entries import reading, records
from bridge.kafka.topics import topics_of
from headrace.configuration.bridge import BridgeFile
from headrace.errors import ConfigurationError, NeedsOperator
from headrace.formats import UNREADABLE
from headrace.schema import TableSchema

#: Is in every dead letter. A text that holds the same is escaped.
_MARK = b'"too_large":{"bytes":'
_TRUNCATE = b'"op":"t"'
_MOVING = b'{"before":{'

#: A table of a source, and a row's key in it.
_Table = tuple[str, str, str]
_Row = tuple[_Table, bytes]


class _Size(msgspec.Struct):
    bytes: int
    sha256: str
    #: Whose value could not be decoded; empty where the row was too large, and in Avro.
    column: str = ""


class _Source(msgspec.Struct):
    name: str
    position: str
    schema: str
    table: str
    ts_ms: int = 0

    @property
    def of(self) -> _Table:
        return self.name, self.schema, self.table


class _Change(msgspec.Struct):
    source: _Source
    op: str
    before: dict[str, Any] | None = None
    unchanged: list[str] = []
    too_large: _Size | None = None


class _Letter(NamedTuple):
    change: _Change
    size: _Size
    key: bytes | None
    offset: str


_CHANGE = msgspec.json.Decoder(_Change)


class DeadLetterIndex:
    """The dead letters among the records that it was fed."""

    def __init__(self) -> None:
        self._letters: list[_Letter] = []
        self._keys: set[bytes] = set()
        # Positions of the last record that replaces a row, and of the last truncate of a table.
        self._replaced: dict[_Row, str] = {}
        self._emptied: dict[_Table, str] = {}

    def add(self, key: bytes | None, value: bytes | None, offset: str) -> None:
        """Note a record; `offset` is where it is, for people. Anything that is no change is passed over."""
        if value is None:
            return
        may_be_letter = _MARK in value
        may_empty = key is None and _TRUNCATE in value
        may_replace = bool(self._keys) and (key in self._keys or value.startswith(_MOVING))
        if not (may_be_letter or may_empty or may_replace):
            return
        try:
            change = _CHANGE.decode(value)
        except UNREADABLE:
            # A schema record, or the mark was in a text of somebody's.
            return
        if change.op == "t":
            _raise(self._emptied, change.source.of, change.source.position)
        elif change.too_large is not None:
            self._letters.append(_Letter(change, change.too_large, key, offset))
            self._keys |= {key} - {None}  # type: ignore[arg-type]
            self._leaves(change, key)
        elif key is not None:
            if key in self._keys and (change.op == "d" or not change.unchanged):
                _raise(self._replaced, (change.source.of, key), change.source.position)
            self._leaves(change, key)

    def rows(self) -> list[dict[str, Any]]:
        """Return the contents of each dead letter, in the order in which they were fed, with its `state`: open or replaced."""
        return [self._show(letter) for letter in self._letters]

    def _leaves(self, change: _Change, key: bytes | None) -> None:
        """Note that an update moves its row from the key that it had."""
        if change.op != "u" or not change.before or key is None:
            return
        try:
            former = msgspec.json.encode({name: change.before[name] for name in msgspec.json.decode(key)})
        except (KeyError, TypeError, *UNREADABLE):
            # An old row without its key is that of a key that stays.
            return
        if former != key and former in self._keys:
            _raise(self._replaced, (change.source.of, former), change.source.position)

    def _show(self, letter: _Letter) -> dict[str, Any]:
        change, size, key, offset = letter
        source = change.source
        return {
            "state": "open" if self._is_open(change, key) else "replaced",
            "source": source.name,
            "position": source.position,
            "table": f"{source.schema}.{source.table}",
            "op": change.op,
            "key": (key or b"").decode(errors="replace") or None,
            "bytes": size.bytes,
            "sha256": size.sha256,
            "column": size.column,
            "committed_ms": source.ts_ms,
            "offset": offset,
        }

    def _is_open(self, change: _Change, key: bytes | None) -> bool:
        of, position = change.source.of, change.source.position
        later = [self._emptied.get(of, ""), self._replaced.get((of, key), "") if key is not None else ""]
        return change.op != "d" and max(later) <= position


def _raise(positions: dict[Any, str], what: Any, position: str) -> None:
    # Positions sort as their texts do.
    positions[what] = max(positions.get(what, ""), position)


def dead_letters(file: BridgeFile, stream: str) -> list[dict[str, Any]]:
    """Return the contents of each dead letter of a stream, source by source, up to the present end.

    Raises ConfigurationError for a stream that the file has not, NotConnected, or NeedsOperator.
    """
    rows = []
    topics = topics_of(file, stream, admin(file.kafka))
    for partitions in file.streams[stream].sources.values():
        index = DeadLetterIndex()
        with reading(file.kafka, file.group) as client:
            for topic, partition in product(topics, partitions):
                for record in records(client, topic, partition):
                    index.add(record.key(), record.value(), f"{topic}[{partition}]@{record.offset()}")
        rows += index.rows()
    return rows


#: What a schema record has, and changes have not as a name of a field; a row's text may have it.
_SCHEMA_HINT = b'"tableChanges"'


class SourceSchema(NamedTuple):
    """A table's schema, and where its topic's name and engine come from."""

    schema: TableSchema
    #: `source.connector` of the table's records.
    connector: str
    #: What names of the stream's topics for tables begin with.
    prefix: str


class _SchemaSource(msgspec.Struct):
    connector: str
    schema: str
    table: str


class _SchemaHead(msgspec.Struct):
    source: _SchemaSource
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
    if value is None or _SCHEMA_HINT not in value:
        return None
    try:
        head = msgspec.json.decode(value, type=_SchemaHead)
    except UNREADABLE:
        return None
    if not bytes(head.tableChanges) or f"{head.source.schema}.{head.source.table}" != table:
        return None
    return TableSchema.parse(value), head.source.connector
