"""A source as the pages show it, with its seven hops, and what is noted of all of them over time.

Pure: computed for each page from what is known of bridges and lake.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.console import hops
from headrace.console.bridges import BridgesView, SourceSeen
from headrace.console.hops import Hop
from headrace.console.lake import LakeView
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
