"""Which sources a page lists, and in which order: the filter and the sorting that the address names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import urlencode

from headrace.console.lake import LakeView, TablePublished, Verdict
from headrace.console.next_steps import Step
from headrace.console.rows import STATES, SourceRow

#: Sources on one page.
PAGE = 100
_KEYS: dict[str, Callable[[SourceRow], Any]] = {
    "state": lambda row: STATES.index(row.state),
    "source": lambda row: row.source,
    "stream": lambda row: row.stream,
    "rate": lambda row: -(row.status.records_per_second or 0.0),
    "lag": lambda row: -(row.status.committed_lag_seconds or 0.0),
    "fresh": lambda row: -(row.freshness if row.freshness is not None else -1.0),
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What an address asks for."""

    text: str = ""
    state: str = ""
    stream: str = ""
    sort: str = "state"
    reverse: bool = False
    page: int = 1

    def link(self, **changes: Any) -> str:
        """Return the address of the same list with something changed; another filter or order begins at the first page."""
        other = replace(self, **{"page": 1} | changes)
        given = {
            "q": other.text,
            "state": other.state,
            "stream": other.stream,
            "sort": other.sort if other.sort != "state" else "",
            "reverse": "1" if other.reverse else "",
            "page": other.page if other.page > 1 else "",
        }
        query = urlencode({name: value for name, value in given.items() if value})
        return f"/?{query}" if query else "/"

    def sorting(self, key: str) -> str:
        """Return the address that sorts by a column; again by the same one turns the order."""
        return self.link(sort=key, reverse=not self.reverse if self.sort == key else False)


@dataclass(frozen=True, kw_only=True)
class Listed:
    """What is listed of it."""

    rows: list[SourceRow]
    matching: int
    page: int
    pages: int


class TableLine(NamedTuple):
    """A table of the lake in a list."""

    table: TablePublished
    #: The worst of its sources' last verdicts; None where none is recorded.
    verdict: Verdict | None
    step: Step | None


def asked(query: Mapping[str, str]) -> Asked:
    """Return what a query asks for; what it cannot mean counts as not given."""
    page, sort, state = query.get("page", "1"), query.get("sort", ""), query.get("state", "")
    return Asked(
        text=query.get("q", "").strip()[:200],
        state=state if state in STATES else "",
        stream=query.get("stream", ""),
        sort=sort if sort in _KEYS else "state",
        reverse=query.get("reverse") == "1",
        page=int(page) if page.isdecimal() and 0 < int(page) < 10_000 else 1,
    )


def listed(found: list[SourceRow], wish: Asked) -> Listed:
    """Return the page of sources that is asked for."""
    text = wish.text.casefold()
    matching = [
        row
        for row in found
        if text in row.source.casefold() and wish.state in {"", row.state} and wish.stream in {"", row.stream}
    ]
    # Within equal ones by name, whichever the order is.
    matching.sort(key=lambda row: row.source)
    matching.sort(key=_KEYS[wish.sort], reverse=wish.reverse)
    pages = max(1, -(-len(matching) // PAGE))
    page = min(wish.page, pages)
    return Listed(rows=matching[(page - 1) * PAGE : page * PAGE], matching=len(matching), page=page, pages=pages)


def verdict(lake: LakeView, table: TablePublished) -> Verdict | None:
    """Return the worst of the last verdicts of a table's sources, the oldest of several."""
    order = ("not equal", "not compared", "equal")
    found = [
        one
        for (stream, _, name), one in lake.verdicts.items()
        if (stream, name) == (table.stream, table.table) and one.verdict in order
    ]
    return min(found, key=lambda one: (order.index(one.verdict), one.verified_at), default=None)
