"""One moment of the database, at which a table without a key is copied: held by a transaction that reads nothing itself.

Chunks are ranges of places in the table, each read in a short transaction with the moment's snapshot: so no lock is held for
longer than a chunk. What the held transaction costs is that the server cannot remove rows that became old since then.
"""

import logging
import re
import time
from dataclasses import dataclass
from typing import Any

from edge.postgres.connection import Database
from edge.postgres.snapshot_table import SnapshotTable, literal
from edge.postgres.visibility import Seen
from edge.snapshot.plan import Key
from edge.snapshot.ports import Chunk, MomentGone
from headrace.configuration.edge import Postgresql
from headrace.errors import NotConnected, ReplicationError, Retryable

_log = logging.getLogger(__name__)

#: The holder is idle while chunks are read and sent, which may take hours.
_SETTINGS = "set idle_in_transaction_session_timeout = 0; set lock_timeout = '10s'"
_BEGIN = "begin isolation level repeatable read, read only"
_SNAPSHOT = "select pg_export_snapshot(), pg_current_snapshot()::text"
#: Blocks that the table has: every row of the moment is in one of them.
_BLOCKS = "select pg_relation_size(%s::int8::oid, 'main') / current_setting('block_size')::int8"
#: Rows in a block, until it was seen how many there are.
_ROWS_PER_BLOCK = 50.0
_MOST_BLOCKS = 16_384
_PLACE = re.compile(rb"\((\d+),(\d+)\)")
#: A chunk is ordered by place whatever the server chooses.
_ORDERED = "set local synchronize_seqscans = off; set local max_parallel_workers_per_gather = 0"


@dataclass(kw_only=True)
class _Progress:
    blocks: int
    rows_per_block: float = _ROWS_PER_BLOCK


class Moment:
    """A moment, from its beginning until it is left; used by the snapshot's thread alone."""

    def __init__(self, config: Postgresql, source: str, table: SnapshotTable) -> None:
        self._holder = Database(config, source)
        self._began = time.monotonic()
        try:
            self._holder.rows(_SETTINGS)
            self._holder.rows(_BEGIN)
            self._name, self.seen = self._holder.rows(_SNAPSHOT)[0]
            self._progress = _Progress(blocks=int(self._holder.value(_BLOCKS, table.oid)))
        except BaseException:
            self._holder.close()
            raise
        self._seen = Seen(self.seen)
        _log.info("a table without a key is copied: a transaction of the database stays open until that has ended")

    def chunk(self, reader: Database, table: SnapshotTable, after: Key | None, count: int, limit_bytes: int) -> Chunk:
        """Return the next rows by their places, about so many, fewer when they grow beyond a size.

        Raises MomentGone when the moment cannot be read any more, or the table is not what it was.
        """
        first = after[0] if after is not None else "(0,0)"
        block = int(first[1:].partition(",")[0])
        progress = self._progress
        before = block + max(1, min(_MOST_BLOCKS, int(count / progress.rows_per_block)))
        found, size, whole = self._copied(reader, table, table.select_between(first, before), limit_bytes)
        # The place of each is ahead of it.
        rows = [row.partition(b"\t")[2] for row in found]
        if whole:
            seen = (before - block) or 1
            progress.rows_per_block = max(len(rows) / seen, progress.rows_per_block / 8, 0.01)
        following = f"({before},0)" if whole else _behind(found[-1].partition(b"\t")[0])
        return Chunk(
            table=table,
            rows=rows,
            size=size,
            last=[following],
            end=whole and before >= progress.blocks,
            seen=self.seen if after is None else None,
            lacks=self._seen.lacks if after is None else None,
        )

    def _copied(
        self, reader: Database, table: SnapshotTable, statement: str, limit_bytes: int
    ) -> tuple[list[bytes], int, bool]:
        try:
            reader.rows(_BEGIN)
            reader.rows(f"set transaction snapshot {literal(self._name)}")
            self._check(reader, table)
        except ReplicationError as error:
            raise MomentGone(f"rows without a key are of one moment, and {error.message}") from error
        reader.rows(_ORDERED)
        try:
            copied = reader.copied(statement, limit_bytes)
            reader.rows("rollback")
        except (NotConnected, Retryable) as error:
            raise MomentGone(f"rows without a key are of one moment, and {error.message}") from error
        try:
            self._check(reader, table)
        except Retryable as error:
            raise MomentGone(error.message) from error
        return copied

    def leave(self) -> None:
        """End the transaction."""
        self._holder.close()
        _log.info("the transaction that held the copied moment has ended, after %.0f s", time.monotonic() - self._began)

    @staticmethod
    def _check(reader: Database, table: SnapshotTable) -> None:
        if not table.is_still(reader):
            raise Retryable("a table was altered or its publication changed since it was described")


def _behind(place: bytes) -> str:
    match: Any = _PLACE.fullmatch(place)
    return f"({int(match[1])},{int(match[2]) + 1})"
