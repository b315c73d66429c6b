"""A position: the one sortable name of a change (design decision 1).

Positions of one source compare as tuples, and their text sorts the same way in Kafka, Delta and anywhere else. Every part
uses this type; nothing ever compares a bare LSN.
"""

import re
import time
from typing import NamedTuple, Self

from headrace.errors import CorruptInput

_TEXT = re.compile(r"([0-9a-f]{8})/([0-9a-f]{16}|x(?!0{16})[0-9a-f]{32})/([0-9a-f]{8})")
#: Above this a commit number has the wide text.
_NARROW = 1 << 64
_LIMITS = (1 << 32, 1 << 128, 1 << 32)


class Position(NamedTuple):
    """The place of a change in its source's log.

    `epoch` names the lineage of the log (seconds since 1970 at its creation), `commit` is the transaction's commit LSN or
    the binlog's file number and offset, `ordinal` is the index of the change in its transaction, from 0. A commit number above 64
    bits, as of SQL Server, has a wider text behind an `x`, which sorts above all others.
    """

    epoch: int
    commit: int
    ordinal: int

    @classmethod
    def start(cls, epoch: int) -> Self:
        """Return the position before the first change of an epoch; the first batch of the epoch follows it."""
        return cls(epoch, 0, 0)

    @property
    def is_start(self) -> bool:
        """Whether this is the place before an epoch's first change."""
        return self.commit == 0 and self.ordinal == 0

    def __str__(self) -> str:
        """Return the hexadecimal text, `epoch/commit/ordinal`, which sorts as the position does."""
        return f"{self.epoch:08x}/{commit_text(self.commit)}/{self.ordinal:08x}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the position that a text names; raise CorruptInput when it is none."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise CorruptInput(
                f"{text[:60]!r} is no position", hint="A position looks like 692010c0/0000000001a2b3c8/00000000."
            )
        return cls(*(int(part.removeprefix("x"), 16) for part in match.groups()))

    def check(self) -> Self:
        """Return itself; raise CorruptInput when a part does not fit the text form."""
        if not all(0 <= part < limit for part, limit in zip(self, _LIMITS, strict=True)):
            raise CorruptInput(f"a part of position {tuple(self)} is out of range")
        return self


def commit_text(commit: int) -> str:
    """Return the text of a commit number."""
    return f"{commit:016x}" if commit < _NARROW else f"x{commit:032x}"


def new_epoch(after: int = 0) -> int:
    """Return an epoch for a log whose positions cannot be compared with those before: greater than `after`."""
    return max(int(time.time()), after + 1)
