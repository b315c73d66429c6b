"""What of a batch goes to its tables' topics, and what is withheld: the records of tables that are withheld, or become it now.

A table is withheld from the first record on whose schema the registry refuses, and with all that comes after it, so that its
topic never has a later record ahead of an earlier one. Pure but for the registry's answers. Called by a source's part of a
transaction.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from bridge.model import withheld_records as records
from bridge.model.ports import Share
from bridge.model.route import SourceRoute
from bridge.model.withheld import Withheld, WithheldTable
from bridge.routing import avro_ids as sharing_out
from bridge.routing import partitioner
from bridge.routing.avro_ids import TableRefused
from bridge.routing.partitioner import find_joined
from bridge.routing.registered_schemas import SchemaIds
from headrace.batch import AVRO_MARK, Batch
from headrace.position import Position
from headrace.schema import COPY_MARK_HEAD

#: A withheld record holds so much before compression, in bytes, or a single change: what does not shrink has to go into a topic
#: that takes records of 1 MB, as all others of the batch do.
_MOST_BYTES = 512 * 1024


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

    Raises errors as `sharing_out.shares`; TableRefused too, for a table that would be one too many.
    """
    reasons: dict[str, str] = {}
    withheld = former
    # Without Avro, and as long as nothing is withheld, nobody looks into records here.
    tables = _Tables(batch, route, begin) if former.tables else None
    while True:
        skipped = tables.indexes_of(withheld.tables) if tables is not None else set()
        try:
            shares = whole(batch, begin, route, schemas, skipped)
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
                shares.append(records.share(place, parts))
            return Divided(shares, withheld, reasons)


def whole(
    batch: Batch, begin: int, route: SourceRoute, schemas: SchemaIds, skipped: Collection[int] = ()
) -> list[Share]:
    """Return all of a batch from a record on, but for those `skipped`, by topic and partition.

    Raises CorruptInput, and, for records in Avro, what keeps their schemas from being registered.
    """
    if batch.written:
        return sharing_out.shares(batch, begin, route, schemas, skipped)
    return partitioner.shares(batch, begin, route.topic, route.partitions, route.tables, skipped)


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
        return [(table, self._batch.part(part)) for table in there for part in self._bounded(self._indexes[table])]

    def _bounded(self, indexes: list[int]) -> Iterator[list[int]]:
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
