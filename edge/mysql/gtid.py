"""GTID sets, the resume token: what of a log is read, by transaction and whatever server it comes from.

MariaDB's set is the last number of each domain (`0-1-42,7-2-9`); MySQL's the ranges of each server (`UUID:1-42:44-50,UUID:1`).
Both are values: `with_group` returns another one. Text forms are the servers' own.
"""

import re
import struct
from typing import Self
from uuid import UUID

from edge.mysql.events import Group
from headrace.errors import CorruptInput

_MARIADB = re.compile(r"(\d+)-(\d+)-(\d+)")
_MYSQL = re.compile(r"([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})((?::\d+(?:-\d+)?)+)")


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


class MysqlGtids:
    """Ranges of numbers of each server, both ends within."""

    def __init__(self, ranges: dict[str, tuple[tuple[int, int], ...]]) -> None:
        self._ranges = ranges

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the set that a text names; raise CorruptInput when it is none."""
        found = cls({})
        for part in text.replace("\n", "").split(",") if text.strip() else []:
            match = _MYSQL.fullmatch(part.strip())
            if match is None:
                raise CorruptInput(f"{part[:60]!r} is no GTID set", hint="A GTID set of MySQL looks like UUID:1-42.")
            for bounds in match[2][1:].split(":"):
                first, _, last = bounds.partition("-")
                found = found._with(match[1].lower(), int(first), int(last or first))
        return found

    def __str__(self) -> str:
        """Return the set as the server writes it."""
        return ",".join(
            origin + "".join(f":{first}" if first == last else f":{first}-{last}" for first, last in ranges)
            for origin, ranges in sorted(self._ranges.items())
        )

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

    def encoded(self) -> bytes:
        """Int64 servers, then for each Byte16 UUID, Int64 ranges, and for each Int64 first, Int64 after the last."""
        parts = [struct.pack("<Q", len(self._ranges))]
        for origin, ranges in sorted(self._ranges.items()):
            parts += [UUID(origin).bytes, struct.pack("<Q", len(ranges))]
            parts += [struct.pack("<QQ", first, last + 1) for first, last in ranges]
        return b"".join(parts)

    def _with(self, origin: str, first: int, last: int) -> Self:
        kept: list[tuple[int, int]] = []
        for known in self._ranges.get(origin, ()):
            if known[1] + 1 < first or last + 1 < known[0]:
                kept.append(known)
            else:
                first, last = min(first, known[0]), max(last, known[1])
        return type(self)(self._ranges | {origin: tuple(sorted([*kept, (first, last)]))})


Gtids = MariadbGtids | MysqlGtids
