"""Which transactions readers of the database see: those decoded and not seen yet, and the moment at which a table is copied.

PostgreSQL writes a commit into the log before readers see it, and with synchronous replication it waits for standbys between
the two, for any time, while the log is streamed. A chunk of a snapshot that lacks such a transaction has older rows than the
stream had before it. So transactions are kept here until a snapshot was seen to have them, however many follow them, whether
sessions are lost meanwhile, and, by the checkpoint, over restarts of the edge. Numbers have 64 bits, as `xid8` does.

A moment, at which a table without a key is copied, is held by a transaction that reads nothing itself. Chunks are ranges of
places in the table, each read in a short transaction with the moment's snapshot: so no lock is held for longer than a chunk.
What the held transaction costs is that the server cannot remove rows that became old since then.
"""

import logging
import re
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from edge.postgres.connection import Database
from edge.postgres.key_order import literal
from edge.postgres.snapshot_table import SnapshotTable
from edge.snapshot.plan import Key
from edge.snapshot.ports import Chunk, MomentGone
from headrace.configuration.edge import Postgresql
from headrace.errors import NotConnected, ReplicationError, Retryable

#: So many transactions, in addition to those that were hidden at the last look, make another look due.
_DUE = 4096
#: A look may take so long, in seconds: the thread that waits for it also reads the log.
_LOOK_SECONDS = 10.0

_SNAPSHOT = "select pg_current_snapshot()::text"
#: Every transaction that has a number and has not ended for readers holds a lock of its own; a prepared one without a process.
_RUNNING = """
select pg_current_snapshot()::text, array(
    select l.transactionid::text::int8 from pg_locks l
    left join pg_stat_activity a using (pid)
    left join pg_prepared_xacts p on p.transaction = l.transactionid
    where l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.granted
    and coalesce(a.datname, p.database, current_database()) = current_database()
)
"""


class Seen:
    """What a snapshot sees, from `xmin:xmax:xip,...` as pg_current_snapshot prints it."""

    def __init__(self, snapshot: str) -> None:
        _, end, running = snapshot.split(":")
        #: The first transaction that had not ended, nor any after it.
        self.end = int(end)
        self._running = {int(xid) for xid in running.split(",") if xid}

    def lacks(self, xid: int) -> bool:
        """Whether a transaction that is committed is not visible to the snapshot."""
        return xid >= self.end or xid in self._running


class Unseen:
    """The transactions of one source that no snapshot was seen to have; for the capturing thread alone."""

    def __init__(self) -> None:
        self._xids: set[int] = set()
        # A number that is near those that come, by which the log's 32 bits become 64.
        self._near = 0
        self._due = _DUE
        self._database: Database | None = None
        self._timeline = 0
        #: Whether a look failed: nothing leaves the list until another session begins, so none may be added for long.
        self.lost = False

    def begin(self, database: Database, timeline: int, transactions: Iterable[int]) -> None:
        """Go on with a connection of a new session, whose checkpoint knows these transactions to be unseen."""
        if timeline != self._timeline:
            # A standby that was promoted has applied all of its log: readers see every commit in it.
            self._xids.clear()
        self._database, self._timeline, self.lost = database, timeline, False
        self._xids.update(transactions)
        self._look(database)

    def add(self, xid: int) -> int:
        """Keep a transaction that is decoded, by the lower 32 bits of its number; return all of it."""
        self._near = full = near(xid, self._near)
        self._xids.add(full)
        return full

    @property
    def xids(self) -> tuple[int, ...]:
        """All of them, in order."""
        return tuple(sorted(self._xids))

    @property
    def is_look_due(self) -> bool:
        """Whether there are so many that most of them will have become visible."""
        return len(self._xids) > self._due

    def look(self) -> tuple[int, ...]:
        """Drop what readers see by now, and return the rest in order; where the server cannot be queried, all are the rest."""
        if self._xids and self._database is not None:
            try:
                self._look(self._database)
            except ReplicationError:
                # This connection is of no more use. Who reads the log ends the session, and the next one has another.
                self._database, self.lost = None, True
        return self.xids

    def _look(self, database: Database) -> None:
        seen = Seen(database.value_within(_LOOK_SECONDS, _SNAPSHOT))
        self._near = max(seen.end, 1)
        self._xids = {xid for xid in self._xids if seen.lacks(xid)}
        self._due = len(self._xids) + _DUE


def near(xid: int, reference: int) -> int:
    """Return the number with these lower 32 bits that is nearest to a reference of 64."""
    distance = (xid - reference) & 0xFFFFFFFF
    return reference + (distance if distance < 1 << 31 else distance - (1 << 32))


def hidden(snapshot: str, xids: Collection[int]) -> bool:
    """Whether a snapshot does not see one of these transactions."""
    if not xids:
        return False
    seen = Seen(snapshot)
    return any(seen.lacks(xid) for xid in xids)


def running(database: Database) -> tuple[int, ...]:
    """Return the transactions that readers do not see now and that may be committed in the log already."""
    snapshot, xids = database.rows(_RUNNING)[0]
    end = Seen(snapshot).end
    return tuple(sorted(near(xid, end) for xid in xids))


_log = logging.getLogger(__name__)

#: The holder is idle while chunks are read and sent, which may take hours.
_SETTINGS = "set idle_in_transaction_session_timeout = 0; set lock_timeout = '10s'"
_BEGIN = "begin isolation level repeatable read, read only"
_EXPORT = "select pg_export_snapshot(), pg_current_snapshot()::text"
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
            self._name, self.seen = self._holder.rows(_EXPORT)[0]
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
        copied_rows, size, whole = self._copied(reader, table, table.select_between(first, before), limit_bytes)
        # The place of each is ahead of it.
        rows = [row.partition(b"\t")[2] for row in copied_rows]
        if whole:
            seen = (before - block) or 1
            progress.rows_per_block = max(len(rows) / seen, progress.rows_per_block / 8, 0.01)
        following = f"({before},0)" if whole else _behind(copied_rows[-1].partition(b"\t")[0])
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
