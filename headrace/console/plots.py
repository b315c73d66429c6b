"""Charts as inline SVG: lines over time and bars, with a title and a description for screen readers.

Colours come from the style sheet by class, so that charts follow the theme; nothing here has a `style` attribute, which the
pages' Content-Security-Policy refuses.

How values are written on the pages.
"""

import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from headrace.status.table import cores, duration, size

#: Units of a chart's own; the page scales it to its column.
NARROW, WIDE, HEIGHT = 420, 620, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 10, 12, 26
#: Steps of an axis of seconds, and of the time below: what clocks show.
_CLOCK = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800)
#: Width of a bar.
_BAR = 2.6
#: Divisions of an axis of time, about.
_TIMES = 5
#: Lines of one chart: each has a colour and a pattern of dashes of its own.
MOST_LINES = 6

#: Seconds since 1970 and a value; None where it was not known.
Point = tuple[float, float | None]


class Line(NamedTuple):
    """A series of a chart."""

    name: str
    points: Sequence[Point]


class Bar(NamedTuple):
    """A bar of a chart: where it is in time, how high it is, and what a pointer on it shows."""

    at: float
    value: float
    text: str
    kind: int = 0


def lines(
    title: str, series: Sequence[Line], seconds: float, unit: Callable[[float], str], width: int = NARROW
) -> Markup:
    """Return a chart of the last `seconds`; one without points shows that."""
    now = time.time()
    known = [value for line in series for _, value in line.points if value is not None]
    if not known:
        return _frame(title, _nothing("No figures yet.", width), "No figures yet.", width)
    top, ticks = _scale(max(known), unit)
    parts = [*_grid(ticks, top, unit, width), *_times(now, seconds, width)]
    for number, line in enumerate(series[:MOST_LINES]):
        for piece in _pieces(line.points):
            path = " ".join(f"{_x(at, now, seconds, width):.1f},{_y(value, top):.1f}" for at, value in piece)
            if len(piece) == 1:
                at, value = piece[0]
                parts.append(
                    f'<circle class="dot s{number}" cx="{_x(at, now, seconds, width):.1f}" cy="{_y(value, top):.1f}" r="2"/>'
                )
            else:
                parts.append(f'<polyline class="line s{number}" points="{path}"/>')
    return _frame(title, Markup("".join(parts)), _described(series, unit), width)  # noqa: S704 - of numbers and escaped texts.


def bars(title: str, found: Sequence[Bar], seconds: float, unit: Callable[[float], str], width: int = WIDE) -> Markup:
    """Return a chart of bars over the last `seconds`."""
    now = time.time()
    shown = [bar for bar in found if bar.at >= now - seconds]
    if not shown:
        return _frame(title, _nothing("Nothing in this time.", width), "Nothing in this time.", width)
    top, ticks = _scale(max(bar.value for bar in shown), unit)
    parts = [*_grid(ticks, top, unit, width), *_times(now, seconds, width)]
    for bar in shown:
        # Next to each other by kind, since steps of one load end at about the same time.
        x, y = _x(bar.at, now, seconds, width) + _BAR * (bar.kind - 1), _y(bar.value, top)
        height = max(1.0, HEIGHT - _BOTTOM - y)
        size = f'x="{x:.1f}" y="{HEIGHT - _BOTTOM - height:.1f}" width="{_BAR}" height="{height:.1f}"'
        parts.append(f'<rect class="bar s{bar.kind}" {size}><title>{escape(bar.text)}</title></rect>')
    text = f"{len(shown)} bars, the highest {unit(max(bar.value for bar in shown))}."
    return _frame(title, Markup("".join(parts)), text, width)  # noqa: S704 - as above.


def count(value: float) -> str:
    """Return a number in at most five characters."""
    for least, unit, each in ((1e9, "G", 1e9), (1e6, "M", 1e6), (1e4, "k", 1e3)):
        if value >= least:
            return f"{value / each:.3g}{unit}"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _frame(title: str, inside: Markup, text: str, width: int) -> Markup:
    template = (
        '<svg class="chart" viewBox="0 0 {width} {height}" role="img" preserveAspectRatio="xMidYMid meet">'
        "<title>{title}</title><desc>{text}</desc>{inside}</svg>"
    )
    return Markup(template).format(width=width, height=HEIGHT, title=title, text=text, inside=inside)  # noqa: S704 - escapes.


def _nothing(text: str, width: int) -> Markup:
    template = '<text class="nothing" x="{x}" y="{y}" text-anchor="middle">{text}</text>'
    return Markup(template).format(x=width // 2, y=HEIGHT // 2, text=text)  # noqa: S704 - escapes.


def _described(series: Sequence[Line], unit: Callable[[float], str]) -> str:
    texts = []
    for line in series:
        known = [value for _, value in line.points if value is not None]
        if known:
            texts.append(f"{line.name}: now {unit(known[-1])}, at most {unit(max(known))}.")
    return " ".join(texts)


def _scale(highest: float, unit: Callable[[float], str]) -> tuple[float, list[float]]:
    """Return the top of the axis and its ticks: round numbers, three to six of them."""
    if highest <= 0:
        return 1.0, [0.0, 1.0]
    rough = highest / 4
    power = 10 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough)
    if unit is seconds_text and step >= 1:
        step = next((each for each in _CLOCK if each >= rough), step)
    ticks = [step * number for number in range(math.ceil(highest / step) + 1)]
    return ticks[-1], ticks


def _grid(ticks: Sequence[float], top: float, unit: Callable[[float], str], width: int) -> list[str]:
    parts = []
    for tick in ticks:
        y = _y(tick, top)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(unit(tick))}</text>'
        )
    return parts


def _times(now: float, seconds: float, width: int) -> list[str]:
    """Return round times below the chart."""
    step = next((each for each in _CLOCK if each >= seconds / _TIMES), _CLOCK[-1])
    parts = []
    at = math.ceil((now - seconds) / step) * step
    while at <= now:
        x = _x(at, now, seconds, width)
        # One at the edge would be cut off.
        if _LEFT + 12 <= x <= width - _RIGHT - 12:
            text = f"{datetime.fromtimestamp(at, UTC):{'%H:%M' if seconds <= 86_400 else '%d %b'}}"
            parts.append(f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{text}</text>')
        at += step
    return parts


def _pieces(points: Sequence[Point]) -> list[list[tuple[float, float]]]:
    """Return runs of points without a hole."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append((at, value))
    return [piece for piece in pieces if piece]


def _x(at: float, now: float, seconds: float, width: int) -> float:
    share = min(1.0, max(0.0, 1 - (now - at) / seconds))
    return _LEFT + share * (width - _LEFT - _RIGHT)


def _y(value: float, top: float) -> float:
    return HEIGHT - _BOTTOM - value / top * (HEIGHT - _TOP - _BOTTOM)


def seconds_text(value: float) -> str:
    """Return seconds for an axis."""
    return "0 s" if value == 0 else duration(value)


#: A sign for each state, of a shape of its own: colour alone is not enough for some people.
SIGNS = {"ok": "●", "warn": "▲", "bad": "■", "idle": "◌", "unknown": "○"}
_NONE = "-"


def _duration(seconds: float | None) -> str:
    return _NONE if seconds is None else duration(seconds)


def _age(at: datetime | float | None, now: float) -> str:
    """Return how long ago something was."""
    if at is None:
        return _NONE
    return duration(max(0.0, now - (at.timestamp() if isinstance(at, datetime) else at)))


def _clock(at: datetime | float | None) -> str:
    if at is None:
        return _NONE
    return f"{at if isinstance(at, datetime) else datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _size(number: float | None) -> str:
    """Return bytes with their unit: 44 MB."""
    if number is None:
        return _NONE
    text = size(number)
    return f"{text} B" if text[-1].isdigit() else f"{text[:-1]} {text[-1]}B"


def source_link(source: str) -> str:
    """Return the address of a source's page."""
    return f"/sources/{quote(source)}"


def _table_query(table: Any) -> str:
    """Return the query that names a table: its name may have any character, which a path would not keep."""
    return urlencode({"stream": table.stream, "name": table.table})


FILTERS: dict[str, Callable[..., Any]] = {
    "duration": _duration,
    "size": _size,
    "cores": cores,
    "percent": lambda ratio: _NONE if ratio is None else f"{ratio:.0%}",
    "count": lambda number: _NONE if number is None else count(float(number)),
    "whole": lambda number: _NONE if number is None else f"{number:,}",
    "age": _age,
    "clock": _clock,
    "sign": lambda state: SIGNS[state],
    "source_link": source_link,
    "table_query": _table_query,
    "table_link": lambda table: f"/table?{_table_query(table)}",
}
