"""Reads chunks, each in a short transaction with a consistent snapshot, or for a table without a key at one moment of the server.

Nothing is written at the source: a watermark is the end of the binlog as it is then, and it comes back when the stream has got
there. MariaDB reports the place of the binlog at which a snapshot is, MySQL which transactions it has at least: so one that is
in the log already and that readers do not see yet is noticed. Used by the snapshot's thread alone.

A moment is one statement in one transaction, read as it is sent on. Rows without a key have no order in which another statement
could go on, so the statement lasts as long as the copy. What that costs: the server cannot purge rows that became old since
then, and whoever alters the table waits until the copy ends.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

from edge.mysql import events, snapshot_rows
from edge.mysql.checkpoint import MariadbGtids, MysqlCheckpoint, MysqlGtids, file_name, place, split_name
from edge.mysql.checks import executed, gtids_at, log_status
from edge.mysql.connection import SnapshotConnection
from edge.mysql.events import Group
from edge.mysql.snapshot_table import SnapshotTable, describe, listed, shape
from edge.mysql.table_cache import Copied, TableCache
from edge.snapshot.chunk_reader import ChunkReader
from edge.snapshot.plan import Key
from edge.snapshot.ports import Chunk, Described, MomentGone
from headrace.errors import NeedsOperator, NotConnected, Retryable

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
                self.seen = Seen(certain, _parse_owned(owned).joined(MysqlGtids.parse(executed(connection))))
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


def _parse_owned(text: str) -> MysqlGtids:
    """Return the GTIDs that threads own, `UUID:1#thread:2#thread,…`, as the server writes them."""
    parts = []
    for part in text.replace("\n", "").split(","):
        origin, *numbers = part.strip().split(":")
        parts += [f"{origin}:{':'.join(number.partition('#')[0] for number in numbers)}"] if numbers else []
    return MysqlGtids.parse(",".join(parts))


#: What a chunk saw: everything ahead of a place of the binlog, or these transactions at least.
_Saw = int | MysqlGtids
_NOT_VISIBLE = "a transaction that is in the log is not visible yet"


class Watermark(NamedTuple):
    """A place that the stream has to get to."""

    content: bytes
    place: int
    #: The server's clock, in milliseconds since 1970.
    now_ms: int


class SnapshotReader(ChunkReader[SnapshotConnection, Copied]):
    """A connection that reads chunks of captured tables."""

    def __init__(
        self,
        connect: Callable[[], SnapshotConnection],
        tables: TableCache,
        checkpoint: MysqlCheckpoint,
        watermarks: deque[Watermark],
        decided: Container[str],
    ) -> None:
        self._connect, self._tables, self._watermarks, self._decided = connect, tables, watermarks, decided
        super().__init__(connect())
        # Of a table without a key.
        self._moment: Moment | None = None
        # What the stream does not carry any more, until a snapshot was seen to have it.
        self._behind: MysqlCheckpoint | None = checkpoint

    def published(self) -> list[str]:
        """Return the tables that the source's databases and tables, and the policy, let through."""
        return [f"{of}.{name}" for of, name in listed(self._database) if self._tables.chosen(of, name)]

    def named(self, names: list[str]) -> list[str]:
        """Return the names: a table is its partitions."""
        return names

    def describe(self, name: str, where: str | None) -> Described:
        """Return a table, with the server's estimate of its rows."""
        of, _, table = name.partition(".")
        if not self._tables.chosen(of, table):
            raise NeedsOperator(
                f"table {name} is not captured: its changes would be missing",
                hint="Name it in the source's databases or tables, and let [policy] include it; then start the edge again.",
            )
        source, estimate = describe(self._database, of, table)
        if not source.key and where is not None:
            raise NeedsOperator(
                f"table {name} has no key, so it is copied whole, and never by a condition",
                hint="Request its snapshot without --where.",
            )
        if where is not None:
            # MySQL's newer releases explain as a tree unless they are asked for rows of columns.
            explain = "explain extended" if self._database.is_mariadb else "explain format = traditional"
            plan = self._database.dictionaries(f"{explain} {source.matching(where)}")[0]
            estimate = int(int(plan["rows"] or 0) * float(plan["filtered"] or 100) / 100)
        return Described(self._tables.copied(source), estimate, of_moment=not source.key)

    def rows(self, table: Copied, where: str | None, after: Key | None, count: int, limit_bytes: int) -> Chunk:
        """Return the next rows in key order, or of a table without a key in the order of one statement."""
        if table.source.key:
            return super().rows(table, where, after, count, limit_bytes)
        if after is None:
            self.leave()
            self._moment = self._begin(table)
        elif self._moment is None:
            raise MomentGone("rows without a key are of one moment, and the transaction that held it is gone")
        assert self._moment is not None
        return self._moment.chunk(after, count, limit_bytes)

    def leave(self) -> None:
        """Leave the moment of which a table without a key is copied, if any."""
        moment, self._moment = self._moment, None
        if moment is not None:
            moment.leave()

    def _begin(self, table: Copied) -> Moment:
        def check(connection: SnapshotConnection, saw: int | MysqlGtids) -> None:
            self._check_behind(saw)
            # From here on its lock keeps the table as it is.
            connection.rows(f"select 1 from {table.source.name} limit 0")  # noqa: S608 - the name is quoted.
            self._check(table)

        if self._database.is_mariadb:
            self._check_decided()
        return Moment(self._connect(), table, self._place, check)

    def write_watermark(self, content: bytes, table: Copied | None = None) -> None:
        """Let a watermark come back when the stream has got to where the binlog ends now.

        A table cannot be altered from the select, whose metadata lock lasts as long as its transaction, to the rollback.
        """
        database = self._database
        if table is not None:
            self._check(table)
            database.rows("start transaction read only")
            # The name is quoted. A failure closes the connection, and so ends the transaction.
            database.rows(f"select 1 from {table.source.name} limit 0")  # noqa: S608
            self._check(table)
        now_ms = int(database.value("select unix_timestamp(now(3)) * 1000"))
        status = log_status(database)
        if table is not None:
            database.rows("rollback")
        self._watermarks.append(
            Watermark(content, place(split_name(str(status["File"]))[1], int(status["Position"])), now_ms)
        )

    def _statements(self, table: Copied) -> SnapshotTable:
        return table.source

    def _key_of(self, table: Copied, row: bytes) -> Key:
        return table.source.key_of(snapshot_rows.row_texts(row))

    def _run(self, table: Copied, statement: str, limit_bytes: int) -> tuple[list[bytes], int, bool, _Saw]:
        database = self._database
        if database.is_mariadb:
            self._check_decided()
        seen = None if database.is_mariadb else MysqlGtids.parse(executed(database))
        database.rows("start transaction with consistent snapshot, read only")
        saw = self._place(database) if seen is None else seen
        self._check_behind(saw)
        rows, size, whole = database.selected(statement, limit_bytes)
        if not whole:
            database.abandon()
            database = self._database = self._connect()
        self._check(table)
        database.rows("rollback")
        return rows, size, whole, saw

    def _check(self, table: Copied) -> None:
        if shape(self._database, table.source.name) != table.source.shape:
            raise Retryable("a table was altered since it was described")

    @staticmethod
    def _place(database: SnapshotConnection) -> int:
        """Return where in the binlog the snapshot is."""
        shown = database.rows("show status like 'binlog_snapshot_%'")
        status = {str(name).lower(): str(value) for name, value in shown}
        return place(split_name(status["binlog_snapshot_file"])[1], int(status["binlog_snapshot_position"]))

    def _check_behind(self, saw: _Saw) -> None:
        """Raise Retryable while a snapshot does not see what the stream carried before this session, and not again."""
        behind = self._behind
        if behind is None:
            return
        if isinstance(saw, MysqlGtids):
            holds = saw.covers(behind.gtid_set)
        elif not (holds := saw >= behind.confirmed):
            file = file_name(behind.base, saw >> 32)
            at = MariadbGtids.parse(gtids_at(self._database, file, saw & 0xFFFFFFFF))
            holds = at.covers(behind.gtid_set)
        if not holds:
            raise Retryable(_NOT_VISIBLE)
        self._behind = None

    def _check_decided(self) -> None:
        """Raise Retryable while the server still commits an XA transaction whose commit is in the log.

        The place at which a snapshot is does not include those.
        """
        for form, length, _, data in self._database.rows("xa recover"):
            name = bytes(data) if isinstance(data, bytes) else str(data).encode()
            if events.xid(int(form), name[: int(length)], name[int(length) :]) in self._decided:
                raise Retryable(_NOT_VISIBLE)
