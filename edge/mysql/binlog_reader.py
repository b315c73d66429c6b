"""Reads parts of the binlog a second time, for XA transactions whose rows were not kept, over a connection of its own.

Guarantees that the stream is not disturbed: the server does not take this reader for the replica that the edge is. A search goes
from a place backward, file by file, and so reads no more of the log than is between; what was found in a file that is whole
is kept. Yields None after each round of reading, and when nothing has arrived for a moment: the capturing thread, in which
edge/mysql/deferred_transactions.py calls it, has other duties, and reading many files takes minutes.
"""

import select
import time
from collections.abc import Generator, Iterator
from contextlib import closing

from edge.mysql import events as event
from edge.mysql.checkpoint import file_name, place
from edge.mysql.checks import FIRST, log
from edge.mysql.connection import Database
from edge.mysql.ddl import Kind, read_statement
from edge.mysql.deferred_transactions import Event
from edge.mysql.replication import LogEnded, ReplicationStream
from headrace.configuration.edge import Mysql
from headrace.errors import CorruptInput, NotConnected

#: A server that sends nothing for so long, in seconds, is gone.
_SILENCE_SECONDS = 60.0
#: A round waits at most so long for something to arrive, in seconds.
_ROUND_SECONDS = 0.25
_BEGINNINGS = frozenset({event.MARIADB_GTID, event.GTID, event.GTID_TAGGED})
_QUERIES = frozenset({event.QUERY, event.QUERY_COMPRESSED})
_DECISIONS = frozenset({Kind.XA_COMMIT, Kind.XA_ROLLBACK})


class BinlogReader:
    """A server's binlog; `undecided` is what was found in whole files, by their numbers."""

    def __init__(
        self, config: Mysql, source: str, database: Database, base: str, undecided: dict[int, dict[str, int]]
    ) -> None:
        self._config, self._source, self._database, self._base = config, source, database, base
        self._undecided = undecided
        self._stream: ReplicationStream | None = None

    def rows(self, start: int) -> Iterator[Event | None]:
        """Yield the rows, with what describes them, of the transaction that begins at a place."""
        with closing(self._events(start)) as events:
            for arrived in events:
                if arrived is None or arrived[0][4] in event.ROWS:
                    yield arrived
                elif arrived[0][4] == event.XA_PREPARE:
                    return
        raise CorruptInput(
            f"the XA transaction that begins at {file_name(self._base, start >> 32)}:{start & 0xFFFFFFFF} has no end",
            hint="Nothing was skipped or confirmed: look at the binlog with mariadb-binlog or mysqlbinlog.",
        )

    def find(self, xid: str, before: int) -> Generator[None, None, dict[str, int]]:
        """Return where transactions begin that are undecided at a place, at least from where this one was prepared on."""
        places: dict[str, int] = {}
        newest = before >> 32
        for number in range(newest, log(self._database).first - 1, -1):
            undecided = self._undecided.get(number) if number < newest else None
            if undecided is None:
                undecided = yield from self._search(number, before)
            if number < newest:
                self._undecided[number] = undecided
            places = undecided | places
            if xid in places:
                break
        return places

    def first(self) -> str:
        """Return the log's oldest file."""
        return log(self._database).files[0][0]

    def close(self) -> None:
        """End what is being read."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _search(self, number: int, before: int) -> Generator[None, None, dict[str, int]]:
        """Return where transactions begin that a file prepares and does not decide, ahead of a place."""
        undecided: dict[str, int] = {}
        file, start = file_name(self._base, number), 0
        with closing(self._events(place(number, FIRST))) as events:
            for arrived in events:
                if arrived is None:
                    yield
                    continue
                data, end = arrived
                kind = data[4]
                if kind == event.ROTATE and event.rotated(data, end)[0] != file:
                    break
                if kind in _BEGINNINGS:
                    start = place(number, int.from_bytes(data[13:17], "little")) - len(data)
                    if start >= before:
                        break
                elif kind == event.XA_PREPARE:
                    prepared = event.prepared(data, end)
                    if not prepared.one_phase:
                        undecided[prepared.xid] = start
                elif kind in _QUERIES:
                    query = event.query(data, end, compressed=kind == event.QUERY_COMPRESSED)
                    statement = read_statement(query.words.decode("utf-8", "replace"))
                    if statement.kind in _DECISIONS:
                        undecided.pop(statement.xid, None)
        return undecided

    def _events(self, start: int) -> Generator[Event | None]:
        """Yield the events from a place on, those of compressed transactions among them, as far as the log goes now.

        None ends each round.
        """
        self.close()
        stream = self._stream = ReplicationStream(self._config, self._source)
        arrives = select.poll()
        arrived: list[Event] = []
        goes_on, heard_at = True, time.monotonic()
        try:
            arrives.register(stream.fileno(), select.POLLIN)
            stream.start_at(file_name(self._base, start >> 32), start & 0xFFFFFFFF)
            while goes_on:
                try:
                    fed = stream.read(lambda data, end, _: arrived.append((data, end)), 0)
                except LogEnded:
                    goes_on = False
                for data, end in arrived:
                    yield from _unpack(data, end)
                arrived.clear()
                if fed or not goes_on or arrives.poll(_ROUND_SECONDS * 1000):
                    heard_at = time.monotonic()
                elif time.monotonic() - heard_at > _SILENCE_SECONDS:
                    raise NotConnected(f"nothing was heard from {self._config} for {_SILENCE_SECONDS:.0f} s")
                yield None
        finally:
            stream.close()


def _unpack(data: bytes, end: int) -> Iterator[Event]:
    """Yield an event, or those of a compressed transaction."""
    if data[4] != event.TRANSACTION_PAYLOAD:
        yield data, end
        return
    try:
        for inner in event.Payload(data[event.HEADER_SIZE : end]).events():
            yield inner, len(inner)
    except (ValueError, IndexError) as error:
        raise CorruptInput(
            "a compressed transaction of the binlog that is read again cannot be decoded",
            hint="Nothing was skipped or confirmed: look at the binlog with mysqlbinlog.",
        ) from error
