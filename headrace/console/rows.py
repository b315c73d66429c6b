"""A source as the pages show it: seven hops from the database to silver, each with a state, a figure and a sentence.

Pure: computed for each page from what is known of bridges and lake. States are `ok`, `warn`, `bad`, `idle` (nothing to do here)
and `unknown`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from headrace.console.bridges import BridgesView, SourceSeen
from headrace.console.lake import LakeView
from headrace.status.answer import SourceStatus
from headrace.status.table import duration, size

HOPS = ("database", "edge", "interconnect", "bridge", "Kafka", "bronze", "silver")
#: From the worst down.
STATES = ("bad", "warn", "unknown", "idle", "ok")
IN_WORDS = {"bad": "failing", "warn": "needs attention", "unknown": "not known", "idle": "elsewhere", "ok": "well"}
#: A lag is worth a look, and is wrong, from so many seconds on; of the lake, which is loaded now and then, from more.
_WARN, _BAD = 60.0, 300.0
_LAKE_WARN = 86_400.0
#: Of the log that the source may still write, and of the spool, so much taken is worth a look.
_SHARE = 0.8


#: What is noted over time, of each source or of all; freshness of each stream too.
LAG, RATE, FRESH, FRESH_OF_STREAM, ALL = "lag", "rate", "freshness", "stream freshness", ""


class Hop(NamedTuple):
    """One hop of a source's path."""

    name: str
    state: str
    #: A word or two.
    word: str
    #: The figure that matters most there, at most seven characters; may be empty.
    figure: str = ""
    #: What the figure is, or why the state is what it is.
    detail: str = ""


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
    status = seen.status
    freshness = lake.lag("silver", status.source, status.position, now)
    hops = (*_hops(seen), _bronze(status, lake, now), _silver(status, lake, stream, freshness))
    return SourceRow(
        source=status.source,
        stream=stream,
        status=status,
        bridge=seen.bridge,
        hops=hops,
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


def _hops(seen: SourceSeen) -> tuple[Hop, ...]:
    """Return the hops from the database to Kafka, as the bridge reports them."""
    status = seen.status
    if seen.problem:
        # What it reported last may be wrong by now.
        late = [Hop(name, "unknown", "not known", "", "its bridge does not answer") for name in HOPS[:3]]
        return (
            *late,
            Hop("bridge", "bad", "no answer", "", seen.problem),
            Hop("Kafka", "unknown", "not known", "", "its bridge does not answer"),
        )
    if status.state in {"elsewhere", "not known", "stopped"}:
        state, why = {
            "elsewhere": ("idle", "another bridge serves it: name all bridges with --at"),
            "not known": ("unknown", "no bridge has reported it yet"),
            "stopped": ("warn", "the bridge has stopped serving it"),
        }[status.state]
        early = [Hop(name, "idle" if state == "idle" else "unknown", "not known") for name in HOPS[:3]]
        kafka = Hop("Kafka", "idle" if state == "idle" else "unknown", "not known")
        return (*early, Hop("bridge", state, status.state, "", why), kafka)
    return (_database(status), _edge(status), _interconnect(status), _bridge(status), _kafka(status))


def _database(status: SourceStatus) -> Hop:
    figure = size(status.retained_wal_bytes) if status.retained_wal_bytes is not None else ""
    kept = f"{figure}B of log kept for the edge" if figure else ""
    if status.edge_state == "database down":
        return Hop("database", "bad", "down", figure, _first(status) or "the edge cannot read its log")
    if status.edge_state in {"silent", "needs an operator", "stopped", None}:
        return Hop("database", "unknown", "not known", "", "its edge is not heard")
    safe, retained = status.safe_wal_bytes, status.retained_wal_bytes
    if safe is not None and retained is not None and retained > _SHARE * (safe + retained):
        return Hop(
            "database", "warn", "log fills", figure, f"{kept}; {size(safe)}B may still be written before it is lost"
        )
    return Hop("database", "ok", "read", figure, kept)


def _edge(status: SourceStatus) -> Hop:
    state, lag = status.edge_state, status.captured_lag_seconds
    figure = duration(lag) if lag is not None else ""
    if state is None or state == "silent":
        heard = f"not heard for {duration(status.heard_seconds)}" if status.heard_seconds is not None else "not heard yet"
        return Hop("edge", "bad", "silent", duration(status.heard_seconds) if status.heard_seconds else "", heard)
    if state in {"needs an operator", "stopped"}:
        return Hop("edge", "bad", state, "", _first(status) or "it has ended")
    if state == "starting":
        return Hop("edge", "warn", state, figure, _first(status))
    if status.spool_bytes is not None and status.spool_limit_bytes and status.spool_bytes > _SHARE * status.spool_limit_bytes:
        return Hop("edge", "warn", "spool fills", size(status.spool_bytes), "capture waits when its spool is full")
    level = _level(lag)
    if level != "ok":
        return Hop("edge", level, "behind", figure, f"reading is {figure} behind the source's log")
    if status.warnings:
        return Hop("edge", "warn", "warns", figure, _first(status))
    return Hop("edge", "ok", "captures", figure, f"{figure} behind the source's log" if figure else "")


def _interconnect(status: SourceStatus) -> Hop:
    state, lag = status.edge_state, status.accepted_lag_seconds
    waiting = status.unacknowledged_batches
    figure = duration(lag) if lag is not None else ""
    if state in {"interconnect down", "not acknowledged"}:
        return Hop("interconnect", "bad", "down" if state == "interconnect down" else "stuck", figure, _first(status))
    if state in {"silent", None}:
        return Hop("interconnect", "unknown", "not known", "", "its edge is not heard")
    if state in {"needs an operator", "stopped"}:
        return Hop("interconnect", "idle", "not in use", "", "its edge has ended")
    text = f"{waiting} batches are not accepted" if waiting else "everything sent is accepted"
    level = _level(lag)
    return Hop("interconnect", level, "delivers" if level == "ok" else "behind", figure, text)


def _bridge(status: SourceStatus) -> Hop:
    if status.state == "serving":
        figure = duration(status.heard_seconds) if status.heard_seconds is not None else ""
        return Hop("bridge", "ok", "serves", figure, f"heard {figure} ago" if figure else "")
    if status.state in {"gap", "needs an operator"}:
        return Hop("bridge", "bad", status.state, "", status.reason)
    return Hop("bridge", "warn", status.state, "", status.reason)


def _kafka(status: SourceStatus) -> Hop:
    lag = status.committed_lag_seconds
    figure = duration(lag) if lag is not None else ""
    if status.state == "waiting for Kafka":
        return Hop("Kafka", "bad", "waits", figure, status.reason)
    level = _level(lag)
    text = f"what is committed is {figure} behind the source's log" if figure else "nothing is known of its lag yet"
    return Hop("Kafka", level, "committed" if level == "ok" else "behind", figure, text)


def _bronze(status: SourceStatus, lake: LakeView, now: float) -> Hop:
    if not lake.configured:
        return Hop("bronze", "unknown", "no lake", "", "start the console with --lake to see it")
    reached = lake.reached.get(("bronze", status.source))
    lag = lake.lag("bronze", status.source, status.position, now)
    if reached is None or lag is None:
        return Hop("bronze", "unknown", "not loaded", "", lake.problem or "no load has brought anything of it")
    state, word = ("ok", "loaded") if lag < _LAKE_WARN else ("warn", "behind")
    loaded = duration(now - reached.finished_at.timestamp())
    return Hop("bronze", state, word, duration(lag), f"what it lacks is at most {duration(lag)} old; last new rows {loaded} ago")


def _silver(status: SourceStatus, lake: LakeView, stream: str, lag: float | None) -> Hop:
    if not lake.configured:
        return Hop("silver", "unknown", "no lake", "", "start the console with --lake to see it")
    own = [table for table in lake.tables if table.stream == stream]
    figure = duration(lag) if lag is not None else ""
    if stopped := [table.table for table in own if table.state == "stopped"]:
        return Hop("silver", "bad", "stopped", figure, f"tables that stopped: {_listed(stopped)}")
    if lag is None:
        return Hop("silver", "unknown", "not loaded", "", lake.problem or "nothing of it is published")
    if copying := [table.table for table in own if status.source in table.copying]:
        return Hop("silver", "warn", "copying", figure, f"copies under way: {_listed(copying)}")
    if lag >= _LAKE_WARN:
        return Hop("silver", "warn", "behind", figure, f"what is published is {figure} behind")
    return Hop("silver", "ok", "published", figure, f"what readers lack is at most {figure} old")


def _level(lag: float | None) -> str:
    if lag is None:
        return "unknown"
    return "ok" if lag < _WARN else "warn" if lag < _BAD else "bad"


def _first(status: SourceStatus) -> str:
    """Return what explains the state best."""
    return next(iter(status.warnings), status.reason)


def _listed(names: list[str]) -> str:
    return ", ".join(sorted(names)[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
