"""Who asked for a table last, by the audit file of `headrace lake serve`: users and times, and nothing of what they asked.

A query counts for a table when its text has the table's name in SQL as a word. Only the end of the file is read.
"""

import json
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from headrace.formats import UNREADABLE

#: Bytes from the end of the file; users of one table.
_MOST_BYTES, _MOST_USERS = 1_000_000, 10
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Read:
    """The last query of a user that names a table."""

    user: str
    at: datetime


@dataclass(frozen=True)
class Reads:
    """The newest users of a table."""

    #: Whether queries are recorded at all.
    configured: bool = False
    #: Why the file cannot be read; empty where it can.
    problem: str = ""
    #: Newest first.
    users: tuple[Read, ...] = ()
    #: When the oldest query that was looked at began.
    since: datetime | None = None


NO_READS = Reads()


def find_reads(file: Path, name: str) -> Reads:
    """Return who asked for a table, by its name in SQL; a file that is not there yet has no queries."""
    try:
        lines = _last_lines(file)
    except FileNotFoundError:
        return Reads(configured=True)
    except OSError as error:
        return Reads(configured=True, problem=f"{file} cannot be read: {error.strerror or type(error).__name__}")
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE) if name else None
    users: dict[str, Read] = {}
    since: datetime | None = None
    for line in reversed(lines):
        if (found := _begun(line)) is None:
            continue
        read, query = found
        since = read.at
        if word is not None and word.search(query) and len(users) < _MOST_USERS:
            users.setdefault(read.user, read)
    return Reads(configured=True, users=tuple(users.values()), since=since)


def _last_lines(file: Path) -> list[bytes]:
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        opened.seek(max(0, size - _MOST_BYTES))
        lines = opened.read(_MOST_BYTES).splitlines()
    # The first one may have lost its beginning.
    return lines[1:] if size > _MOST_BYTES else lines


def _begun(line: bytes) -> tuple[Read, str] | None:
    """Return who began a query, and its text; None for other lines, and for what is none."""
    try:
        record = json.loads(line)
        if record["state"] != "begins":
            return None
        return Read(str(record["user"])[:_LONGEST_NAME], datetime.fromisoformat(record["at"])), str(record["query"])
    except (*UNREADABLE, KeyError, TypeError, ValueError):
        return None
