"""When records of a measurement were late: how many sources waited, from when to when, and what the bridges logged meanwhile.

A percentile has no cause. Records that are late at the same time are one stall, shown by the time of day, as logs have it.
"""

import itertools
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console

#: Records later than this are late, in seconds; stalls that follow each other more closely are one.
_LATE_SECONDS, _CLOSE_SECONDS = 1.0, 1.0
#: Kinds of lines that are shown of a log.
_MOST_LINES = 8
_VARIABLE = re.compile(r"[\w/-]*\d[\w/.-]*")


class Arrival(NamedTuple):
    """A record as a reader got it."""

    #: When it was made and when it came, in seconds of the monotonic clock.
    made: float
    came: float
    partition: int


class _Line(msgspec.Struct):
    time: str
    level: str
    message: str


def show(console: Console, arrivals: Sequence[Arrival], logs: Sequence[Path]) -> None:
    """Print each stall, and what was logged in it."""
    late = sorted(each for each in arrivals if each.came - each.made > _LATE_SECONDS)
    ends = list(itertools.accumulate((each.came for each in late), max))
    firsts = [n for n in range(len(late)) if n == 0 or late[n].made > ends[n - 1] + _CLOSE_SECONDS]
    for first, after in itertools.pairwise([*firsts, len(late)]):
        stall, begin, end = late[first:after], late[first].made, ends[after - 1]
        longest = max(each.came - each.made for each in stall)
        sources = len({each.partition for each in stall})
        console.print(
            f"late from {_clock(begin)} UTC, for {end - begin:.1f} s: {len(stall):,} records of {sources:,} sources, by up to "
            f"{longest:.1f} s"
        )
        for log in logs:
            for line, count in _logged(log, _clock(begin), _clock(end)):
                console.print(f"  {log.stem}, {count} times: {line}", markup=False, highlight=False)


def _logged(log: Path, begin: str, end: str) -> list[tuple[str, int]]:
    """Return the commonest kinds of warnings between two times of day, and how often each was logged."""
    lines: Counter[str] = Counter()
    for text in log.read_bytes().splitlines():
        try:
            line = msgspec.json.decode(text, type=_Line)
        except msgspec.MsgspecError:
            continue
        if line.level != "info" and begin <= line.time[11:19] <= end:
            lines[_VARIABLE.sub("…", line.message)] += 1
    return lines.most_common(_MOST_LINES)


def _clock(moment: float) -> str:
    """Return a moment of the monotonic clock as a time of day."""
    return time.strftime("%H:%M:%S", time.gmtime(moment - time.monotonic() + time.time()))
