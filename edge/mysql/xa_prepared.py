"""XA transactions that are prepared and not decided: their rows, or where the log has them.

The log has a transaction's rows where it was prepared, which may be long before its commit. Guarantees that memory is bounded:
what does not fit is read again from the log, as is what was prepared before this session. Nothing here blocks: what has to wait
for the server yields None instead of an event, and is resumed later. Called by edge/mysql/xa.py.
"""

from collections.abc import Generator, Iterator
from typing import Protocol

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

    def hold(self, found: bytes, end: int) -> None:
        """Hold an event of it."""
        held = self._open
        assert held is not None
        if held.events is None:
            return
        size = len(found)
        held.events.append((found, end))
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
            found = yield from self._again.find(xid, before)
            for other, start in found.items():
                if other not in self._held:
                    self._held[other] = known = _Held(start)
                    known.events = None
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
