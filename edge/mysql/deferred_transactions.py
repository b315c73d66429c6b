"""Transactions that are not decoded as their events come: XA ones, large ones, and those that are passed over.

What XA prepared becomes changes when it commits, at the place and under the GTID of the commit: the log has the rows ahead of the
decision, so they are held and decoded when the commit comes; a rollback drops them. So positions follow the order of commits and
depend on the log alone, and nothing of an undecided transaction is sent. Such rows, and a large transaction, are looked for and
decoded in rounds, while the events behind the commit wait: the capturing thread gets its turn after each. A transaction that is
passed over is followed to its end, and read for the tables that it names alone. Called by edge/mysql/decoder.py.
"""

import struct
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Final, Protocol

from edge.mysql import errors, events
from edge.mysql.ddl import Kind, Name, Statement
from edge.mysql.events import Group
from edge.mysql.table_cache import TableCache
from edge.mysql.table_map import parse_names
from headrace.errors import ReplicationError

#: An event and where it ends without its checksum.
Event = tuple[bytes, int]
#: Of all that is held, in bytes.
_MOST = 32 << 20


class PreparedReader(Protocol):
    """Reads parts of the log again; yields None wherever it has to wait, or has read for long enough."""

    def rows(self, start: int) -> Iterator[Event | None]:
        """Yield the rows, with what describes them, of the transaction that begins at a place."""

    def find(self, xid: str, before: int) -> Generator[None, None, dict[str, int]]:
        """Return where transactions begin that are undecided at a place, at least from where this one was prepared on."""

    def first(self) -> str:
        """Return the log's oldest file."""


class NotPrepared(LookupError):  # noqa: N818 - a state, which reads best without a suffix.
    """The log has the rows of a transaction nowhere."""


class _Held:
    """A transaction's rows."""

    def __init__(self, start: int) -> None:
        self.start, self.size = start, 0
        #: None for one that is to be read again.
        self.events: list[Event] | None = []


class PreparedTransactions:
    """Transactions by their ids."""

    def __init__(self, again: PreparedReader, most: int = _MOST) -> None:
        self._again, self._most = again, most
        self._size = 0
        self._open: _Held | None = None
        # In the order in which they were prepared.
        self._held: dict[str, _Held] = {}

    def begin(self, start: int) -> None:
        """Begin to hold the rows of a transaction, which begins at a place in the log."""
        self._open = _Held(start)

    def hold(self, event: bytes, end: int) -> None:
        """Hold an event of it."""
        held = self._open
        assert held is not None
        if held.events is None:
            return
        size = len(event)
        held.events.append((event, end))
        held.size += size
        self._size += size
        if self._size > self._most:
            self._make_room(held)

    def end(self, xid: str) -> None:
        """Keep it until it is decided."""
        assert self._open is not None
        self.drop(xid)
        self._held[xid], self._open = self._open, None

    def drop(self, xid: str) -> None:
        """Forget a transaction."""
        held = self._held.pop(xid, None)
        if held is not None:
            self._release(held)

    def take(self, xid: str, before: int) -> Iterator[Event | None]:
        """Yield the rows of a transaction whose commit begins at a place, and forget it.

        Raises NotPrepared when the log has it nowhere.
        """
        if xid not in self._held:
            starts = yield from self._again.find(xid, before)
            for other, start in starts.items():
                if other not in self._held:
                    self._held[other] = other_held = _Held(start)
                    other_held.events = None
        held = self._held.pop(xid, None)
        if held is None:
            raise NotPrepared(xid)
        yield from self._rows(held)

    def take_last(self) -> Iterator[Event | None]:
        """Return the rows of the transaction that was begun last, which commits in one phase, and forget it."""
        held, self._open = self._open, None
        assert held is not None
        return self._rows(held)

    def _rows(self, held: _Held) -> Iterator[Event | None]:
        events = held.events
        self._release(held)
        return self._again.rows(held.start) if events is None else iter(events)

    def _make_room(self, last: _Held) -> None:
        """Release rows until the others fit, the oldest first."""
        for oldest in (*self._held.values(), last):
            self._release(oldest)
            if self._size <= self._most:
                break

    def _release(self, held: _Held) -> None:
        self._size -= held.size
        held.size, held.events = 0, None


#: A round of decoding ends after so many bytes.
ROUND_BYTES: Final = 1 << 20
#: So many decided transactions are remembered, for those that are in the log and not visible yet.
_DECIDED: Final = 4096


class XaTransactions:
    """Follows XA in one phase and in two.

    `feed` decodes an event, `end` ends the present transaction at an event, `where` describes where in the log an event is.
    """

    def __init__(
        self,
        prepared_reader: PreparedReader,
        *,
        feed: Callable[[bytes, int, int], None],
        end: Callable[[bytes], None],
        where: Callable[[bytes], str],
    ) -> None:
        #: Ids of transactions that were decided, oldest first; another thread looks into it.
        self.decided: dict[str, None] = {}
        #: Takes events that are not decoded when they come, and returns whether it took one; None while all are decoded.
        self.intercept: Callable[[bytes, int], bool] | None = None
        self._reader, self._prepared = prepared_reader, PreparedTransactions(prepared_reader)
        self._feed, self._end, self._where = feed, end, where
        # Where the present transaction's GTID event begins.
        self._start = 0
        self._holds = False
        # What is decoded at a commit, the event of that commit, and the events that came behind it.
        self._replayed: Iterator[Event | None] | None = None
        self._decision = b""
        self._waiting: deque[Event] = deque()

    @property
    def is_replaying(self) -> bool:
        """Whether a commit waits for `replay`, and the events behind it do."""
        return self._replayed is not None or bool(self._waiting)

    @property
    def decision(self) -> bytes | None:
        """The event of the commit whose rows are decoded now; None at any other time."""
        return self._decision or None if self._replayed is not None else None

    def replay(self, now_ms: int) -> int:
        """Decode a round of what was prepared, and then the events that wait; return how many, at least 1 while it goes on."""
        fed = 0
        if self._replayed is not None:
            fed, is_whole = self._decode_round(self._replayed, now_ms)
            if not is_whole:
                self.intercept = self._wait
                return fed
            self._replayed = None
            if self._decision:
                self._end(self._decision)
        while self._waiting and self._replayed is None:
            event, end = self._waiting.popleft()
            self._feed(event, end, now_ms)
            fed += 1
        return fed

    def _decode_round(self, replayed: Iterator[Event | None], now_ms: int) -> tuple[int, bool]:
        """Decode a round; return how many steps were taken, and whether everything is decoded."""
        steps = size = 0
        self.intercept = None
        try:
            for event_or_pause in replayed:
                steps += 1
                if event_or_pause is None:
                    return steps, False
                event, end = event_or_pause
                self._feed(event, end, now_ms)
                size += end
                if size >= ROUND_BYTES:
                    return steps, False
        except NotPrepared as error:
            raise errors.not_prepared(str(error), self._reader.first(), self._where(self._decision)) from error
        return steps + 1, True

    # What the decoder reports.

    def begun(self, start: int, group: Group) -> None:
        """Note that a transaction has begun, whose GTID event begins at a place."""
        self._start = start
        if group.xa == "prepare":
            self._hold()

    def check_end(self) -> None:
        """Raise ValueError where the transaction that ends has to be prepared instead."""
        if self._holds:
            raise ValueError("a transaction ends otherwise than one that is prepared")

    def start(self) -> None:
        """Hold the rows that follow: XA START."""
        if not self._holds:
            self._hold()

    def commit(self, event: bytes, statement: Statement) -> None:
        """Decode what was prepared, round by round: XA COMMIT."""
        self._decide(statement.xid)
        self._begin_replay(self._prepared.take(statement.xid, self._start), event)

    def roll_back(self, event: bytes, statement: Statement) -> None:
        """Drop what was prepared: XA ROLLBACK."""
        self._prepared.drop(statement.xid)
        self._decide(statement.xid)
        self._end(event)

    def prepare(self, event: bytes, end: int) -> None:
        """Keep what is held until it is decided, or decode it where it commits in one phase: XA_PREPARE."""
        prepared = events.prepared(event, end)
        if not self._holds:
            raise ValueError("an XA transaction is prepared that did not begin")
        self._holds, self.intercept = False, None
        if prepared.one_phase:
            self._begin_replay(self._prepared.take_last(), event)
            return
        self._prepared.end(prepared.xid)
        self.decided.pop(prepared.xid, None)
        self._end(event)

    def decode_in_rounds(self, transaction: Iterator[Event | None]) -> None:
        """Decode the events of a large transaction, whose end is among them, round by round."""
        self._begin_replay(transaction, b"")

    def _decide(self, xid: str) -> None:
        self.decided[xid] = None
        if len(self.decided) > _DECIDED:
            del self.decided[next(iter(self.decided))]

    def _hold(self) -> None:
        self._prepared.begin(self._start)
        self._holds, self.intercept = True, self._hold_rows

    def _hold_rows(self, event: bytes, end: int) -> bool:
        if event[4] not in events.ROWS:
            return False
        self._prepared.hold(event, end)
        return True

    def _begin_replay(self, rows: Iterator[Event | None], decision: bytes) -> None:
        self._replayed, self._decision, self.intercept = rows, decision, self._wait

    def _wait(self, event: bytes, end: int) -> bool:
        self._waiting.append((event, end))
        return True


_UNDECODABLE = (struct.error, IndexError, KeyError, ValueError, OverflowError, ReplicationError)


class PassedEvents:
    """What is known of one such transaction; `is_single`: its first statement is its end, unless that is BEGIN."""

    def __init__(self, tables: TableCache, *, is_single: bool) -> None:
        self._tables, self._is_single = tables, is_single
        self._named: set[Name] = set()
        self._is_whole = True

    @property
    def touched(self) -> set[Name]:
        """The captured tables that it may have changed: all where that cannot be read."""
        if not self._is_whole:
            return self._tables.all_captured()
        return {name for name in self._named if self._tables.captures(*name)}

    def ends(self, event: bytes, end: int) -> bool:
        """Take an event of it; return whether that is its last one."""
        kind = event[4]
        try:
            if kind == events.TABLE_MAP:
                database, table, _ = parse_names(event[events.HEADER_SIZE : end])
                self._named.add((database, table))
            elif kind in {events.QUERY, events.QUERY_COMPRESSED}:
                return self._ends_with(events.query(event, end, compressed=kind == events.QUERY_COMPRESSED))
            elif kind == events.TRANSACTION_PAYLOAD:
                for inner in events.Payload(event[events.HEADER_SIZE : end]).events():
                    self.ends(inner, len(inner))
            elif kind == events.EXECUTE_LOAD:
                self._name(*self._tables.statement(events.loading_query(event, end)))
            elif kind not in events.ROWS and kind not in events.PASSED and kind not in {events.XID, events.XA_PREPARE}:
                self._is_whole = False
        except _UNDECODABLE:
            self._is_whole = False
            return self._is_single or kind == events.TRANSACTION_PAYLOAD
        return kind in {events.XID, events.XA_PREPARE, events.TRANSACTION_PAYLOAD}

    def _ends_with(self, query: events.Query) -> bool:
        text, statement = self._tables.statement(query)
        if statement.kind in {Kind.BEGIN, Kind.XA_START}:
            self._is_single = False
            return False
        if statement.kind is Kind.COMMIT or (statement.kind is Kind.ROLLBACK and " " not in statement.opening):
            return True
        self._name(text, statement)
        return self._is_single

    def _name(self, _text: str, statement: Statement) -> None:
        if statement.kind not in {Kind.HARMLESS, Kind.ROLLBACK, Kind.XA_END}:
            names = {*statement.tables, *(name for name, _ in statement.moved)}
            self._named |= names
            self._is_whole = self._is_whole and bool(names)
