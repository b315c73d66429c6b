"""One table's snapshot under way: what is to be read next, what was sent, and how far it is acknowledged. Sans-I/O.

Assumes that chunks are sent in the order in which they were read, and acknowledged in that order. An attempt begins where the
plan notes that the one before it was acknowledged.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from edge.snapshot.plan import Key, TablePlan
from edge.snapshot.ports import Chunk, Put, Reader
from headrace.position import Position

#: Keys that are read once more in one chunk, at most: fewer where their rows are large.
_MOST_AGAIN = 1_000
#: How fast the rate follows what is seen.
_WEIGHT = 0.2


class _Sent(NamedTuple):
    """A chunk in flight, and where the plan is when it is acknowledged."""

    position: Position | None
    rows: int
    cursor: Key | None
    whole: bool
    #: How many chunks it is: the mark of a copy is none.
    chunks: int
    #: Keys that were read once more, and keys that have to be.
    done: list[Key]
    again: list[Key]


class TableCopy:
    """An attempt at a table, from where the plan is; of one that was cancelled or failed only the end is to be marked."""

    def __init__(self, plan: TablePlan, table: Any, aim_bytes: int, *, of_moment: bool = False) -> None:
        self.plan = plan
        self.table = table
        self._cursor, self._whole, self._again = plan.cursor, plan.whole, list(plan.again)
        self._to_read: list[Key] = []
        self._most_again = _MOST_AGAIN
        # The keys of a list of rows that are read once more.
        self._noted_in: list[Key] = []
        self._noted: set[tuple[str, ...]] = set()
        self._sent: deque[_Sent] = deque()
        self._size = ChunkSize(aim_bytes)
        self._settled_at = time.monotonic()
        #: Whether all chunks are of one moment, as those of a table without a key, which begins where the first one is put.
        self.of_moment = of_moment
        #: Whether consumers still need the truncate that empties the table.
        self.replaces = plan.replace and plan.is_at_first_row and plan.unfinished
        #: Whether the beginning still has to be marked.
        self.begins = plan.is_of_whole_table and plan.is_at_first_row and plan.unfinished
        self._is_abandoned = not plan.unfinished
        # Whether the end was marked behind all that was sent, or need not be: its beginning was not.
        self._end_marked = not plan.marks_open

    @property
    def unacknowledged(self) -> int:
        """How many chunks are in flight."""
        return sum(sent.chunks for sent in self._sent)

    @property
    def all_read(self) -> bool:
        """Whether nothing is left to be read."""
        return self._is_abandoned or (self._whole and not self._again)

    @property
    def ends(self) -> bool:
        """Whether only the end still has to be marked."""
        return self.all_read and not self._end_marked and not self._sent

    @property
    def finished(self) -> bool:
        """Whether everything is acknowledged."""
        if self._sent or not self._end_marked:
            return False
        return self._is_abandoned or (self.all_read and self.plan.whole and not self.plan.again)

    def next(self) -> Callable[[Reader], Chunk]:
        """Return the job that reads the next chunk."""
        plan, table, size, after = self.plan, self.table, self._size, self._cursor
        if not self._whole:
            rows, limit = size.rows, size.limit_bytes
            return lambda reader: reader.rows(table, plan.where, after, rows, limit)
        self._to_read, self._again = self._again[: self._most_again], self._again[self._most_again :]
        keys, limit = self._to_read, size.limit_bytes
        return lambda reader: reader.read_keys(table, plan.where, keys, limit)

    def redo(self) -> None:
        """Let the chunk that was read last be read again."""
        self._again, self._to_read = self._to_read + self._again, []

    def read(self, chunk: Chunk) -> Callable[[Put], None]:
        """Go on behind a chunk; call what this returns with what became of it."""
        keys, unread, self._to_read = self._to_read[: chunk.keys], self._to_read[chunk.keys :], []
        if keys:
            self._again = unread + self._again
            self._most_again = len(keys) if unread else min(_MOST_AGAIN, self._most_again * 2)
        else:
            self._size.read(len(chunk.rows), chunk.size)
            self._cursor, self._whole = chunk.last or self._cursor, chunk.end
        cursor, whole, rows = self._cursor, self._whole, 0 if keys else len(chunk.rows)

        def sent(put: Put) -> None:
            self._again += put.again
            self._sent.append(_Sent(put.position, rows, cursor, whole, 1, keys, put.again))

        return sent

    def replaced(self, position: Position) -> None:
        """Note that the truncate was written."""
        self.replaces = False
        self._sent.append(_Sent(position, 0, self._cursor, self._whole, 1, [], []))

    def marked(self, position: Position, *, end: bool) -> None:
        """Note that the beginning or the end was marked."""
        if end:
            self._end_marked = True
        else:
            self.begins = False
        self._sent.append(_Sent(position, 0, self._cursor, self._whole, 0, [], []))

    def moved(self, key: Key) -> None:
        """Let a row be read once more."""
        # The list is another one whenever rows were read.
        if self._noted_in is not self._again or len(self._noted) != len(self._again):
            self._noted_in, self._noted = self._again, set(map(tuple, self._again))
        if tuple(key) not in self._noted:
            self._again.append(key)
            self._noted.add(tuple(key))
            # The end is marked once more behind that row.
            self._end_marked = not self.plan.marks_open

    def settle(self, acknowledged: Position, now: float) -> bool:
        """Move the plan over the chunks that are acknowledged; return whether it moved."""
        moved, plan, rows = False, self.plan, 0
        while self._sent and (self._sent[0].position is None or self._sent[0].position <= acknowledged):
            sent = self._sent.popleft()
            plan.cursor, plan.whole = sent.cursor, sent.whole
            if sent.done or sent.again:
                # One that moved again since is still to be read.
                done = set(map(tuple, sent.done)).difference(map(tuple, self._again))
                keys = {tuple(key): key for key in plan.again if tuple(key) not in done}
                keys |= {tuple(key): key for key in sent.again if tuple(key) not in keys}
                plan.again = list(keys.values())
            plan.chunks += sent.chunks
            rows += sent.rows
            moved = True
        if moved:
            plan.rows += rows
            seconds = max(1e-3, now - self._settled_at)
            self._settled_at = now
            rate = rows / seconds
            plan.rows_per_second = round(rate * _WEIGHT + plan.rows_per_second * (1 - _WEIGHT), 1)
        return moved


#: Bounds, in rows. The upper one bounds how long a chunk holds up the stream behind it.
FEWEST, MOST = 100, 10_000
_FIRST = 1_000
#: A chunk is ended where it is when it grows beyond so many times the aim.
_TOO_MUCH = 2


class ChunkSize:
    """The aim for a table's chunks, in bytes, and the number of rows that should meet it."""

    def __init__(self, aim_bytes: int) -> None:
        self._aim = aim_bytes
        #: Rows to read next.
        self.rows = _FIRST
        #: Bytes at which a chunk is ended, however many rows were requested.
        self.limit_bytes = aim_bytes * _TOO_MUCH

    def read(self, rows: int, size: int) -> None:
        """Note what the last chunk had."""
        if rows:
            fitting = self._aim * rows // max(1, size)
            # It grows step by step: rows that are narrow so far are no measure for the next ones.
            self.rows = max(FEWEST, min(MOST, fitting, self.rows * 4))
