"""The sources as the pages show them: each with its seven hops and the command to run next, and which of them a page lists.

Pure: computed for each page from what is known of bridges and lake. The filter and the order are those that the address names.
Commands are what an operator would look up in docs/trouble.md; none is run from the pages: it is shown to be copied.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import urlencode

from headrace.console import hops
from headrace.console.bridges import BridgesView, SourceSeen
from headrace.console.hops import Hop
from headrace.console.lake_view import LakeView, TablePublished, Verdict
from headrace.status.answer import SourceStatus

#: From the worst down.
STATES = ("bad", "warn", "unknown", "idle", "ok")
IN_WORDS = {"bad": "failing", "warn": "needs attention", "unknown": "not known", "idle": "elsewhere", "ok": "well"}
#: What is noted over time, of each source or of all; freshness of each stream too.
LAG, RATE, FRESH, FRESH_OF_STREAM, ALL = "lag", "rate", "freshness", "stream freshness", ""


@dataclass(frozen=True, kw_only=True)
class SourceRow:
    """A source on a page."""

    source: str
    stream: str
    status: SourceStatus
    #: The bridge that serves it, by its address.
    bridge: str
    hops: tuple[Hop, ...]
    #: How old what readers of silver lack may be, in seconds; None without a lake.
    freshness: float | None

    @property
    def state(self) -> str:
        """The worst state of its hops: a hop that is not known counts only where the source is not known at all."""
        found = {hop.state for hop in self.hops}
        if "bad" in found or "warn" in found:
            return "bad" if "bad" in found else "warn"
        return self.hops[3].state if self.hops[3].state in {"unknown", "idle"} else "ok"

    @property
    def why(self) -> str:
        """What is wrong, at the first hop that has something; empty while nothing is."""
        wrong = [hop for hop in self.hops if hop.state == self.state and hop.state in {"bad", "warn"}]
        return f"{wrong[0].name}: {wrong[0].detail or wrong[0].word}" if wrong else ""


def rows(bridges: BridgesView, lake: LakeView, streams: dict[str, str]) -> list[SourceRow]:
    """Return all sources by name; `streams` is the stream of each, by the bridges' file."""
    return [row(seen, lake, streams.get(name, ""), bridges.at) for name, seen in sorted(bridges.sources.items())]


def row(seen: SourceSeen, lake: LakeView, stream: str, now: float) -> SourceRow:
    """Return one source."""
    status, is_heard = seen.status, not seen.problem
    freshness = lake.lag("silver", status.source, status.position, now, is_heard=is_heard)
    path = (
        *hops.to_kafka(seen),
        hops.bronze(status, lake, now, is_heard=is_heard),
        hops.silver(status, lake, stream, freshness),
    )
    return SourceRow(
        source=status.source,
        stream=stream,
        status=status,
        bridge=seen.bridge,
        hops=path,
        freshness=freshness,
    )


def counts(found: Iterable[SourceRow]) -> dict[str, int]:
    """Return how many sources are in each state, from the worst down."""
    counted = dict.fromkeys(STATES, 0)
    for each in found:
        counted[each.state] += 1
    return counted


def figures(found: Iterable[SourceRow]) -> dict[tuple[str, str], float | None]:
    """Return what charts show over time: lag, rate and freshness of each source; the worst lag and the rate of all."""
    noted: dict[tuple[str, str], float | None] = {}
    worst: dict[str, float] = {}
    lags, rates = [], []
    for each in found:
        # What a bridge that does not answer reported last is no figure of now.
        heard = each.hops[3].state != "bad" or each.status.state not in {"serving", "elsewhere"}
        lag = each.status.committed_lag_seconds if heard else None
        rate = each.status.records_per_second if heard else None
        noted[LAG, each.source], noted[RATE, each.source], noted[FRESH, each.source] = lag, rate, each.freshness
        lags += [lag] if lag is not None else []
        rates += [rate] if rate is not None else []
        if each.freshness is not None and each.stream:
            worst[each.stream] = max(each.freshness, worst.get(each.stream, 0.0))
    noted[LAG, ALL] = max(lags, default=None)
    noted[RATE, ALL] = sum(rates) if rates else None
    return noted | {(FRESH_OF_STREAM, stream): value for stream, value in worst.items()}


class Step(NamedTuple):
    """What to do, and the command for it."""

    why: str
    command: str
    #: Where it is to be run: headquarters, or the source's region.
    where: str = "At headquarters"


class Files(NamedTuple):
    """The files that the console was started with, as commands name them."""

    bridge: str
    lake: str | None


def steps_of_source(row: SourceRow, lake: LakeView, files: Files) -> list[Step]:
    """Return what to do for a source, the most pressing first; empty when all is well."""
    bridge, source = shlex.quote(files.bridge), shlex.quote(row.source)
    states = {hop.name: hop for hop in row.hops}
    steps = []
    if states["bridge"].state == "bad":
        steps.append(Step(_sentence(states["bridge"].detail), f"headrace bridge doctor --config {bridge}"))
    elif states["Kafka"].state == "bad":
        steps.append(Step(_sentence(states["Kafka"].detail), f"headrace bridge doctor --config {bridge}"))
    elif states["bridge"].word == "starting":
        steps.append(Step("The bridge is taking the source over.", f"headrace bridge positions --config {bridge}"))
    edge = states["edge"]
    if edge.word == "silent":
        steps += [
            Step("The edge is not heard: is its process running, and can it reach headquarters?",
                 "headrace status --config edge.toml", "In its region"),
            Step("Look at everything that the edge needs.", "headrace edge doctor --config edge.toml", "In its region"),
        ]  # fmt: skip
    elif edge.state == "bad" and edge.word in {"needs an operator", "stopped"}:
        steps.append(Step(_sentence(edge.detail), "headrace edge doctor --config edge.toml", "In its region"))
    elif "bad" in {states[name].state for name in ("database", "edge", "interconnect")} or edge.state == "warn":
        wrong = next(hop for hop in row.hops[:3] if hop.state in {"bad", "warn"})
        # Its words name the command that copies the table.
        ask = "snapshot --status" if "edge snapshot" in wrong.detail or "the copy of" in wrong.detail else "doctor"
        steps.append(Step(_sentence(wrong.detail), f"headrace ask {source} {ask} --config {bridge}"))
    elif states["database"].state == "warn":
        steps.append(Step(_sentence(states["database"].detail), f"headrace ask {source} status --config {bridge}"))
    return steps + (_of_lake(row, lake, files.lake) if files.lake is not None else [])


def step_of_table(table: TablePublished, files: Files) -> Step | None:
    """Return what to do for a table that is not published whole; None when it is."""
    if files.lake is None:
        return None
    lake = shlex.quote(files.lake)
    if table.state == "stopped":
        return Step(_sentence(table.reason), _past_stop(table, lake))
    if table.state in {"behind", "not made"}:
        return Step("The next load brings it up.", f"headrace lake load {table.stream} --config {lake}")
    return None


def _past_stop(table: TablePublished, lake: str) -> str:
    """Return the command to run next for a table that stopped: its reason names what is to be done, and what comes first."""
    name = shlex.quote(table.table)
    if "on_unsupported" not in table.reason:
        if "edge snapshot" in table.reason and table.positions:
            # Rebuilt from a copy that has to come first.
            source = shlex.quote(min(table.held_back or table.positions))
            return f"headrace ask {source} snapshot --replace {name} --config {lake}"
        if "lake replay" in table.reason:
            return f"headrace lake replay {table.stream} --config {lake}"
    # What is to be changed is at the source, or in a file.
    return f"headrace lake load {table.stream} --config {lake}"


def _of_lake(row: SourceRow, lake: LakeView, file: str) -> list[Step]:
    path = shlex.quote(file)
    own = lake.tables_of(row.stream, row.source)
    stopped = (step_of_table(table, Files("", file)) for table in own if table.is_stopped_for(row.source))
    steps = [step for step in stopped if step is not None]
    if row.stream and any(hop.state == "warn" and hop.word == "behind" for hop in row.hops[5:]):
        steps.append(Step("The lake is behind: load the stream.", f"headrace lake load {row.stream} --config {path}"))
    verified = lake.verdicts_of_source(row.stream, row.source)
    differ = [table for table, found in verified.items() if found.verdict == "not equal"]
    verify = f"headrace verify {row.stream} --source {shlex.quote(row.source)} --config {path}"
    if differ:
        steps.append(Step(f"Verification found a difference in {', '.join(sorted(differ)[:3])}.", verify))
    elif own and lake.verdicts and not verified:
        steps.append(Step("No verification of this source is recorded.", verify))
    return steps


def _sentence(text: str) -> str:
    text = text.strip().rstrip(".")
    return f"{text[:1].upper()}{text[1:]}." if text else "Look at what is wrong."


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
        page=int(page) if page.isdecimal() and len(page) < 5 and int(page) else 1,
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
    found = [one for one in lake.verdicts_of_table(table.stream, table.table).values() if one.verdict in order]
    return min(found, key=lambda one: (order.index(one.verdict), one.verified_at), default=None)
