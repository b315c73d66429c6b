"""The judgement: every change exactly once, in commit order, whole, unaltered, in the source's own partition.

`check` returns differences in words, the first few of each kind; an empty list is the proof. It is given everything that the
source committed and everything that a `read_committed` consumer finds in the topic, and believes neither order nor counts.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, pairwise
from typing import Any, NamedTuple

from tests.history.records import Record
from tests.history.transactions import Change, Number, Row, Transaction, same

#: How many differences of one kind are written.
SHOWN = 5


class Difference(NamedTuple):
    """One thing that is not as it should be."""

    #: lost, doubled, foreign, order, partition, position, half, last, altered, schema or state.
    kind: str
    words: str


_Name = tuple[int, int]


def check(
    source: str,
    committed: Sequence[Transaction],
    topic: Iterable[Record],
    *,
    partition: int,
    keys: Mapping[str, tuple[str, ...]],
) -> list[Difference]:
    """Return how the topic's records of `source` differ from what it committed; nothing when they are the same."""
    records = [record for record in topic if record.source["name"] == source or record.partition == partition]
    results = [*_in_place(source, partition, records), *_schemas(records, keys)]
    everything = [record for record in records if not record.is_schema]
    results += _order(everything)
    own = {transaction.xid for transaction in committed if transaction.changes}
    # The copy of a table without a key begins with a truncate, in the transaction of its first chunk.
    copied = [it.is_copy or (it.value.get("op") == "t" and it.xid not in own) for it in everything]
    results += _chunks(list(compress(everything, copied)), committed)
    changes = [record for record, is_copied in zip(everything, copied, strict=True) if not is_copied]
    results += _counts(committed, changes)
    results += _boundaries(committed, changes)
    results += _contents(committed, changes, keys)
    return _first_of_each_kind(results)


def _first_of_each_kind(found: Iterable[Difference]) -> list[Difference]:
    reported: Counter[str] = Counter()
    shown = []
    for difference in found:
        reported[difference.kind] += 1
        if reported[difference.kind] <= SHOWN:
            shown.append(difference)
    return shown + [
        Difference(kind, f"{count - SHOWN} more differences of the kind '{kind}'")
        for kind, count in reported.items()
        if count > SHOWN
    ]


def _in_place(source: str, partition: int, records: Iterable[Record]) -> Iterable[Difference]:
    for record in records:
        if record.source["name"] != source:
            yield Difference("partition", f"{record} is of {record.source['name']}, in the partition of {source}")
        elif record.partition != partition:
            yield Difference("partition", f"{record} of {source} is not in its partition {partition}")


def _order(changes: Sequence[Record]) -> Iterable[Difference]:
    for before, after in pairwise(changes):
        if after.position <= before.position:
            yield Difference("order", f"{after} stands behind {before}")


def _chunks(copies: Sequence[Record], committed: Sequence[Transaction]) -> Iterable[Difference]:
    """Yield what is wrong with chunks of a snapshot: each is numbered from 0, and only its last row says that it is.

    One that a kill cut short has no last row; whether all rows came is for the state to tell (tests/history/state.py).
    """
    transactions = {transaction.xid for transaction in committed if transaction.changes}
    chunks: dict[tuple[int, ...], list[Record]] = {}
    for record in copies:
        chunks.setdefault(record.position[:2], []).append(record)
        if record.xid in transactions:
            yield Difference("foreign", f"{record} is a copied row within a transaction of the source's own")
        if record.value["before"] is not None or (record.is_copy and record.source["snapshot"] != "incremental"):
            yield Difference("altered", f"{record} is no copied row as records.md has it")
    for chunk in chunks.values():
        # Ahead of a truncate is the mark of the copy's beginning.
        first = 0 if chunk[0].is_copy else 1
        if [record.position[2] for record in chunk] != list(range(first, first + len(chunk))):
            yield Difference("half", f"the chunk that begins with {chunk[0]} has holes")
        if any(record.value["transaction"].get("last", False) for record in chunk[:-1]):
            yield Difference("last", f"the chunk that begins with {chunk[0]} has its mark of the last row too early")


def _name(record: Record) -> _Name:
    return record.xid, record.position[2]


def _counts(committed: Sequence[Transaction], changes: Sequence[Record]) -> Iterable[Difference]:
    expected = {
        (transaction.xid, ordinal): f"change {ordinal} of transaction {transaction.xid} ({change.op} {change.table})"
        for transaction in committed
        for ordinal, change in enumerate(transaction.changes)
    }
    counted = Counter(map(_name, changes))
    yield from (Difference("lost", f"{words} is not there") for name, words in expected.items() if not counted[name])
    for record in changes:
        name = _name(record)
        if name not in expected:
            yield Difference("foreign", f"{record} is nothing that the source committed")
        elif counted[name] > 1:
            yield Difference("doubled", f"{expected[name]} is there {counted[name]} times: {record}")
    # What is there on both sides is in one order.
    once = [name for name in dict.fromkeys(map(_name, changes)) if name in expected]
    wanted = [name for name in expected if counted[name]]
    for has, should in zip(once, wanted, strict=True):
        if has != should:
            yield Difference("order", f"{expected[has]} stands where {expected[should]} belongs")
            return


def _boundaries(committed: Sequence[Transaction], changes: Sequence[Record]) -> Iterable[Difference]:
    """Yield what is wrong with transactions as wholes: half of one, wrong flags, a position that cannot be its own."""
    groups: dict[int, list[Record]] = {}
    for record in changes:
        groups.setdefault(record.xid, []).append(record)
    behind = 0
    for transaction in committed:
        group = groups.get(transaction.xid, [])
        size = len(transaction.changes)
        if group and len({record.position[2] for record in group}) < size:
            yield Difference("half", f"transaction {transaction.xid} has {len(group)} records, it made {size} changes")
        for record in group:
            is_last = record.position[2] == size - 1
            if record.value["transaction"].get("last", False) is not is_last:
                yield Difference(
                    "last", f"{record} {'lacks' if is_last else 'wrongly has'} the mark of the last change"
                )
            # The commit record lies behind the last change and the commit before it.
            if not (behind <= record.position[1] and transaction.last_change < record.position[1] < transaction.end):
                yield Difference("position", f"{record} is not where transaction {transaction.xid} committed")
        if len({record.position[:2] for record in group}) > 1:
            yield Difference("position", f"transaction {transaction.xid} has more than one commit position")
        behind = transaction.end


def _contents(
    committed: Sequence[Transaction], changes: Sequence[Record], keys: Mapping[str, tuple[str, ...]]
) -> Iterable[Difference]:
    expected = {
        (transaction.xid, ordinal): (transaction, change)
        for transaction in committed
        for ordinal, change in enumerate(transaction.changes)
    }
    for record in changes:
        if _name(record) in expected:
            transaction, change = expected[_name(record)]
            for what in _altered(record, transaction, change, keys.get(change.table, ())):
                yield Difference("altered", f"{record} has another {what}")


def _altered(record: Record, transaction: Transaction, change: Change, key: tuple[str, ...]) -> Iterable[str]:
    value = record.value
    commit, ordinal = record.position[1:]
    said: dict[str, tuple[Any, Any]] = {
        "table": (record.table, change.table),
        "operation": (value["op"], change.op),
        "unchanged columns": (sorted(value.get("unchanged", [])), sorted(change.unchanged)),
        "commit time": (record.source["ts_ms"], Number(str(transaction.commit_ms))),
        "LSN": (record.source["lsn"], Number(str(commit))),
        "transaction id": (value["transaction"]["id"], f"{transaction.xid}:{commit}"),
        "order in its transaction": (value["transaction"]["total_order"], Number(str(ordinal + 1))),
    }
    yield from (f"{what}: {has!r}, not {should!r}" for what, (has, should) in said.items() if has != should)
    before = value["before"]
    before = {name: held for name, held in before.items() if held is not None} if before is not None else None
    row = change.new if change.new is not None else change.old
    rows: dict[str, tuple[Row | None, Row | None]] = {
        "new row": (value["after"], change.new),
        "old row": (before, change.old),
        "key": (record.key, {name: row[name] for name in key} if key and row is not None else None),
    }
    for what, (has, should) in rows.items():
        yield from (f"{what}: {words}" for words in _unlike(has, should))


def _unlike(has: Row | None, should: Row | None) -> Iterable[str]:
    if has is None or should is None:
        if has is not should:
            yield f"{has!r}, not {should!r}"
        return
    for name in dict.fromkeys([*should, *has]):
        if name not in has or name not in should or not same(has[name], should[name]):
            yield f"{name} is {has.get(name, 'absent')!r}, not {should.get(name, 'absent')!r}"


def _schemas(records: Sequence[Record], keys: Mapping[str, tuple[str, ...]]) -> Iterable[Difference]:
    """Yield changes without a schema ahead of their table's first, and schemas that stand elsewhere or say something else."""
    described: dict[str, set[str]] = {}
    for place, record in enumerate(records):
        if record.is_schema:
            (change,) = record.value["tableChanges"]
            described[record.table] = {column["name"] for column in change["table"]["columns"]}
            if tuple(change["table"]["primaryKeyColumnNames"]) != keys.get(record.table, ()):
                yield Difference("schema", f"{record} names another key of {record.table}")
            if record.is_mark:
                continue
            follower = records[place + 1] if place + 1 < len(records) else None
            if follower is None or (follower.position, follower.table) != (record.position, record.table):
                yield Difference("schema", f"{record} does not go ahead of the change at its position")
        elif record.table not in described:
            yield Difference("schema", f"{record} comes before any schema of {record.table}")
        elif not set(record.value["after"] or ()) <= described[record.table]:
            yield Difference("schema", f"{record} has columns that the schema of {record.table} does not")
