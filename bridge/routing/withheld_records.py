"""What of a batch goes to its tables' topics, and what is withheld; and the records in which that waits.

A table is withheld from the first record on whose schema the registry refuses, and with all that comes after it, so that its
topic never has a later record ahead of an earlier one. Pure but for the registry's answers. Called by a source's part of a
transaction.

A withheld record has the records of one table in one batch, as a batch of their own (headrace/batch.py). The key is the source
and the table, `region/name schema.table`; the value is the batch's body, and its properties are headers, as texts. So it is
complete in itself, with the schemas that its records were written with, and its format has the batch's version.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from bridge.model.chain import Withheld, WithheldTable
from bridge.model.ports import Share
from bridge.model.route import SourceRoute
from bridge.routing.partitioner import TableRefused, find_joined, share_out_whole
from bridge.routing.registered_schemas import SchemaIds
from headrace.batch import AVRO_MARK, CONTENT_ENCODING, Batch, decode, encode
from headrace.errors import CorruptInput
from headrace.position import Position
from headrace.schema import COPY_MARK_HEAD

#: Largest size of a withheld record before compression, in bytes, unless it is a single change: what does not shrink has to go
#: into a topic that takes records of 1 MB, as all others of the batch do.
_MOST_BYTES = 512 * 1024
#: Properties of a batch that are numbers.
_NUMBERS, _NUMBER = ("version", "count"), re.compile(r"[0-9]{1,9}")


class Divided(NamedTuple):
    """A batch in two parts."""

    shares: list[Share]
    #: The state once both are committed, but for where the withheld records end.
    withheld: Withheld
    #: Why tables are withheld from this batch on.
    reasons: dict[str, str]


def divide(
    batch: Batch, begin: int, route: SourceRoute, schemas: SchemaIds, former: Withheld, tail: Position
) -> Divided:
    """Return what is to be written of a batch from record `begin` on.

    Args:
        batch: the next of the source's chain.
        begin: the index of the first record that is not in Kafka.
        route: where the source's records go.
        schemas: what the registry knows.
        former: which tables are withheld, by the last committed transaction and what this one holds ahead of the batch.
        tail: the position ahead of the batch, or what it follows where none is known.

    Raises errors as `share_out_whole`; TableRefused too, for a table that would be one too many.
    """
    reasons: dict[str, str] = {}
    withheld = former
    # Without Avro, and while nothing is withheld, records are not read here.
    tables = _Tables(batch, route, begin) if former.tables else None
    while True:
        skipped = tables.indexes_of(withheld.tables) if tables is not None else set()
        try:
            shares = share_out_whole(batch, begin, route, schemas, skipped)
        except TableRefused as refused:
            tables = tables or _Tables(batch, route, begin)
            more = withheld.put(refused.table, WithheldTable(tables.before(refused.table) or tail, former.end))
            if refused.table in withheld.tables or not more.fits:
                raise
            withheld, reasons = more, {**reasons, refused.table: refused.message}
        else:
            parts = [] if tables is None else tables.parts(withheld.tables)
            place = route.withheld_place
            if parts and place is not None:
                shares.append(share_of(place, parts))
            return Divided(shares, withheld, reasons)


class _Tables:
    """The table of each change in a batch."""

    def __init__(self, batch: Batch, route: SourceRoute, begin: int) -> None:
        self._batch, self._begin = batch, begin
        names = {each.mark: each.name for each in batch.written}
        ahead = {number for number in find_joined(batch.segments) if batch.keys[number] is None}
        self._indexes: dict[str, list[int]] = {}
        before = ""
        for number in range(begin, len(batch)):
            key, value = batch.keys[number], batch.values[number]
            head = value if value is not None else key or b""
            if head[:1] == AVRO_MARK:
                table = names.get(head[:5], "")
            elif number in ahead or head.startswith(COPY_MARK_HEAD) or route.tables is None:
                # About a table, but no change of it: always in the stream's own topic.
                table = ""
            else:
                # A tombstone follows its delete.
                table = before if value is None else route.tables.table_of(value)
            if table:
                self._indexes.setdefault(table, []).append(number)
            before = table

    def before(self, table: str) -> Position | None:
        """Return the position ahead of a table's first change; None where the batch has none ahead of it."""
        positions = list(self._batch.positions())
        first = self._indexes[table][0]
        # A schema record has the position of its change.
        return max((each for each in positions[self._begin : first] if each < positions[first]), default=None)

    def indexes_of(self, tables: Collection[str]) -> set[int]:
        """Return the indexes of the changes of some tables."""
        return {number for table in tables for number in self._indexes.get(table, ())}

    def parts(self, tables: Collection[str]) -> list[tuple[str, Batch]]:
        """Return what some tables have, each as a batch of its own, or several in order."""
        there = [table for table in tables if table in self._indexes]
        return [(table, self._batch.part(part)) for table in there for part in self._cut(self._indexes[table])]

    def _cut(self, indexes: list[int]) -> Iterator[list[int]]:
        """Yield indexes in parts that are no larger than they have to be; records of one position stay together."""
        batch, positions = self._batch, list(self._batch.positions())
        part: list[int] = []
        size = 0
        for number in indexes:
            more = len(batch.keys[number] or b"") + len(batch.values[number] or b"")
            if part and size + more > _MOST_BYTES and positions[number] != positions[part[-1]]:
                yield part
                part, size = [], 0
            part.append(number)
            size += more
        yield part


def record_key(source: str, table: str) -> bytes:
    """Return the key of a table's withheld records."""
    return f"{source} {table}".encode()


def share_of(place: tuple[str, int], parts: Sequence[tuple[str, Batch]]) -> Share:
    """Return what is written for some tables' batches."""
    written = Share(*place, [], [], {})
    assert written.headers is not None
    for index, (table, batch) in enumerate(parts):
        properties, body = encode(batch)
        written.keys.append(record_key(batch.source, table))
        written.values.append(body)
        written.headers[index] = [(name, str(value).encode()) for name, value in properties.items()]
    return written


def _number(text: object) -> int:
    """Return a number of a batch; `int` would take any digits, of any length."""
    if _NUMBER.fullmatch(str(text)) is None:
        raise ValueError
    return int(str(text))


def batch_of(headers: Sequence[tuple[str, bytes]] | None, value: bytes | None, where: str) -> Batch:
    """Return the batch of a withheld record; raise CorruptInput, or NeedsOperator for a version that is not read."""
    properties: dict[str, object] = {name: data.decode(errors="replace") for name, data in headers or ()}
    try:
        properties |= {name: _number(properties.get(name)) for name in _NUMBERS}
        return decode(properties, CONTENT_ENCODING, value or b"")
    except (CorruptInput, ValueError) as error:
        reason = error.message if isinstance(error, CorruptInput) else "its headers are no batch's"
        raise CorruptInput(
            f"{where} holds no withheld record: {reason}", hint="Nobody but bridges may write to that topic."
        ) from error
