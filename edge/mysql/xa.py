"""XA transactions: what was prepared becomes changes when it commits, at the place and under the GTID of the commit.

The log has their rows ahead of the decision: they are held aside (edge/mysql/xa_prepared.py) and decoded when the commit comes; a
rollback drops them. So positions follow the order of commits and depend on the log alone, and nothing of an undecided
transaction is sent. The rows are looked for and decoded in rounds, while the events behind the commit wait: the capturing thread
gets its turn after each.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from edge.mysql import decode_errors, events
from edge.mysql.ddl import Kind, Statement
from edge.mysql.decoder import Decoder
from edge.mysql.xa_prepared import Event, NotPrepared, PreparedReader, PreparedTransactions

#: A round of decoding ends after so many bytes.
_ROUND_BYTES: Final = 1 << 20
#: So many decided transactions are remembered, for those that are in the log and not visible yet.
_DECIDED: Final = 4096


class XaDecoder(Decoder):
    """A decoder that follows XA in one phase and in two."""

    def __init__(self, *, again: PreparedReader, **options: Any) -> None:
        super().__init__(**options)
        #: Ids of transactions that were decided, oldest first; another thread looks into it.
        self.decided: dict[str, None] = {}
        self._again, self._prepared = again, PreparedTransactions(again)
        # Where the present transaction's GTID event begins.
        self._start = 0
        self._holds = False
        # What is decoded at a commit, the event of that commit, and the events that came behind it.
        self._replayed: Iterator[Event | None] | None = None
        self._decision = b""
        self._waiting: deque[Event] = deque()
        self._handlers[events.XA_PREPARE] = self._prepare
        self._statements |= {
            Kind.XA_START: self._xa_start, Kind.XA_END: self._xa_end, Kind.XA_COMMIT: self._xa_commit,
            Kind.XA_ROLLBACK: self._xa_rollback,
        }  # fmt: skip

    @property
    def is_replaying(self) -> bool:
        """Whether a commit waits for `replay`, and the events behind it do."""
        return self._replayed is not None or bool(self._waiting)

    def replay(self, now_ms: int) -> int:
        """Decode a round of what was prepared, and then the events that wait; return how many, at least 1 while it goes on."""
        fed = 0
        if self._replayed is not None:
            fed, is_whole = self._round(self._replayed, now_ms)
            if not is_whole:
                self._aside = self._wait
                return fed
            self._replayed = None
            self._end(self._decision)
        while self._waiting and self._replayed is None:
            found, end = self._waiting.popleft()
            self.feed(found, end, now_ms)
            fed += 1
        return fed

    def _round(self, replayed: Iterator[Event | None], now_ms: int) -> tuple[int, bool]:
        """Decode a round; return how many steps were taken, and whether everything is decoded."""
        steps = size = 0
        self._aside = None
        try:
            for event_or_pause in replayed:
                steps += 1
                if event_or_pause is None:
                    return steps, False
                found, end = event_or_pause
                self.feed(found, end, now_ms)
                size += end
                if size >= _ROUND_BYTES:
                    return steps, False
        except NotPrepared as error:
            raise decode_errors.not_prepared(str(error), self._again.first(), self._where(self._decision)) from error
        return steps + 1, True

    def _begin(self, found: bytes, end: int = 0) -> None:
        super()._begin(found, end)
        transaction, group = self._writer.transaction, self._group
        assert transaction is not None
        assert group is not None
        self._start = transaction.commit - len(found)
        if group.xa == "prepare":
            self._hold()

    def _end(self, found: bytes, end: int = 0) -> None:
        if self._holds:
            raise ValueError("a transaction ends otherwise than one that is prepared")
        super()._end(found, end)

    def _xa_start(self, _found: bytes, _statement: Statement) -> None:
        # Savepoints may follow, which end nothing.
        self._explicit = True
        if not self._holds:
            self._hold()

    def _xa_end(self, _found: bytes, _statement: Statement) -> None:
        """Wait for what follows: the prepare."""

    def _xa_commit(self, found: bytes, statement: Statement) -> None:
        self._decide(statement.xid)
        self._replay(self._prepared.take(statement.xid, self._start), found)

    def _xa_rollback(self, found: bytes, statement: Statement) -> None:
        self._prepared.drop(statement.xid)
        self._decide(statement.xid)
        self._end(found)

    def _prepare(self, found: bytes, end: int) -> None:
        prepared = events.prepared(found, end)
        if not self._holds:
            raise ValueError("an XA transaction is prepared that did not begin")
        self._holds, self._aside = False, None
        if prepared.one_phase:
            self._replay(self._prepared.take_last(), found)
            return
        self._prepared.end(prepared.xid)
        self.decided.pop(prepared.xid, None)
        self._end(found)

    def _decide(self, xid: str) -> None:
        self.decided[xid] = None
        if len(self.decided) > _DECIDED:
            del self.decided[next(iter(self.decided))]

    def _hold(self) -> None:
        self._prepared.begin(self._start)
        self._holds, self._aside = True, self._take_aside

    def _take_aside(self, found: bytes, end: int) -> bool:
        if found[4] not in events.ROWS:
            return False
        self._prepared.hold(found, end)
        return True

    def _replay(self, rows: Iterator[Event | None], decision: bytes) -> None:
        self._replayed, self._decision, self._aside = rows, decision, self._wait

    def _wait(self, found: bytes, end: int) -> bool:
        self._waiting.append((found, end))
        return True

    def _where(self, found: bytes) -> str:
        # What was prepared may be in another file, and says of its end only the offset.
        return super()._where(found if self._replayed is None else self._decision)
