"""Batches are a chain, empty ones too, and each says what it lets the source discard."""

from hypothesis import given, settings
from hypothesis import strategies as st

from edge.records.batcher import Batcher
from headrace.position import Position
from tests.unit.edge.postgres.messages import (
    COMMIT,
    COMMIT_MS,
    END,
    EPOCH,
    INT8,
    OID,
    Column,
    Log,
    begin,
    commit,
    insert,
    opened,
    records,
    relation,
)
from tests.unit.edge.records.batches import SMALL, START, TABLE, many, values_of


class TestEmpty:
    def test_an_empty_batch_stands_at_the_tail(self):
        log = Log()
        log.transaction(TABLE, insert(1, "a"))
        log.sealed()
        empty = log.batcher.empty()
        tail = Position(EPOCH, COMMIT, 0)
        assert (empty.follows, empty.last, empty.count, empty.confirm, empty.commit_ms) == (tail, tail, 0, 0, 0)
        assert opened(empty).segments == []

    def test_it_does_not_move_the_chain(self):
        log = Log()
        log.batcher.empty()
        log.transaction(TABLE, insert(1, "a"))
        (batch,) = log.sealed()
        assert batch.follows == START

    def test_figures_travel_with_every_batch(self):
        read = iter(range(9))
        batcher = Batcher(source="a/b", tail=START, figures=lambda: {"read_lsn": next(read)})
        assert [opened(batcher.empty()).figures for _ in range(2)] == [{"read_lsn": 0}, {"read_lsn": 1}]


class TestConfirm:
    def test_a_batch_that_ends_within_a_transaction_confirms_those_before_it(self):
        log = Log(target_bytes=SMALL)
        log.transaction(TABLE, insert(1, "a"))
        log.transaction(*many(30, 1000), commit_lsn=COMMIT + 100, end=END + 100)
        batches = log.sealed()
        assert [batch.confirm for batch in batches] == [END, *[0] * (len(batches) - 2), END + 100]

    def test_a_transaction_without_changes_is_confirmed_with_what_is_open(self):
        log = Log()
        log.transaction(TABLE, insert(1, "a"))
        log.transaction(commit_lsn=COMMIT + 100, end=END + 100)
        (batch,) = log.sealed()
        assert batch.confirm == END + 100

    def test_the_commit_time_is_that_of_the_last_change_inside(self):
        log = Log(target_bytes=SMALL)
        batcher = log.batcher
        log.transaction(TABLE, insert(1, "x" * 15_000))
        later = begin(COMMIT + 100)[:9] + (int.from_bytes(begin()[9:17]) + 5_000_000).to_bytes(8) + begin()[17:]
        log.feed(later, insert(2, "x" * 15_000), commit(COMMIT + 100, END + 100))
        first, second = [*batcher.take(), batcher.seal()]
        assert (first.commit_ms, second.commit_ms) == (COMMIT_MS, COMMIT_MS + 5_000)


TRANSACTIONS = st.lists(
    st.tuples(st.lists(st.sampled_from([0, 10, 4_000, 9_000, 20_000]), max_size=8), st.booleans()), max_size=8
)


@given(TRANSACTIONS, st.integers(0, 1))
@settings(max_examples=60)
def test_however_it_is_cut_the_chain_holds_and_nothing_is_confirmed_early(transactions, tables):
    # given transactions of changes of many sizes, some of them followed by a seal
    log = Log(target_bytes=SMALL)
    batches, ends = [], []
    expected = []
    for number, (sizes, seal) in enumerate(transactions):
        at, end = COMMIT + 100 * number, COMMIT + 100 * number + 50
        log.feed(begin(at))
        for ordinal, size in enumerate(sizes):
            oid = OID + (ordinal % 2 if tables else 0)
            log.feed(relation(Column("id", INT8, key=True), Column("note"), oid=oid, table=f"t{oid}"))
            log.feed(insert(ordinal, "x" * size, oid=oid))
            expected.append((Position(EPOCH, at, ordinal), "x" * size, ordinal == len(sizes) - 1))
        log.feed(commit(at, end))
        ends.append((end, Position(EPOCH, at, len(sizes) - 1) if sizes else None))
        if seal:
            batches += log.sealed()
    batches += log.sealed()
    # then the batches are a chain
    assert [batch.follows for batch in batches] == [START, *(batch.last for batch in batches)][: len(batches)]
    # and hold every change once, in order, the last of each transaction marked
    everything = [list(records(opened(batch))) for batch in batches]
    assert [
        (record.position, record.value["after"]["note"], "last" in record.value["transaction"])
        for batch in everything
        for record in batch
        if "op" in record.value
    ] == expected
    # and no batch ends with a schema record
    assert all("op" in batch[-1].value for batch in everything)
    # and none is larger than it may be, but for what the last change of a transaction says of itself afterwards, unless one
    # change alone makes it so
    ends_with = len(b',"last":true')
    for batch, each in zip(batches, everything, strict=True):
        transactions_in = len({record.position.commit for record in each})
        assert (
            values_of(batch) <= 16 * 1024 + ends_with * transactions_in
            or sum("op" in record.value for record in each) == 1
        )
    # and confirms exactly what it completes
    for batch in batches:
        for end, last in ends:
            if last is not None and end <= batch.confirm:
                assert last <= batch.last
            if last is not None and batch.follows < last <= batch.last:
                assert end <= batch.confirm
