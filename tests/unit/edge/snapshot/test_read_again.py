"""Rows that are read once more: bounded in bytes, noted once a round, and each key once."""

import pytest

from edge.snapshot.active_plan import ActivePlan, TableCopy
from edge.snapshot.chunk_reader import ChunkReader
from edge.snapshot.plan import LogTable, TablePlan
from edge.snapshot.ports import Put
from edge.snapshot.store import SnapshotStore
from headrace.position import Position

LIMIT = 2 << 20
ROW = 100_000


class Statements:
    def select_after(self, _where, _after, _count):
        raise AssertionError

    def select_keys(self, _where, keys):
        return keys


class Reader(ChunkReader):
    """A table of rows of 100 kB, of which a statement that grows beyond its limit is cancelled."""

    def __init__(self):
        super().__init__(None)
        self.largest = 0

    def _statements(self, _table):
        return Statements()

    def _check(self, _table):
        pass

    def _key_of(self, _table, row):
        return [row.decode()]

    def _run(self, _table, statement, limit_bytes):
        rows = [key[0].encode() for key in statement]
        fitting = min(len(rows), limit_bytes // ROW + 1)
        self.largest = max(self.largest, fitting * ROW)
        return rows[:fitting], fitting * ROW, fitting == len(rows), "1:1:"


@pytest.mark.parametrize("count", [1, 7, 500])
def test_rows_that_are_read_once_more_are_bounded_in_bytes_and_all_are_read(count):
    """G8: a thousand rows of a megabyte each were read at once, at each start."""
    keys = [[str(number)] for number in range(count)]
    copy = TableCopy(
        TablePlan(name="public.documents", state="running", whole=True, again=list(keys)), None, LIMIT // 2
    )
    reader, read = Reader(), []
    while not copy.all_read:
        chunk = copy.next()(reader)
        copy.read(chunk)(Put(Position(1, 1, 0), []))
        read += chunk.rows
    copy.settle(Position(1, 1, 0), 1.0)

    assert sorted(int(row) for row in read) == list(range(count))
    assert copy.plan.again == []
    assert reader.largest <= LIMIT + ROW


def test_a_row_that_alone_is_beyond_the_limit_is_read():
    """G8."""
    reader = Reader()
    assert reader.read_keys(None, None, [["1"], ["2"]], 10).rows == [b"1"]


def test_rows_that_move_are_written_once_a_round_and_noted_once(tmp_path):
    """G13: the whole plan was written for each row, and each key looked for in a list."""
    store = SnapshotStore(tmp_path, "a/b")
    active = ActivePlan(store, 1)
    active.plan.add_all(["public.documents"], where=None, replace=False, now_ms=1)
    table = active.plan.tables[0]
    table.state, table.log_table, table.cursor = "running", LogTable(1, ("id",)), ["5"]
    writes = []
    store.save, save = lambda plan: (writes.append(1), save(plan)), store.save
    for number in [*range(20_000), *range(20_000)]:
        active.moved(table, [str(number)])
    assert writes == []
    active.save_moved()
    active.save_moved()

    assert len(writes) == 1
    assert len(SnapshotStore(tmp_path, "a/b").plan().tables[0].again) == 20_000
