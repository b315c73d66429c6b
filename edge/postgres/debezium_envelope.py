"""What Debezium's envelope has in addition (`[records] envelope = "debezium"`): each change's own place in the log, and times in
microseconds and nanoseconds.

Records are laid out as in edge/postgres/envelope.py: the parts that are made once for a transaction there are made for each
change here, and nothing else differs. Fields of the source block are behind `table`, so that `schema` and `table` stay
neighbours, by which the bridge finds a record's table.
"""

from typing import Final

from msgspec import json

from edge.postgres.envelope import Around, Transaction
from edge.postgres.relations import string

NO_ORIGIN: Final = b'"origin":null,"origin_lsn":null'


class DebeziumTransaction(Transaction):
    """What all records of one transaction share, and what each has of its own."""

    __slots__ = ("_commit_us", "_epoch", "_last_end", "_origin", "_xid")

    def __init__(self, *, epoch: int, commit: int, commit_us: int, xid: int, last_end: int) -> None:
        """`last_end` is where the transaction before ends in the log, 0 where it was not read; times are of 1970."""
        super().__init__(epoch=epoch, commit=commit, commit_ms=commit_us // 1000, xid=xid)
        self._epoch, self._xid, self._commit_us = epoch, xid, commit_us
        self._last_end = b'\\"%d\\"' % last_end if last_end else b"null"
        self._origin = NO_ORIGIN
        self.place = self.place_at(commit)

    def place_at(self, lsn: int) -> bytes:
        """Return what comes between a table's names and the ordinal, of a change at an LSN."""
        return place(b"%d" % self._xid, lsn, self._last_end, self._commit_us, self._epoch, self.commit, self._origin)

    def set_origin(self, message: bytes) -> None:
        """Byte1('O') Int64(LSN of the commit at the origin) String(name): where a change that was replicated comes from."""
        name, end = string(message, 9)
        if end != len(message):
            raise ValueError("an origin does not end where its name does")
        self._origin = b'"origin":%b,"origin_lsn":%d' % (json.encode(name), int.from_bytes(message[1:9], "big"))
        self.place = self.place_at(self.commit)

    def read(self, now_ms: int) -> bytes:
        """Return what a record holds from the time when it was read on, up to its number."""
        return b"%b%b" % (read_at(now_ms), self._read)

    def around(self, *, lsn: int, ordinal: int, read: bytes, total: int, of_table: int) -> Around:
        """Return the parts of one record: its number in the transaction, and among those of its table, both from 1."""
        number = b'%d,"data_collection_order":%d' % (total, of_table)
        return Around(self.committed, self.place_at(lsn), b"%08x" % ordinal, read, number)


def place(
    xid: bytes, lsn: int, last_end: bytes, commit_us: int, epoch: int, commit: int, origin: bytes = NO_ORIGIN
) -> bytes:
    """Return what comes between a table's names and the ordinal; `xid` and `last_end` as JSON, the latter inside of a text."""
    times = b'"ts_us":%d,"ts_ns":%d' % (commit_us, commit_us * 1000)
    return b'%b,"lsn":%d,"sequence":"[%b,\\"%d\\"]",%b,"xmin":null,%b,"position":"%08x/%016x/' % (
        xid, lsn, last_end, lsn, times, origin, epoch, commit,
    )  # fmt: skip


def read_at(now_ms: int) -> bytes:
    """Return when a record was read; by a clock of milliseconds."""
    return b'%d,"ts_us":%d,"ts_ns":%d' % (now_ms, now_ms * 1000, now_ms * 1_000_000)
