"""Batches: where they are cut, and when they are sealed."""

import random

import pytest
import zstandard

from headrace.errors import CorruptInput, NeedsOperator
from headrace.position import Position
from tests.unit.edge.postgres.messages import (
    COMMIT,
    COMMIT_MS,
    END,
    EPOCH,
    INT8,
    Column,
    Log,
    begin,
    commit,
    insert,
    opened,
    relation,
    truncate,
)
from tests.unit.edge.records.batches import SMALL, START, TABLE, many, shape, values_of


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
        monkeypatch.setattr("edge.records.batcher.LARGEST_BODY", 1_000_000)
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

    def test_headers_of_events_leave_batches_near_the_target(self):
        noise = random.Random(1)
        log = Log(target_bytes=32 * 1024, cloudevents=True)
        log.transaction(TABLE, *(insert(number, noise.randbytes(10).hex()) for number in range(20_000)))
        batches = log.sealed()
        sizes = [len(batch.body) for batch in batches[len(batches) // 2 : -1]]
        assert len(sizes) > 3
        assert 0.7 * 32 * 1024 < min(sizes) <= max(sizes) < 1.3 * 32 * 1024

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
        log.decoder._writer.ordinal = log.batcher._ordinal = 1 << 32
        log.feed(insert(2, "b"), commit())
        with pytest.raises(CorruptInput, match="out of range"):
            log.batcher.seal()
