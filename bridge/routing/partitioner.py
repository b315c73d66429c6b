"""Which of a source's partitions, and of its topics, a record goes to. Frozen: another hash would break the order of every key.

One partition takes all, in commit order. With several, a record goes to `partitions[crc32(key) % len(partitions)]`, so a key
keeps its order; a record without a key goes to the first; a schema record goes to all, so that in each it is ahead of the changes
that it describes, and so does the mark of a table's copy. A source owns the same partitions in each of its topics. Called by a
lane.

A record in Avro names what it was written with, which names its table; it gets the registry's id. Its key is shared out by the
bytes after the id: a key keeps its partition when an id changes. What is JSON in such a batch is about no table, and goes to the
stream's own topic.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple
from zlib import crc32

from bridge.model.ports import Share
from bridge.model.route import SourceRoute, TableRouter
from bridge.routing.registered_schemas import SchemaIds, find_needed
from headrace.batch import AVRO_MARK, Batch, Segment, WrittenWith
from headrace.errors import CorruptInput, NeedsOperator
from headrace.registry.client import Incompatible
from headrace.schema import COPY_MARK_HEAD


def share_out_whole(
    batch: Batch, begin: int, route: SourceRoute, schemas: SchemaIds, skipped: Collection[int] = ()
) -> list[Share]:
    """Return all of a batch from a record on, but for those `skipped`, by topic and partition.

    Raises CorruptInput, and, for records in Avro, what keeps their schemas from being registered.
    """
    if batch.written:
        return share_out_avro(batch, begin, route, schemas, skipped)
    return share_out(batch, begin, route.topic, route.partitions, route.tables, skipped)


def share_out(
    batch: Batch,
    index: int,
    topic: str,
    partitions: Sequence[int],
    tables: TableRouter | None = None,
    skipped: Collection[int] = (),
) -> list[Share]:
    """Return what of the batch, from record `index` on, goes to which partition of which topic.

    Args:
        batch: whose records are shared out.
        index: of the first that is.
        topic: the stream's own.
        partitions: those that the source owns.
        tables: where a table's records go, if not there.
        skipped: the indexes of records that go nowhere; only with `tables`.

    Raises CorruptInput for a record that does not name its table.
    """
    if tables is None and len(partitions) == 1:
        keys, values = batch.keys, batch.values
        headers = {at - index: given for at, given in batch.headers.items() if at >= index} or None
        return [
            Share(topic, partitions[0], keys[index:] if index else keys, values[index:] if index else values, headers)
        ]
    split: dict[tuple[str, int], Share] = {}
    ahead = {number for number in find_joined(batch.segments) if batch.keys[number] is None}
    home = topic
    for number in range(index, len(batch)):
        if number in skipped:
            continue
        key, value = batch.keys[number], batch.values[number]
        if number in ahead or (key is None and value is not None and value.startswith(COPY_MARK_HEAD)):
            owners, at = partitions, topic
        else:
            owners = (partitions[crc32(key) % len(partitions)] if key is not None else partitions[0],)
            # A tombstone goes where its delete went, which is right before it.
            if tables is not None and value is not None:
                home = tables.topic_of(key, value)
            at = home
        for owner in owners:
            share = split.get((at, owner))
            if share is None:
                share = split[at, owner] = Share(at, owner, [], [], {} if batch.headers else None)
            if share.headers is not None and number in batch.headers:
                share.headers[len(share.keys)] = batch.headers[number]
            share.keys.append(key)
            share.values.append(value)
    return list(split.values())


def find_joined(segments: list[Segment]) -> Iterator[int]:
    """Yield the indexes of records that have a segment of their own and the position of the record after them.

    Those without a key are schema records; with one, deletes that a tombstone follows, or beginnings of transactions.
    """
    index = 0
    for (commit, ordinal, count), after in pairwise(chain(segments, [(0, 0, 0)])):
        if count == 1 and after[:2] == (commit, ordinal):
            yield index
        index += count


class TableRefused(NeedsOperator):
    """The registry refuses the schema of a table that has a topic of its own: its records can be withheld."""

    def __init__(self, table: str, error: Incompatible) -> None:
        super().__init__(error.message, hint=error.hint)
        #: `schema.table`.
        self.table = table


class Target(NamedTuple):
    """Where a table's records go, and what they begin with there."""

    topic: str
    key: bytes
    value: bytes


class Targets:
    """The targets of one batch's records, each looked up when it is first needed."""

    def __init__(self, written: list[WrittenWith], schemas: SchemaIds, route: SourceRoute) -> None:
        self._written = {each.mark: each for each in written}
        self._schemas, self._route = schemas, route
        self._known: dict[tuple[bytes, bool], Target] = {}

    def of(self, head: bytes, *, has_key: bool) -> Target:
        """Return the target of records that begin with five bytes.

        Raises errors as `RegisteredSchemas.ids` does, TableRefused, and CorruptInput for what the batch does not name.
        """
        target = self._known.get((head, has_key))
        if target is not None:
            return target
        written = self._written.get(head)
        if written is None:
            raise CorruptInput("a record in Avro does not name what it was written with")
        route = self._route
        topics = (route.topic,) * 2 if route.tables is None else route.tables.topics_of(written.schema, written.table)
        topic = topics[not has_key]
        needed = find_needed(topic, written, route.prefix, route.compatibility, of_one_table=topic != route.topic)
        try:
            ids = self._schemas.ids(needed)
        except Incompatible as error:
            if topic == route.topic or not route.withheld:
                raise
            raise TableRefused(written.name, error) from error
        heads = (AVRO_MARK + number.to_bytes(4, "big") for number in (ids.key or 0, ids.value))
        target = self._known[head, has_key] = Target(topic, *heads)
        return target


def _of_one_table(batch: Batch, index: int, partition: int, targets: Targets) -> Share | None:
    """Return the records of a batch whose records are all of one table, with keys; None for any other batch."""
    keys, values = batch.keys[index:], batch.values[index:]
    heads = {value and value[:5] for value in values}
    if len(heads) != 1 or batch.headers or not all(keys) or not (head := heads.pop()) or head[:1] != AVRO_MARK:
        return None
    target = targets.of(head, has_key=True)
    return Share(
        target.topic,
        partition,
        [target.key + key[5:] for key in keys if key is not None],
        [target.value + value[5:] for value in values if value is not None],
    )


def share_out_avro(  # noqa: C901 - a case for each kind of record.
    batch: Batch, index: int, route: SourceRoute, schemas: SchemaIds, skipped: Collection[int] = ()
) -> list[Share]:
    """Return what of the batch goes to which partition of which topic, from record `index` on but for those `skipped`.

    Raises errors as `Targets.of`.
    """
    targets = Targets(batch.written, schemas, route)
    partitions = route.partitions
    if (
        len(partitions) == 1
        and not skipped
        and (share := _of_one_table(batch, index, partitions[0], targets)) is not None
    ):
        return [share]
    split: dict[tuple[str, int], Share] = {}
    ahead = {number for number in find_joined(batch.segments) if batch.keys[number] is None}
    for number in range(index, len(batch)):
        if number in skipped:
            continue
        key, value = batch.keys[number], batch.values[number]
        # A tombstone has its delete's key.
        head = (value if value is not None else key or b"")[:5]
        topic, owners = route.topic, partitions
        if head[:1] == AVRO_MARK:
            target = targets.of(head, has_key=key is not None)
            topic = target.topic
            owners = (partitions[crc32(key[5:]) % len(partitions)] if key is not None else partitions[0],)
            key = None if key is None else target.key + key[5:]
            value = None if value is None else target.value + value[5:]
        elif key is not None and key[:1] == AVRO_MARK:
            raise CorruptInput("a key is marked as Avro, and its value is not")
        elif number not in ahead and not (key is None and (value or b"").startswith(COPY_MARK_HEAD)):
            owners = (partitions[crc32(key) % len(partitions)] if key is not None else partitions[0],)
            if route.tables is not None:
                topic = route.tables.topic_of_no_table(value or b"")
        for owner in owners:
            share = split.get((topic, owner))
            if share is None:
                share = split[topic, owner] = Share(topic, owner, [], [], {} if batch.headers else None)
            if share.headers is not None and number in batch.headers:
                share.headers[len(share.keys)] = batch.headers[number]
            share.keys.append(key)
            share.values.append(value)
    return list(split.values())
