"""Which version of each table was published, by the lake's own tables `state` and `names`: its name in SQL, and its state.

The tables of all streams as they were published last, or at a time: `headrace lake sql` shows the same as `silver` and `history`.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headrace.errors import NeedsOperator

Row = Mapping[str, Any]
_SUFFIX = 8


@dataclass(frozen=True)
class PublishedTable:
    """A table at a published version."""

    #: As SQL names it: `silver.accounts`, `history.accounts`.
    name: str
    #: Path under the lake's root.
    path: str
    version: int
    stream: str
    #: `schema.table` at the source.
    table: str
    #: Up to which position of each source its rows go.
    positions: dict[str, str]


def bronze_name(stream: str, streams: Collection[str]) -> str:
    """Return the name of a stream's table of bronze: SQL takes no `-`."""
    name = stream.replace("-", "_")
    taken = name != stream and name in streams
    return f"{name}_{hashlib.sha256(stream.encode()).hexdigest()[:_SUFFIX]}" if taken else name


def is_gone(then: Row, newest: Row) -> bool:
    """Whether a table is no more what it was: it was dropped, or made again, which gave it versions of its own."""
    return newest.get("dropped") is not None or (newest.get("since") or 0) > then["load"]


def tables(states: Iterable[Row], names: Iterable[Row], as_of: datetime | None = None) -> dict[str, PublishedTable]:
    """Return all tables by name, as published last, or by a time; raise NeedsOperator when nothing was published by then."""
    newest: dict[tuple[str, str | None], Row] = {}
    then: dict[tuple[str, str | None], Row] = {}
    for row in states:
        key = (row["stream"], row["table"])
        if key not in newest or newest[key]["load"] < row["load"]:
            newest[key] = row
        if (as_of is None or row["finished_at"] <= as_of) and (key not in then or then[key]["load"] < row["load"]):
            then[key] = row
    if not then:
        when = f" by {as_of.isoformat()}" if as_of is not None else " yet"
        raise NeedsOperator(
            f"nothing is published{when}", hint="Name a later time, or load a stream: 'headrace lake load'."
        )
    named = {(row["stream"], row["table"]): row["name"] for row in names}
    found: dict[str, PublishedTable] = {}
    for (stream, table), row in then.items():
        if table is None or is_gone(row, newest[stream, table]) or (stream, table) not in named:
            continue
        own = (
            then[stream, None]["positions"] if row["positions"] is None and (stream, None) in then else row["positions"]
        )
        for database, version, folder in (
            ("silver", row["version"], row["path"]),
            ("history", row["history"], f"history/{row['path'].partition('/')[2]}" if row["path"] else None),
        ):
            if version is not None and folder:
                name = f"{database}.{named[stream, table]}"
                found[name.casefold()] = PublishedTable(name, folder, version, stream, table, dict(own or {}))
    return found


#: Every state, so that one that no table has can be counted as 0.
TABLE_STATES = ("published", "behind", "copying", "stopped", "not made")


def table_state(*, reason: str | None, copying: Mapping[str, str], version: int | None, behind: bool) -> str:
    """Return the state of a table that stopped for a `reason`, is copied, or has a version that may be `behind` its stream's."""
    if reason:
        return "stopped"
    if copying:
        return "copying"
    if version is None:
        return "not made"
    return "behind" if behind else "published"
