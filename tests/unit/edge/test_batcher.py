"""Batches: cut before a change, chained by position, and what each of them lets the source discard."""

import random

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.batcher import Batcher
from headrace.errors import CorruptInput, NeedsOperator
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
    truncate,
)

TABLE = relation(Column("id", INT8, key=True), Column("note"))
START = Position.start(EPOCH)
#: The smallest batches that there are: 16 KB of rows.
SMALL = 1


def shape(batches):
    """For each batch, its records: `s` for a schema record, `.` for a change, `!` for the last change of a transaction."""
    marks = []
    for batch in batches:
        marks.append("")
        for record in records(opened(batch)):
            last = record.value.get("transaction", {}).get("last")
            marks[-1] += "s" if "op" not in record.value else "!" if last else "."
    return marks


def values_of(batch):
    """Size of a batch's values, in bytes."""
    return sum(len(value or b"") for value in opened(batch).values)


def many(count, size):
    return [insert(number, "x" * size) for number in range(count)]


class TestCut:
    def test_a_batch_is_cut_before_it_grows_beyond_its_limit(self):
        log = Log(target_bytes=SMALL)
        log.transaction(TABLE, *many(100, 1000))
        batches = log.sealed()
        assert len(batches) > 5
        assert all(values_of(batch) <= 16 * 1024 for batch in batches)
        # and not long before
        assert all(values_of(batch) > 14 * 1024 for batch in batches[:-1])

    def test_what_is_open_is_counted(self):
        log = Log()
        assert log.batcher.open_bytes == 0
        log.transaction(TABLE, *many(3, 10_000))
        assert 30_000 < log.batcher.open_bytes < 33_000
        log.sealed()
        assert log.batcher.open_bytes == 0

    def test_the_last_change_is_never_cut_off_before_its_commit(self):
        log = Log(target_bytes=SMALL)
        log.transaction(TABLE, insert(1, "x"), insert(2, "x" * 16_000), insert(3, "x" * 16_000))
        assert shape(log.sealed()) == ["s.", ".", "!"]

    def test_a_huge_record_stands_alone(self):
        log = Log(target_bytes=SMALL)
        log.transaction(TABLE, insert(1, "x"), insert(2, "x" * 5_000_000), insert(3, "x"), insert(4, "x"))
        assert shape(log.sealed()) == ["s.", ".", ".!"]

    def test_a_record_that_no_bridge_would_take_is_an_operators_matter(self, monkeypatch):
        monkeypatch.setattr("edge.batcher.LARGEST_BODY", 1_000_000)
        log = Log()
        log.transaction(TABLE, insert(1, "x" * 990_000))
        assert len(log.sealed()) == 1
        log.transaction(insert(2, "x" * 1_000_000), commit_lsn=COMMIT + 100, end=END + 100)
        with pytest.raises(NeedsOperator, match=f"{COMMIT + 100:016x}/00000000") as error:
            log.sealed()
        assert error.value.hint
        assert "xx" not in error.value.message

    def test_a_huge_first_change_has_its_schema_record_with_it(self):
        log = Log(target_bytes=SMALL)
        log.transaction(TABLE, insert(1, "x" * 5_000_000), insert(2, "x"))
        assert shape(log.sealed()) == ["s.", "!"]

    def test_a_schema_record_is_in_the_batch_of_its_change(self):
        log = Log(target_bytes=SMALL)
        other = relation(Column("id", INT8, key=True), Column("note"), oid=2, table="other")
        log.transaction(TABLE, insert(1, "x" * 15_000), other, insert(2, "x" * 3_000, oid=2))
        batches = log.sealed()
        assert shape(batches) == ["s.", "s!"]
        assert [segment[1:] for segment in opened(batches[1]).segments] == [(1, 1), (1, 1)]

    def test_a_truncate_can_be_cut_between_its_tables(self):
        log = Log(target_bytes=SMALL)
        names = ["x" * 3_000 + str(number) for number in range(20)]
        tables = [relation(Column("id", INT8), oid=number, table=name) for number, name in enumerate(names)]
        log.transaction(*tables, truncate(*range(20)))
        batches = log.sealed()
        assert len(batches) > 3
        assert "".join(shape(batches)) == "s." * 19 + "s!"
        assert all(mark[0] == "s" for mark in shape(batches))

    def test_batches_that_shrink_well_grow_beyond_the_first_guess(self):
        log = Log(target_bytes=8 * 1024)
        log.transaction(TABLE, *many(2000, 500))
        batches = log.sealed()
        sizes = [batch.raw_bytes for batch in batches]
        assert sizes[0] <= 6 * 8 * 1024 * 1.1
        assert max(sizes) > 2 * sizes[0]
        assert all(len(batch.body) < 8 * 1024 for batch in batches)

    def test_batches_that_do_not_shrink_come_down_to_the_target(self):
        noise = random.Random(1)
        log = Log(target_bytes=32 * 1024)
        log.transaction(TABLE, *(insert(number, noise.randbytes(450).hex()) for number in range(1500)))
        bodies = [len(batch.body) for batch in log.sealed()]
        assert len(bodies) > 10
        assert max(bodies[len(bodies) // 2 : -1]) < 1.3 * 32 * 1024

    def test_no_target_makes_batches_of_more_than_four_megabytes(self):
        log = Log(target_bytes=10**9)
        log.transaction(TABLE, *many(60, 100_000))
        assert [batch.raw_bytes > 3_900_000 for batch in log.sealed()] == [True, False]
        log = Log(target_bytes=10**9)
        log.transaction(TABLE, *many(60, 100_000))
        assert max(batch.raw_bytes for batch in log.sealed()) <= 4 * 1024 * 1024 * 1.01


class TestSeal:
    def test_nothing_open_is_nothing_sealed(self):
        log = Log()
        assert log.batcher.seal() is None
        log.transaction()
        assert log.batcher.seal() is None

    def test_a_sealed_batch_says_what_is_in_it(self):
        log = Log()
        log.transaction(TABLE, insert(1, "a"), insert(2, "b"))
        (batch,) = log.sealed()
        assert (batch.follows, batch.last) == (START, Position(EPOCH, COMMIT, 1))
        assert (batch.count, batch.confirm, batch.commit_ms) == (3, END, COMMIT_MS)
        assert opened(batch).segments == [(COMMIT, 0, 1), (COMMIT, 0, 2)]
        assert batch.properties == {
            "version": 1,
            "source": "jakarta/bank",
            "follows": str(START),
            "first": str(Position(EPOCH, COMMIT, 0)),
            "last": str(Position(EPOCH, COMMIT, 1)),
            "count": 3,
        }

    def test_within_a_transaction_nothing_is_sealed_so_its_last_change_can_still_say_so(self):
        log = Log()
        log.transaction(TABLE, insert(1, "a"))
        log.feed(begin(COMMIT + 1), insert(2, "b"), insert(3, "c"))
        # when
        assert log.batcher.seal() is None
        log.feed(insert(4, "d"))
        assert log.batcher.seal() is None
        log.feed(commit(COMMIT + 1, END + 1))
        # then
        assert shape(log.sealed()) == ["s!..!"]

    def test_the_body_tells_its_size_before_it_is_unpacked(self):
        log = Log()
        log.transaction(TABLE, *many(50, 100))
        (batch,) = log.sealed()
        assert zstandard.frame_content_size(batch.body) >= batch.raw_bytes > 50 * 100

    def test_batches_are_taken_once(self):
        log = Log(target_bytes=SMALL)
        log.transaction(TABLE, *many(40, 1000))
        assert log.batcher.take()
        assert log.batcher.take() == []

    def test_an_ordinal_beyond_the_text_form_is_refused(self):
        log = Log()
        log.feed(begin(), TABLE, insert(1, "a"))
        log.decoder._ordinal = log.batcher._ordinal = 1 << 32
        log.feed(insert(2, "b"), commit())
        with pytest.raises(CorruptInput, match="out of range"):
            log.batcher.seal()


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
    for batch, found in zip(batches, everything, strict=True):
        transactions_in = len({record.position.commit for record in found})
        assert (
            values_of(batch) <= 16 * 1024 + ends_with * transactions_in
            or sum("op" in record.value for record in found) == 1
        )
    # and confirms exactly what it completes
    for batch in batches:
        for end, last in ends:
            if last is not None and end <= batch.confirm:
                assert last <= batch.last
            if last is not None and batch.follows < last <= batch.last:
                assert end <= batch.confirm
