"""One moment of the server, at which a table without a key is copied: one statement in one transaction, read as it is sent on.

Rows without a key have no order in which another statement could go on, so the statement lasts as long as the copy. What that
costs: the server cannot purge rows that became old since then, and whoever alters the table waits until the copy ends.
"""

import logging
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from edge.mysql.checks import executed
from edge.mysql.connection import SnapshotConnection
from edge.mysql.events import Group
from edge.mysql.gtid import MysqlGtids
from edge.mysql.table_cache import Copied
from edge.snapshot.plan import Key
from edge.snapshot.ports import Chunk, MomentGone
from headrace.errors import NotConnected

_log = logging.getLogger(__name__)

#: What is sent waits for headquarters, which may take hours.
_UNLIMITED = "set session net_write_timeout = 31536000, wait_timeout = 31536000"
_NO_LIMIT = {True: "set session max_statement_time = 0", False: "set session max_execution_time = 0"}
_BEGIN = "start transaction with consistent snapshot, read only"


class Transaction(NamedTuple):
    """A transaction of the log: the place where it begins, and its GTID."""

    place: int
    group: Group


class Seen(NamedTuple):
    """What a moment of MySQL has: these transactions, and perhaps some that were being committed, of which it is not known."""

    certain: MysqlGtids
    perhaps: MysqlGtids


class Moment:
    """A moment, from its beginning until it is left; used by the snapshot's thread alone."""

    def __init__(
        self,
        connection: SnapshotConnection,
        table: Copied,
        place: Callable[[SnapshotConnection], int],
        check: Callable[[SnapshotConnection, int | MysqlGtids], None],
    ) -> None:
        """`place` returns that of a snapshot of MariaDB, `check` raises Retryable where a table or the log is not as needed."""
        self._connection, self._table = connection, table
        self._began, self._read = time.monotonic(), 0
        #: What it has: MariaDB's up to a place in the log, MySQL's by GTIDs.
        self.seen: int | Seen
        try:
            connection.rows(_UNLIMITED)
            connection.rows(_NO_LIMIT[connection.is_mariadb])
            if connection.is_mariadb:
                connection.rows(_BEGIN)
                self.seen = place(connection)
                check(connection, self.seen)
            else:
                certain = MysqlGtids.parse(executed(connection))
                connection.rows(_BEGIN)
                # What is not visible as executed by then was owned while the snapshot was made.
                owned = str(connection.value("select @@global.gtid_owned") or "")
                self.seen = Seen(certain, _owned(owned).joined(MysqlGtids.parse(executed(connection))))
                check(connection, certain)
            self._packets: Iterator[bytes] = connection.selected_on(table.source.select_all())
        except BaseException:
            connection.close()
            raise
        _log.info("a table without a key is copied: a transaction of the server stays open until that has ended")

    def lacks(self, transaction: Transaction) -> bool:
        """Whether a transaction is not certain to be seen."""
        if isinstance(self.seen, Seen):
            return not self.seen.certain.has(transaction.group)
        return transaction.place > self.seen

    def is_unsure(self, transaction: Transaction) -> bool:
        """Whether it is not known of a transaction whether the moment has it."""
        return isinstance(self.seen, Seen) and self.lacks(transaction) and self.seen.perhaps.has(transaction.group)

    def chunk(self, after: Key | None, count: int, limit_bytes: int) -> Chunk:
        """Return the next rows, fewer when they grow beyond a size; raise MomentGone when they cannot be read any more."""
        if after is not None and after != [str(self._read)]:
            raise MomentGone("rows without a key are read once, and the next ones are not those that were asked for")
        rows: list[bytes] = []
        size, end = 0, False
        try:
            while len(rows) < count and size <= limit_bytes:
                packet = next(self._packets, None)
                if packet is None:
                    end = True
                    break
                rows.append(packet)
                size += len(packet)
        except NotConnected as error:
            raise MomentGone(f"rows without a key are of one moment, and {error.message}") from error
        self._read += len(rows)
        return Chunk(
            table=self._table,
            rows=rows,
            size=size,
            last=[str(self._read)],
            end=end,
            seen=self.seen if after is None else None,
            lacks=self.lacks if after is None else None,
            is_unsure=self.is_unsure if after is None else None,
        )

    def leave(self) -> None:
        """End the statement and its transaction."""
        self._connection.abandon()
        _log.info("the transaction of the copied moment has ended, after %.0f s", time.monotonic() - self._began)


def _owned(text: str) -> MysqlGtids:
    """Return the GTIDs that threads own, `UUID:1#thread:2#thread,…`, as the server writes them."""
    found = []
    for part in text.replace("\n", "").split(","):
        origin, *numbers = part.strip().split(":")
        found += [f"{origin}:{':'.join(number.partition('#')[0] for number in numbers)}"] if numbers else []
    return MysqlGtids.parse(",".join(found))
