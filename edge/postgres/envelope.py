"""The envelope around a row (docs/records.md), apart into what table, transaction and change know of it.

    {"before":B,"after":A, + table.head + Transaction.committed + table.middle + Transaction.place + ORDINAL
    + "},"op":"u","ts_ms": + Transaction.read(now) + NUMBER + }}

Every part but ORDINAL and NUMBER is made once and placed many times.
"""

from copy import copy
from typing import NamedTuple, Self

from edge.records.envelope import TableNames

#: The engine, as records name it.
CONNECTOR = "postgresql"
_TRANSACTION = b'"txId":'


class Around(NamedTuple):
    """What a record takes from its transaction and its place there, in the order in which it is in the record."""

    committed: bytes
    place: bytes
    ordinal: bytes
    read: bytes
    number: bytes


class Transaction:
    """What all records of one transaction share."""

    __slots__ = ("_read", "commit", "commit_ms", "committed", "id", "place")

    def __init__(self, *, epoch: int, commit: int, commit_ms: int, xid: int) -> None:
        self.commit = commit
        self.commit_ms = commit_ms
        self.committed = b"%d" % commit_ms
        self.place = b'%d,"lsn":%d,"position":"%08x/%016x/' % (xid, commit, epoch, commit)
        #: As JSON.
        self.id = b'"%d:%d"' % (xid, commit)
        self._read = b',"transaction":{"id":%b,"total_order":' % self.id

    def read(self, now_ms: int) -> bytes:
        """Return what a record holds from the time when it was read on, up to its number."""
        return b"%d%b" % (now_ms, self._read)


class Table(TableNames):
    """What all records of one table share."""

    def __init__(self, *, source: str, database: str, schema: str, table: str) -> None:
        super().__init__(connector=CONNECTOR, source=source, database=database, schema=schema, table=table)
        #: What a record of a row that was not there has as its `op`.
        self.created = b"c"
        self.middle = self.streamed + _TRANSACTION

    def for_snapshot(self) -> Self:
        """Return the same for rows that a snapshot reads."""
        made = copy(self)
        made.created = b"r"
        made.middle = self.copied + _TRANSACTION
        return made

    def rest(self, op: bytes, around: Around) -> bytes:
        """Return what comes after the rows of a record."""
        committed, place, ordinal, read, number = around
        return b'%b%b%b%b%b"},"op":"%b","ts_ms":%b%b}}' % (
            self.head, committed, self.middle, place, ordinal, op, read, number,
        )  # fmt: skip

    def source(self, transaction: Transaction, ordinal: int) -> bytes:
        """Return the source block up to and including the ordinal."""
        return b"%b%b%b%b%08x" % (self.head, transaction.committed, self.middle, transaction.place, ordinal)
