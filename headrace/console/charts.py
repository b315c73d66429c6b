"""Which figures the charts show: from Prometheus where one is configured and answers, else from the console's own memory."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from headrace.console import plots, rows
from headrace.console.lake import Load
from headrace.console.plots import Bar, Line
from headrace.console.prometheus import History, Point, Prometheus, quoted
from headrace.errors import NotConnected
from headrace.status.table import duration

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
                 [("lag", rows.LAG, source, f"max(headrace_bridge_lag_seconds{{source={label}}})")]),
                ("Records per second", "committed in Kafka", plots.count,
                 [("rate", rows.RATE, source, f"sum(rate(headrace_bridge_committed_records_total{{source={label}}}[1m]))")]),
                ("Freshness of silver", "how old what readers lack may be", plots.seconds_text,
                 [("freshness", rows.FRESH, source, f"max(headrace_lake_freshness_seconds{{source={label}}})")]),
            ],
            seconds,
        )  # fmt: skip

    def of_all(self, streams: Sequence[str], seconds: float) -> tuple[list[Plot], str]:
        """Return the charts of all sources together, freshness by stream, and a notice as above."""
        fresh = [
            (name, rows.FRESH_OF_STREAM, name, f"max(headrace_lake_freshness_seconds{{stream={quoted(name)}}})")
            for name in streams[: plots.MOST_LINES]
        ]
        return self._made(
            [
                ("Worst lag", "of all sources: what is committed in Kafka, behind the source's log", plots.seconds_text,
                 [("worst lag", rows.LAG, rows.ALL, "max(headrace_bridge_lag_seconds)")]),
                ("Records per second", "of all sources, committed in Kafka", plots.count,
                 [("rate", rows.RATE, rows.ALL, "sum(rate(headrace_bridge_committed_records_total[1m]))")]),
                ("Freshness of silver", "of each stream: how old what readers lack may be", plots.seconds_text,
                 fresh or [("freshness", rows.FRESH_OF_STREAM, "", "")]),
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
