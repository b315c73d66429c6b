"""What a MariaDB or MySQL source's checkpoint holds in addition to its position: GTID sets, the place in the binlog, whose it is.

GTID sets are the resume token: what of a log is read, by transaction and whatever server it comes from. MariaDB's set is the
last number of each domain (`0-1-42,7-2-9`); MySQL's the ranges of each server, and of each tag of a server
(`UUID:1-42:44-50:tag:1-3,UUID:1`). Both are values: `with_group` returns another one. Text forms are the servers' own.

A place in a binlog is a file's number and an offset in it as one number, which grows as the log does (`number << 32 | offset`).
A server begins a new file once one is larger than `max_binlog_size`, 1 GiB at most. So only one transaction can begin ahead of
4 GiB and end behind it; but others that were committed together with it follow in the same file, and the log has offsets of 32
bits alone. From COUNTED on, places are no offsets: they count the transactions, of which each has two, its beginning and its
end.
"""

import re
import struct
from collections import deque
from collections.abc import Mapping
from typing import Literal, NamedTuple, Self
from uuid import UUID

import msgspec

from edge.mysql.events import Group
from edge.progress.checkpoint import Checkpoint
from headrace.errors import CorruptInput
from headrace.position import Position

#: Numbers are below 2**64.
_MARIADB = re.compile(r"(\d{1,10})-(\d{1,10})-(\d{1,20})", re.ASCII)
_RANGES = r"(?::\d{1,19}(?:-\d{1,19})?)+"
_TAG = r":[a-zA-Z_]\w{0,31}"
_MYSQL = re.compile(
    rf"([0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}})((?:{_RANGES})?(?:{_TAG}{_RANGES})*)", re.ASCII
)
#: The GTID that a listed event gives to a transaction: MySQL's between quotes, MariaDB's behind a word.
_LISTED = re.compile(r"'([0-9a-f-]{36}(?::\w+)?:\d+)'|\bGTID (\d+-\d+-\d+)", re.IGNORECASE)


class MariadbGtids:
    """The last transaction of each domain."""

    def __init__(self, last: dict[int, tuple[str, int]]) -> None:
        self._last = last

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the set that a text names; raise CorruptInput when it is none."""
        last: dict[int, tuple[str, int]] = {}
        for part in text.split(",") if text else []:
            match = _MARIADB.fullmatch(part.strip())
            if match is None:
                raise CorruptInput(f"{part[:60]!r} is no GTID", hint="A GTID of MariaDB looks like 0-1-42.")
            last[int(match[1])] = (match[2], int(match[3]))
        return cls(last)

    def __str__(self) -> str:
        """Return the set as the server writes it, domains in order."""
        return ",".join(f"{domain}-{origin}-{number}" for domain, (origin, number) in sorted(self._last.items()))

    def with_group(self, group: Group) -> Self:
        """Return the set with one more transaction."""
        return type(self)(self._last | {group.domain: (group.origin, group.number)})

    def has(self, group: Group) -> bool:
        """Say whether a transaction is in the set."""
        return group.domain in self._last and group.number <= self._last[group.domain][1]

    def covers(self, other: "Gtids") -> bool:
        """Say whether everything of another set is in this one."""
        if not isinstance(other, MariadbGtids):
            return False
        return all(
            domain in self._last and number <= self._last[domain][1]
            for domain, (_, number) in other._last.items()  # noqa: SLF001 - of one kind.
        )

    def is_left_of(self, whole: "Gtids") -> bool:
        """Say whether the set is another one from which the server may have deleted domains.

        `FLUSH BINARY LOGS DELETE_DOMAIN_ID` takes a domain out of what the log says of itself. A log that has no domain at all
        was reset.
        """
        if not isinstance(whole, MariadbGtids):
            return False
        last = whole._last  # noqa: SLF001 - of one kind.
        return self._last.items() <= last.items() and bool(self._last or not last)

    def joined(self, other: "MariadbGtids") -> Self:
        """Return the set that reaches as far as either does, in each domain."""
        last = dict(self._last)
        for domain, (origin, number) in other._last.items():  # noqa: SLF001 - of one kind.
            if domain not in last or last[domain][1] < number:
                last[domain] = origin, number
        return type(self)(last)

    def missing_in(self, other: "MariadbGtids") -> str:
        """Return the transactions up to which another set, of the same domains, does not reach; empty for none."""
        there = other._last  # noqa: SLF001 - of one kind.
        missing = {
            domain: (origin, number)
            for domain, (origin, number) in self._last.items()
            if domain in there and there[domain][1] < number
        }
        return str(type(self)(missing))


class MysqlGtids:
    """Ranges of numbers of each origin, both ends within: a server's UUID, or a UUID with a tag, `UUID:tag`."""

    def __init__(self, ranges: dict[str, tuple[tuple[int, int], ...]]) -> None:
        self._ranges = ranges

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the set that a text names; raise CorruptInput when it is none."""
        gtids = cls({})
        for part in text.replace("\n", "").split(",") if text.strip() else []:
            match = _MYSQL.fullmatch(part.strip())
            if match is None or not match[2]:
                raise CorruptInput(f"{part[:60]!r} is no GTID set", hint="A GTID set of MySQL looks like UUID:1-42.")
            server = origin = match[1].lower()
            for bounds in match[2][1:].split(":"):
                if bounds[0].isdigit():
                    first, _, last = bounds.partition("-")
                    gtids = gtids._with(origin, int(first), int(last or first))
                else:
                    origin = f"{server}:{bounds.lower()}"
        return gtids

    def __str__(self) -> str:
        """Return the set as the server writes it: a server's own numbers first, then those of its tags."""
        shown: dict[str, str] = {}
        for origin, ranges in sorted(self._ranges.items()):
            server, mark, tag = origin.partition(":")
            numbers = "".join(f":{first}" if first == last else f":{first}-{last}" for first, last in ranges)
            shown[server] = shown.get(server, server) + mark + tag + numbers
        return ",".join(shown.values())

    def with_group(self, group: Group) -> Self:
        """Return the set with one more transaction."""
        return self._with(group.origin, group.number, group.number)

    def has(self, group: Group) -> bool:
        """Say whether a transaction is in the set."""
        return any(first <= group.number <= last for first, last in self._ranges.get(group.origin, ()))

    def covers(self, other: "Gtids") -> bool:
        """Say whether everything of another set is in this one."""
        if not isinstance(other, MysqlGtids):
            return False
        return all(
            any(first <= start and end <= last for first, last in self._ranges.get(origin, ()))
            for origin, ranges in other._ranges.items()  # noqa: SLF001 - of one kind.
            for start, end in ranges
        )

    def joined(self, other: "MysqlGtids") -> Self:
        """Return the set with everything of another one."""
        gtids = self
        for origin, ranges in other._ranges.items():  # noqa: SLF001 - of one kind.
            for first, last in ranges:
                gtids = gtids._with(origin, first, last)
        return gtids

    def encoded(self) -> bytes:
        """Int64 origins, then for each Byte16 UUID, Int64 ranges, and for each Int64 first, Int64 after the last.

        With a tag anywhere: Int8 1, Int48 origins, Int8 1; and behind each UUID Int8 twice the length of its tag, and the tag.
        Servers before MySQL 8.3 know no tags and are sent none.
        """
        tagged = any(":" in origin for origin in self._ranges)
        parts = [struct.pack("<Q", len(self._ranges) << 8 | 1 << 56 | 1 if tagged else len(self._ranges))]
        for origin, ranges in sorted(self._ranges.items()):
            server, _, tag = origin.partition(":")
            parts += [UUID(server).bytes, bytes([len(tag) << 1]) + tag.encode() if tagged else b""]
            parts += [struct.pack("<Q", len(ranges)), *(struct.pack("<QQ", first, last + 1) for first, last in ranges)]
        return b"".join(parts)

    def _with(self, origin: str, first: int, last: int) -> Self:
        kept: list[tuple[int, int]] = []
        for part in self._ranges.get(origin, ()):
            if part[1] + 1 < first or last + 1 < part[0]:
                kept.append(part)
            else:
                first, last = min(first, part[0]), max(last, part[1])
        return type(self)(self._ranges | {origin: tuple(sorted([*kept, (first, last)]))})


Gtids = MariadbGtids | MysqlGtids


def listed_gtid(kind: str, info: str) -> Gtids | None:
    """Return the set of the one transaction that an event begins, as the server lists it; None for any other event."""
    match = _LISTED.search(info) if kind.startswith("Gtid") else None
    if match is None:
        return None
    return MysqlGtids.parse(match[1]) if match[1] else MariadbGtids.parse(match[2])


_NAME = re.compile(r"(.*)\.(\d{1,9})")
_LARGEST = 0xFFFFFFFF
#: The last offset of a file that is a place; behind it transactions are counted.
COUNTED = 0xFFFF0000


def place(file_number: int, offset: int) -> int:
    """Return the place as a number."""
    return file_number << 32 | min(offset, _LARGEST)


def split_name(file: str) -> tuple[str, int]:
    """Return the base name and the number of a binlog file; raise CorruptInput when it is none."""
    match = _NAME.fullmatch(file)
    if match is None:
        raise CorruptInput(f"{file[:60]!r} is no binlog file", hint="A binlog file looks like binlog.000042.")
    return match[1], int(match[2])


def file_name(base: str, number: int) -> str:
    """Return the name of a binlog file."""
    return f"{base}.{number:06}"


class MysqlCheckpoint(Checkpoint, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a source's changes are acknowledged, and in which server and binlog that holds."""

    engine: Literal["mariadb", "mysql"]
    #: GTID set of everything acknowledged or spooled: the log is read again after it.
    gtids: str
    #: Binlog file and offset at which that set was complete on this server, or the beginning of a file ahead of that.
    file: str
    offset: int
    #: The server's number, and its own name for itself: MariaDB's `server_uid`, MySQL's `server_uuid`.
    server_id: int
    server: str
    #: When the server began that file, in seconds since 1970 by its clock: after a reset a file of that name is another one.
    #: Left out where that is not known.
    file_created: int | msgspec.UnsetType = msgspec.UNSET

    @property
    def confirmed(self) -> int:
        """The confirmed place as a number."""
        return place(split_name(self.file)[1], self.offset)

    @property
    def place(self) -> str:
        """GTID set, file and offset."""
        return f"{self.gtids or 'the beginning'} ({self.file}:{self.offset})"

    @property
    def base(self) -> str:
        """The name of the binlog's files without their number."""
        return split_name(self.file)[0]

    @property
    def gtid_set(self) -> Gtids:
        """The GTID set as a value."""
        return MariadbGtids.parse(self.gtids) if self.engine == "mariadb" else MysqlGtids.parse(self.gtids)

    def check(self) -> None:
        """Raise CorruptInput where a text of it is not what it has to be."""
        super().check()
        _ = self.gtid_set
        if not 0 <= self.offset <= _LARGEST:
            raise CorruptInput(f"{self.offset} is no place in a binlog file")

    def advanced(self, position: Position, confirmed: int, gtids: Gtids, created: Mapping[int, int]) -> Self:
        """Return the checkpoint moved to a position and a place, neither of them backward, with the set of that place.

        `created`: when files were begun, by their numbers, as far as that was read.
        """
        reached = max(confirmed, self.confirmed)
        file = file_name(self.base, reached >> 32)
        return msgspec.structs.replace(
            self,
            acknowledged=str(max(position, self.position)),
            gtids=str(gtids),
            file=file,
            offset=reached & 0xFFFFFFFF,
            file_created=created.get(reached >> 32, self.file_created if file == self.file else msgspec.UNSET),
        )


class Mark(NamedTuple):
    """What a GTID set gains when everything below a place is read."""

    place: int
    group: Group


class GtidProgress:
    """The transactions that one session has read and the checkpoint does not include yet."""

    def __init__(self) -> None:
        #: Transactions that were read whole, oldest first: the decoder appends to it.
        self.marks: deque[Mark] = deque()
        #: When files that were read were begun, by their numbers: the decoder notes it.
        self.created: dict[int, int] = {}
        # The greatest place that was requested, and the set that belongs to it; None before the first request.
        self._reached: tuple[int, Gtids] | None = None

    def restart(self) -> None:
        """Forget what was read: the log is read again from the checkpoint."""
        self.marks.clear()
        self.created.clear()
        self._reached = None

    def advanced(self, checkpoint: MysqlCheckpoint, position: Position, place: int) -> MysqlCheckpoint:
        """Return the durable checkpoint moved to an acknowledged position and place."""
        marks = self.marks
        reached, gtids = self._reached or (checkpoint.confirmed, checkpoint.gtid_set)
        while marks and marks[0].place <= place:
            gtids = gtids.with_group(marks.popleft().group)
        # The set is that of the greatest place, so the place may not be a smaller one.
        reached = max(reached, place)
        self._reached = reached, gtids
        return checkpoint.advanced(position, reached, gtids, self.created)
