"""What Debezium's envelope has in addition (`[records] envelope = "debezium"`): each rows event's own place in the binlog, the
number of its connection, and times in microseconds and nanoseconds.

Records are laid out as in edge/mysql/envelope.py; what is made once for a transaction there is made for each rows event here.
"""

from msgspec import json

from edge.mysql.envelope import Transaction


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
