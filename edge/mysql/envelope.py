"""The envelope around a row (docs/records.md), apart into what table, transaction, event and change know of it.

    {"before":B,"after":A + middle(table, transaction) + ROW + place + ORDINAL + end(op, transaction, now) + NUMBER + }}

Every part but ROW, ORDINAL and NUMBER is made once and placed many times. The source block has Debezium's names; `schema`
repeats the database, because every engine's tables are named by a schema.

What Debezium's envelope has in addition (`[records] envelope = "debezium"`): each rows event's own place in the binlog, the
number of its connection, and times in microseconds and nanoseconds.
"""

from binascii import b2a_base64

from msgspec import json

from edge.records.envelope import TableNames


class Transaction:
    """What all records of one transaction share."""

    __slots__ = ("commit", "commit_ms", "end", "id", "origin", "place")

    def __init__(
        self, *, epoch: int, commit: int, commit_us: int, server_id: int, gtid: str | None, file: str, first: int = 0
    ) -> None:
        """Take what the log has; without a GTID it is rows that a snapshot puts between two, `first` their first ordinal."""
        self.commit, self.commit_ms = commit, commit_us // 1000
        self.origin = b'"server_id":%d,"gtid":%b,"file":%b,"pos":%d,"row":' % (
            server_id, json.encode(gtid), json.encode(file), commit & 0xFFFFFFFF,
        )  # fmt: skip
        self.place = b',"position":"%08x/%016x/' % (epoch, commit)
        self.id = json.encode(gtid or f"{file}:{commit & 0xFFFFFFFF}:{first}")
        self.end = b',"transaction":{"id":%b,"total_order":' % self.id

    def read_at(self, now_ms: int) -> bytes:
        """Return when a record was read, in milliseconds since 1970."""
        return b"%d" % now_ms

    def number(self, total: int, of_table: int) -> bytes:  # noqa: ARG002 - Debezium's envelope has both.
        """Return a record's number in the transaction, from 1."""
        return b"%d" % total


class Table(TableNames):
    """What all records of one table share."""

    def __init__(self, *, connector: str, source: str, database: str, table: str) -> None:
        super().__init__(connector=connector, source=source, database=database, schema=database, table=table)

    def middle(self, transaction: Transaction, *, copied: bool = False) -> bytes:
        """Return what comes between the rows of a record and the row's number; `copied`: of rows that a snapshot reads."""
        names = self.copied if copied else self.streamed
        return b"%b%d%b%b" % (self.head, transaction.commit_ms, names, transaction.origin)

    def source(self, transaction: Transaction, ordinal: int) -> bytes:
        """Return the source block, with row number 0, up to and including the ordinal."""
        return b"%b0%b%08x" % (self.middle(transaction), transaction.place, ordinal)


def end(op: bytes, transaction: Transaction, now_ms: int) -> bytes:
    """Return what comes between a change's ordinal and its number."""
    return b'"},"op":"%b","ts_ms":%b%b' % (op, transaction.read_at(now_ms), transaction.end)


def message(
    prefix: str,
    content: bytes,
    middle: bytes,
    transaction: Transaction,
    ordinal: int,
    now_ms: int,
    numbers: tuple[int, int],
) -> tuple[bytes, bytes]:
    """Return key and value of a message of ours, with its numbers in the transaction and among messages, from 1."""
    name = json.encode(prefix)
    return b'{"prefix":%b}' % name, b'{"message":{"prefix":%b,"content":"%b"},%b0%b%08x%b%b}}' % (
        name, b2a_base64(content, newline=False), middle, transaction.place, ordinal, end(b"m", transaction, now_ms),
        transaction.number(*numbers),
    )  # fmt: skip


class DebeziumTransaction(Transaction):
    """What all records of one transaction share, and what those of one rows event do."""

    __slots__ = ("_ahead", "_position", "_thread")

    def __init__(
        self, *, epoch: int, commit: int, commit_us: int, server_id: int, gtid: str | None, file: str, first: int = 0
    ) -> None:
        super().__init__(
            epoch=epoch, commit=commit, commit_us=commit_us, server_id=server_id, gtid=gtid, file=file, first=first
        )
        self._ahead = b'"sequence":null,"ts_us":%d,"ts_ns":%d,"server_id":%d,"gtid":%b,"file":%b,"pos":' % (
            commit_us, commit_us * 1000, server_id, json.encode(gtid), json.encode(file),
        )  # fmt: skip
        self._position, self._thread = self.place, b"null"
        self.move_to(commit & 0xFFFFFFFF)

    def move_to(self, offset: int) -> None:
        """Note where in the file the event begins whose rows follow."""
        self.origin = b'%b%d,"row":' % (self._ahead, offset)
        # The statement is in the log only where the server is asked to write it, and Debezium has it only if asked for.
        self.place = b',"thread":%b,"query":null%b' % (self._thread, self._position)

    def set_thread(self, thread: int) -> None:
        """Note the number of the connection that the transaction is of."""
        self._thread = b"%d" % thread

    def read_at(self, now_ms: int) -> bytes:
        """Return when a record was read; by a clock of milliseconds."""
        return b'%d,"ts_us":%d,"ts_ns":%d' % (now_ms, now_ms * 1000, now_ms * 1_000_000)

    def number(self, total: int, of_table: int) -> bytes:
        """Return a record's number in the transaction, and among those of its table, both from 1."""
        return b'%d,"data_collection_order":%d' % (total, of_table)
