"""Places in a binlog, and whether there is anything of the compared databases between two of them.

A position's commit is the number of the binlog file (upper 32 bits) and the offset at which the transaction's GTID event ends
(lower 32 bits); a snapshot's place is where the next GTID event begins. So the commits of what it sees are below it, all others
above. Called by database.py.
"""

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from headrace.errors import Retryable
from headrace.verify.comparison import Place

Ask = Callable[[str], list[tuple[Any, ...]]]

#: From here on positions of a file's transactions are counted.
_COUNTED = 0xFFFF0000
#: Events that are looked at, at a time and in all. The server lets nobody commit while it lists a page of them, and what is so
#: much is not idle.
_PAGE, _MOST = 500, 2000
_NUMBERED = re.compile(r"(.*)\.(\d+)")
_TABLE = re.compile(r"table_id: \d+ \((.*)\)", re.DOTALL)
#: Events that begin a transaction.
_BEGINS = {"Gtid", "Anonymous_Gtid", "Gtid_tagged_log_event"}
#: Events that change no row: of the log itself, of transactions, and optional ones next to row events.
_HARMLESS = {
    "Format_desc", "Rotate", "Stop", "Previous_gtids", "Gtid_list", "Binlog_checkpoint", *_BEGINS,
    "Annotate_rows", "Rows_query", "Xid", "Start_encryption",
}  # fmt: skip
#: DDL of which the edge may make records.
_EMPTIES = re.compile(r"\b(truncate|drop|replace|rename)\b", re.IGNORECASE)


def place(file: str, offset: int) -> Place:
    """Return the place of a snapshot; raise Retryable where positions are no offsets any more."""
    if offset >= _COUNTED:
        raise Retryable(
            f"the binlog's file {file} is so large, {offset} bytes, that its transactions have no places of their own",
            hint="Verify again when the server has begun the next file; FLUSH BINARY LOGS begins it.",
        )
    return Place(_number_of(file) << 32 | offset, f"{file}:{offset}")


def idle(
    ask: Ask, captured: Callable[[str, str], bool], commit: int, upto: Place, sequences: Collection[str] = frozenset()
) -> bool:
    """Whether no transaction after the one with this commit, up to a place, has changes of tables that are captured.

    Changes of `sequences`, named `database.sequence`, are none.
    What cannot be read, for lack of a privilege or because there is much, counts as a change.
    """
    beyond = False
    for seen, (kind, info) in enumerate(_events(ask, commit, upto)):
        if seen > _MOST:
            return False
        if kind in _BEGINS:
            beyond = True
        if not beyond or kind in _HARMLESS:
            continue
        if kind == "Table_map":
            if _may_be_captured(info, captured, sequences):
                return False
        elif kind == "Query":
            if _EMPTIES.search(info):
                return False
        elif "rows" not in kind.lower():
            return False
    return True


def _may_be_captured(info: str, captured: Callable[[str, str], bool], sequences: Collection[str]) -> bool:
    match = _TABLE.fullmatch(info)
    if match is None:
        return True
    return match[1] not in sequences and any(captured(*names) for names in _names(match[1]))


def _events(ask: Ask, commit: int, upto: Place) -> Iterator[tuple[str, str]]:
    """Yield the events behind a transaction's GTID event up to a place, each with the server's description."""
    first, last = commit >> 32, upto.commit >> 32
    files = [str(row[0]) for row in ask("SHOW BINARY LOGS")]
    between = [file for file in files if first <= _number_of(file) <= last]
    if len(between) != last - first + 1:
        # What was between is purged, or this is another server.
        yield "Unknown", ""
    for file in between:
        at = commit & 0xFFFFFFFF if _number_of(file) == first else 4
        end = upto.commit & 0xFFFFFFFF if _number_of(file) == last else None
        while end is None or at < end:
            page = ask(f"SHOW BINLOG EVENTS IN '{file}' FROM {at} LIMIT {_PAGE}")
            # Where an event ends is not always reported: the next page begins with the last event of this one.
            whole = len(page) < _PAGE
            for _, offset, kind, _, _, info in page if whole else page[:-1]:
                if end is not None and int(offset) >= end:
                    return
                yield str(kind), str(info)
            if whole:
                break
            at = int(page[-1][1])


def _names(table: str) -> list[tuple[str, str]]:
    """Return the databases and tables that `database.table` may mean: either name may hold points."""
    parts = table.split(".")
    return [(".".join(parts[:number]), ".".join(parts[number:])) for number in range(1, len(parts))]


def _number_of(file: str) -> int:
    match = _NUMBERED.fullmatch(file)
    return int(match[2]) if match else 0
