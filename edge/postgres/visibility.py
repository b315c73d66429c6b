"""Transactions whose commits were decoded, and that readers of the database may not see yet.

PostgreSQL writes a commit into the log before readers see it, and with synchronous replication it waits for standbys between
the two, for any time, while the log is streamed. A chunk of a snapshot that lacks such a transaction has older rows than the
stream had before it. So transactions are kept here until a snapshot was seen to have them, however many follow them, whether
sessions are lost meanwhile, and, by the checkpoint, over restarts of the edge. Numbers have 64 bits, as `xid8` does.
"""

from collections.abc import Collection, Iterable

from edge.postgres.connection import Database
from headrace.errors import ReplicationError

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

    def begin(self, database: Database, timeline: int, known: Iterable[int]) -> None:
        """Go on with a connection of a new session, whose checkpoint knows these transactions to be unseen."""
        if timeline != self._timeline:
            # A standby that was promoted has applied all of its log: readers see every commit in it.
            self._xids.clear()
        self._database, self._timeline, self.lost = database, timeline, False
        self._xids.update(known)
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
