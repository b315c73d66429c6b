"""Which tables of a source are withheld, and where their records are: committed with the source's position.

A withheld table's records are not in its topic but, as batches, in the stream's topic of withheld records, in the lowest of
the source's partitions. Pure values: a transaction makes the next one, and a session has that of its last committed transaction.

What a session releases: withheld batches of one table, on their way from the reader's thread to a lane's.
"""

import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote

from headrace.batch import Batch
from headrace.errors import CorruptInput
from headrace.position import Position

_NONE = "-"
#: Seconds until a table whose record its topic did not take is tried again.
_PUT_OFF_SECONDS = 30.0
#: Kafka takes 4,096 bytes with an offset by default; names of hosts and instances are in it too.
_LONGEST = 3000


class WithheldTable(NamedTuple):
    """What is known of one table."""

    #: Up to this position all of the table is in its topic.
    complete: Position
    #: The table's first record that is not in its topic is at this offset or after it.
    next: int


class Withheld(NamedTuple):
    """The withheld tables of one source, by name, `schema.table`."""

    #: The offset after the source's last withheld record, released ones included.
    end: int = 0
    tables: Mapping[str, WithheldTable] = {}

    def complete(self, position: Position) -> Position:
        """Return the position up to which all of a source is in its topics; `position` is its own."""
        return min((table.complete for table in self.tables.values()), default=position)

    def put(self, name: str, table: WithheldTable) -> "Withheld":
        """Return this with a table in another state."""
        return self._replace(tables={**self.tables, name: table})

    def without(self, name: str) -> "Withheld":
        """Return this without a table: all of it is in its topic."""
        return self._replace(tables={other: table for other, table in self.tables.items() if other != name})

    @property
    def fits(self) -> bool:
        """Whether its text goes with an offset."""
        return len(str(self)) <= _LONGEST

    def __str__(self) -> str:
        """Return the text for a committed position: `END TABLES`, where TABLES is `NAME=COMPLETE@NEXT,...`, or `-`."""
        tables = (f"{quote(name, safe='.')}={each.complete}@{each.next}" for name, each in self.tables.items())
        return f"{self.end} {','.join(tables) or _NONE}"


NOTHING = Withheld()


def parse(end: str, tables: str) -> Withheld:
    """Return what a text holds; raise ValueError or CorruptInput when no bridge wrote it."""
    by_name = {}
    for each in tables.split(",") if tables != _NONE else ():
        name, _, rest = each.partition("=")
        complete, _, offset = rest.partition("@")
        by_name[unquote(name)] = WithheldTable(Position.parse(complete), int(offset))
    if int(end) < 0 or any(table.next > int(end) for table in by_name.values()):
        raise CorruptInput("a withheld record is said to be beyond the last one")
    return Withheld(int(end), by_name)


class Released(NamedTuple):
    """A step of a release."""

    table: str
    #: The offset from which the step was read, and the one to go on from after it.
    begin: int
    next: int
    #: None where no record of the table is between them.
    batch: Batch | None
    #: The size of the withheld record, in bytes.
    size: int = 0


class Release:
    """The steps of one session; for its lane and the reader."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: deque[Released] = deque()
        #: The table that is released now; empty while none is.
        self.table = ""
        # Until when tables are not tried again, by the monotonic clock.
        self._put_off: dict[str, float] = {}

    def put_off(self, table: str) -> None:
        """Have a table that cannot be released now not tried for a while: others are."""
        self._put_off[table] = time.monotonic() + _PUT_OFF_SECONDS

    def is_put_off(self, table: str) -> bool:
        """Whether a table is not to be tried now."""
        return time.monotonic() < self._put_off.get(table, 0.0)

    def __len__(self) -> int:
        """Return how many steps wait."""
        return len(self._steps)

    @property
    def size(self) -> int:
        """The size of what waits, in bytes."""
        with self._lock:
            return sum(step.size for step in self._steps)

    def begin(self, table: str) -> None:
        """Begin to release a table."""
        with self._lock:
            self._steps.clear()
            self.table = table

    def put(self, steps: list[Released]) -> None:
        """Add steps, unless the release of their table has ended."""
        with self._lock:
            self._steps.extend(step for step in steps if step.table == self.table)

    def take(self) -> Released | None:
        """Return the next step; None when none waits."""
        with self._lock:
            return self._steps.popleft() if self._steps else None

    def end(self) -> None:
        """End it, done or not."""
        with self._lock:
            self._steps.clear()
            self.table = ""
