"""The chain of a source's batches: how far it has come, as the text that is committed with an offset, and whether a batch is its
next link.

The text has format 3; those before are read as well.

2 POSITION TIME SOURCE BRIDGE      the position `-` while none is known; TIME in ISO 8601, UTC, by the bridge's clock
3 COMPLETE TIME SOURCE POSITION END TABLES BRIDGE
                                   of a source that has, or had, withheld tables; up to COMPLETE
                                   all of it is in its topics, which is what a reader of format 2 needs to know there
BRIDGE may be followed by the numbers of the source's partitions, `2,0,1`, in the order by which keys are shared out among them;
where it has one alone, and in texts of releases before, there is none.

POSITION TIME BRIDGE               in a group of the source's own, by releases up to 0.1

It has also which tables of the source are withheld, and where their records are: not in the table's topic but, as batches, in the
stream's topic of withheld records, in the lowest of the source's partitions. Pure values: a transaction makes the next one, and a
session has that of its last committed transaction.

The chain is what a batch is, seen from the last position that the bridge has produced (design decision 2): pure, without a queue,
Kafka or AMQP. The one rule catches loss, repeats and overtaking on any network in between, for any way of cutting the same
records into batches. Called by a lane for every batch.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote, unquote

from headrace.batch import Batch
from headrace.errors import CorruptInput
from headrace.formats import COMMITTED_POSITION
from headrace.position import Position

_NONE = "-"
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


def parse_withheld(end: str, tables: str) -> Withheld:
    """Return what a text holds; raise ValueError or CorruptInput when no bridge wrote it."""
    by_name = {}
    for each in tables.split(",") if tables != _NONE else ():
        name, _, rest = each.partition("=")
        complete, _, offset = rest.partition("@")
        by_name[unquote(name)] = WithheldTable(Position.parse(complete), _offset(offset))
    if any(table.next > _offset(end) for table in by_name.values()):
        raise CorruptInput("a withheld record is said to be beyond the last one")
    return Withheld(_offset(end), by_name)


def _offset(text: str) -> int:
    """Return an offset; `int` would take other digits too, and numbers that Kafka has not."""
    if _OFFSET.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


#: The format without withheld tables.
_WITHOUT = 2
#: A source of more partitions has no order in its text, which Kafka limits to 4,096 bytes.
_MOST_PARTITIONS = 100
_VERSION = re.compile(r"[0-9]{1,3}")
_ORDER = re.compile(r"(.*) ([0-9]{1,9}(?:,[0-9]{1,9})+)")
_OFFSET = re.compile(r"[0-9]{1,18}")


class PositionText(NamedTuple):
    """What the text of an offset holds."""

    position: Position | None
    at: str
    #: Empty in the text of a former release.
    source: str
    bridge: str
    #: None where the text does not have it.
    withheld: Withheld | None = None
    #: The source's partitions in the order by which keys are shared out; empty where the text does not have it.
    order: tuple[int, ...] = ()


def position_text(
    source: str, position: Position | None, bridge: str, withheld: Withheld = NOTHING, partitions: Sequence[int] = ()
) -> str:
    """Return the text for a source's position now: of format 2, which older bridges read, where nothing was ever withheld."""
    if 1 < len(partitions) <= _MOST_PARTITIONS:
        bridge = f"{bridge} {','.join(map(str, partitions))}"
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if position is None or withheld == NOTHING:
        return f"{_WITHOUT} {position or _NONE} {now} {source} {bridge}"
    complete = withheld.complete(position)
    return f"{COMMITTED_POSITION.version} {complete} {now} {source} {position} {withheld} {bridge}"


def parse(text: str, where: str = "a committed position") -> PositionText:
    """Return what a text holds; raise CorruptInput when no bridge wrote it, NeedsOperator when a newer one did."""
    version, _, rest = text.partition(" ")
    # Digits alone, and longer ones, are what other tools note: a time for instance.
    is_numbered = rest != "" and _VERSION.fullmatch(version) is not None
    if is_numbered:
        COMMITTED_POSITION.check(int(version), where)
    withheld = None
    try:
        if not is_numbered:
            position, at, bridge = text.split(" ", 2)
            source = ""
        elif int(version) == _WITHOUT:
            position, at, source, bridge = rest.split(" ", 3)
        else:
            _, at, source, position, end, listed, bridge = rest.split(" ", 6)
            withheld = parse_withheld(end, listed)
        if datetime.fromisoformat(at).tzinfo is None:
            raise ValueError(at)
        order: tuple[int, ...] = ()
        if (ordered := _ORDER.fullmatch(bridge)) is not None:
            bridge, order = ordered[1], tuple(map(int, ordered[2].split(",")))
        return PositionText(
            None if position == _NONE else Position.parse(position), at, source, bridge, withheld, order
        )
    except ValueError as error:
        raise CorruptInput("the text of a committed offset is none of a bridge's") from error


class Next(NamedTuple):
    """The next link: write the records from index `begin` on; those before are repeats of what is in Kafka."""

    begin: int
    #: Whether the batch starts an epoch that is not the tail's.
    starts_epoch: bool = False


class Repeat(NamedTuple):
    """All of it is in Kafka, or in the open transaction: write nothing, accept once that is committed."""


class Gap(NamedTuple):
    """Something between `tail` and `follows` is missing: it was overtaken, or lost. A `tail` of None: nothing is known."""

    follows: Position
    tail: Position | None


class Stale(NamedTuple):
    """It is of an epoch before the tail's: an old edge is still alive."""

    epoch: int
    tail: Position


Verdict = Next | Repeat | Gap | Stale


def judge(tail: Position | None, batch: Batch) -> Verdict:
    """Return what the batch is to a bridge whose last produced position is `tail`.

    Args:
        tail: None when neither Kafka's committed offsets nor its records know a position of the source; then only a batch
            that starts an epoch is a next link.
        batch: any batch of the source.
    """
    if tail is None or batch.last.epoch > tail.epoch:
        return Next(0, starts_epoch=True) if batch.starts_epoch else Gap(batch.follows, tail)
    if batch.last.epoch < tail.epoch:
        return Stale(batch.last.epoch, tail)
    if batch.follows > tail:
        return Gap(batch.follows, tail)
    if batch.last <= tail:
        return Repeat()
    return Next(batch.index_after(tail))
