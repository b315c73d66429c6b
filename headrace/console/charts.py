"""Which figures the charts show: from Prometheus where one is configured and answers, else from the console's own memory.

A Prometheus that scrapes the bridges, where `--prometheus` names one, only widens the charts: every page works without it, and
one that does not answer is named on the page. In memory are the figures since the console started: rings of fixed size, so that
a thousand sources cost a few megabytes.
"""

import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from headrace.console import plots, sources
from headrace.console.lake_view import Load
from headrace.console.plots import Bar, Line, Point
from headrace.console.table_detail import Version
from headrace.errors import ConfigurationError, NotConnected
from headrace.status.table import duration

#: Seconds between two points, and how many points are kept: two hours.
STEP = 10.0
POINTS = 720


class _Ring:
    """The last values of one figure, by the number of their step."""

    __slots__ = ("first", "last", "values")

    def __init__(self, step: int) -> None:
        self.first = self.last = step
        self.values = array("f", [math.nan]) * POINTS

    def put(self, step: int, value: float | None) -> None:
        for missed in range(max(self.last + 1, step - POINTS + 1), step):
            self.values[missed % POINTS] = math.nan
        self.values[step % POINTS] = math.nan if value is None else value
        self.last = step

    def points(self, since: int) -> Iterable[Point]:
        for step in range(max(self.first, since, self.last - POINTS + 1), self.last + 1):
            value = self.values[step % POINTS]
            yield step * STEP, None if math.isnan(value) else value


class History:
    """Figures by a key of two: what, and of whom: `("lag", "jakarta/bank")`."""

    def __init__(self) -> None:
        self._rings: dict[tuple[str, str], _Ring] = {}

    def record(self, figures: Mapping[tuple[str, str], float | None], at: float | None = None) -> None:
        """Note figures of one moment, in seconds since 1970; now when none is given."""
        step = int((time.time() if at is None else at) // STEP)
        for key, value in figures.items():
            ring = self._rings.get(key)
            if ring is None:
                if value is None:
                    continue
                ring = self._rings[key] = _Ring(step)
            ring.put(step, value)
        for key in [key for key, ring in self._rings.items() if step - ring.last > POINTS]:
            del self._rings[key]

    def series(self, what: str, whom: str, seconds: float) -> list[Point]:
        """Return the points of the last `seconds`, oldest first; empty when nothing was noted."""
        ring = self._rings.get((what, whom))
        return [] if ring is None else list(ring.points(int((time.time() - seconds) // STEP)))


_TIMEOUT = 2.0
#: Points of a chart.
_POINTS = 240
#: After it did not answer, Prometheus is left alone for so many seconds: a page must not wait for each chart.
_PAUSE = 15.0


class Prometheus:
    """A server by its URL."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigurationError(f"--prometheus {url}: expected a URL such as http://127.0.0.1:9090")
        self.url = url.rstrip("/")
        #: For people: without a name and a password.
        self.shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        self._silent: tuple[float, str] = (0.0, "")

    def series(self, query: str, seconds: float) -> list[Point]:
        """Return the points of a query that gives one series, over the last `seconds`; raise NotConnected without an answer."""
        since, why = self._silent
        if time.monotonic() - since < _PAUSE and why:
            raise NotConnected(why)
        now = time.time()
        step = max(5.0, seconds / _POINTS)
        asked = urllib.parse.urlencode({"query": query, "start": now - seconds, "end": now, "step": step})
        try:
            # The scheme was checked.
            with urllib.request.urlopen(f"{self.url}/api/v1/query_range?{asked}", timeout=_TIMEOUT) as answer:  # noqa: S310
                found = json.load(answer)["data"]["result"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = getattr(error, "reason", None) or error
            why = f"Prometheus at {self.shown} does not answer: {reason}"
            self._silent = (time.monotonic(), why)
            raise NotConnected(why) from error
        self._silent = (0.0, "")
        return _filled(found[0]["values"], step) if found else []


def _filled(values: list[tuple[float, str]], step: float) -> list[Point]:
    """Return points with a hole wherever Prometheus had none."""
    points: list[Point] = []
    for at, text in values:
        if points and at - points[-1][0] > 1.5 * step:
            points.append((points[-1][0] + step, None))
        value = float(text)
        points.append((at, value if value == value else None))  # noqa: PLR0124 - not a number.
    return points


def quoted(text: str) -> str:
    """Return a label's value as PromQL takes it."""
    return json.dumps(text)


Unit = Callable[[float], str]


class Plot(NamedTuple):
    """A chart with its heading, what it shows in words, and the names of its lines where there are several."""

    title: str
    note: str
    svg: Markup
    names: tuple[str, ...] = ()


class Charts:
    """Makes the charts over time."""

    def __init__(self, history: History, prometheus: Prometheus | None) -> None:
        self._history = history
        self._prometheus = prometheus

    def of_source(self, source: str, seconds: float) -> tuple[list[Plot], str]:
        """Return the charts of a source, and a notice where Prometheus did not answer."""
        label = quoted(source)
        return self._made(
            [
                ("Lag", "what is committed in Kafka, behind the source's log", plots.seconds_text,
                 [("lag", sources.LAG, source, f"max(headrace_bridge_lag_seconds{{source={label}}})")]),
                ("Records per second", "committed in Kafka", plots.count,
                 [("rate", sources.RATE, source, f"sum(rate(headrace_bridge_committed_records_total{{source={label}}}[1m]))")]),
                ("Freshness of silver", "how old what readers lack may be", plots.seconds_text,
                 [("freshness", sources.FRESH, source, f"max(headrace_lake_freshness_seconds{{source={label}}})")]),
            ],
            seconds,
        )  # fmt: skip

    def of_all(self, streams: Sequence[str], seconds: float) -> tuple[list[Plot], str]:
        """Return the charts of all sources together, freshness by stream, and a notice as above."""
        fresh = [
            (name, sources.FRESH_OF_STREAM, name, f"max(headrace_lake_freshness_seconds{{stream={quoted(name)}}})")
            for name in streams[: plots.MOST_LINES]
        ]
        return self._made(
            [
                ("Worst lag", "of all sources: what is committed in Kafka, behind the source's log", plots.seconds_text,
                 [("worst lag", sources.LAG, sources.ALL, "max(headrace_bridge_lag_seconds)")]),
                ("Records per second", "of all sources, committed in Kafka", plots.count,
                 [("rate", sources.RATE, sources.ALL, "sum(rate(headrace_bridge_committed_records_total[1m]))")]),
                ("Freshness of silver", "of each stream: how old what readers lack may be", plots.seconds_text,
                 fresh or [("freshness", sources.FRESH_OF_STREAM, "", "")]),
            ],
            seconds,
        )  # fmt: skip

    def _made(
        self, wanted: list[tuple[str, str, Unit, list[tuple[str, str, str, str]]]], seconds: float
    ) -> tuple[list[Plot], str]:
        notice, made = "", []
        for title, note, unit, series in wanted:
            lines = []
            for name, what, whom, query in series:
                points, problem = self._points(what, whom, query, seconds)
                notice = notice or problem
                lines.append(Line(name, points))
            names = tuple(line.name for line in lines) if len(lines) > 1 else ()
            made.append(Plot(title, note, plots.lines(title, lines, seconds, unit), names))
        return made, notice

    def _points(self, what: str, whom: str, query: str, seconds: float) -> tuple[Sequence[Point], str]:
        problem = ""
        if self._prometheus is not None and query:
            try:
                if points := self._prometheus.series(query, seconds):
                    return points, ""
            except NotConnected as error:
                problem = error.message
        return self._history.series(what, whom, seconds), problem


def of_loads(loads: Sequence[Load], seconds: float) -> list[Plot]:
    """Return the charts of loads: how long each step took, and how many rows it wrote."""
    kinds = {"bronze": 0, "silver": 1}
    took, wrote = [], []
    for load in loads:
        at, kind = load.finished_at.timestamp(), kinds.get(load.step, 2)
        text = f"{load.step} {load.stream}, {load.finished_at:%Y-%m-%d %H:%M:%S} UTC"
        took.append(Bar(at, load.seconds, f"{text}: {duration(load.seconds)}", kind))
        wrote.append(Bar(at, float(load.rows), f"{text}: {load.rows:,} rows", kind))
    names = ("bronze", "silver")
    return [
        Plot("Duration", "of each step", plots.bars("Duration", took, seconds, plots.seconds_text), names),
        Plot("Rows", "written by each step", plots.bars("Rows", wrote, seconds, plots.count), names),
    ]


def of_versions(versions: Sequence[Version], seconds: float) -> list[Plot]:
    """Return the charts of a table's published versions, newest first: when each came, and how many changes its load applied."""
    since, points, changes = time.time() - seconds, [], []
    for version in reversed(versions):
        if version.at is None or version.at.timestamp() < since:
            continue
        at = version.at.timestamp()
        text = f"version {version.version}, load {version.load}, {version.at:%Y-%m-%d %H:%M:%S} UTC: {version.changes:,} changes"
        points.append((at, float(version.version)))
        changes.append(Bar(at, float(version.changes), text))
    line = plots.lines("Version", [Line("version", points)], seconds, plots.count, plots.WIDE)
    bars = plots.bars("Changes", changes, seconds, plots.count)
    return [
        Plot("Version", "by its number, as published", line),
        Plot("Changes", "that the load of each applied", bars),
    ]
