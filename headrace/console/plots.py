"""Charts as inline SVG: lines over time and bars, with a title and a description for screen readers.

Colours come from the style sheet by class, so that charts follow the theme; nothing here has a `style` attribute, which the
pages' Content-Security-Policy refuses.
"""

import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from markupsafe import Markup, escape

from headrace.console.history import Point
from headrace.status.table import duration

WIDTH, HEIGHT = 640, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 26
#: Lines of one chart: each has a colour and a pattern of dashes of its own.
MOST_LINES = 6


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


def lines(title: str, series: Sequence[Line], seconds: float, unit: Callable[[float], str]) -> Markup:
    """Return a chart of the last `seconds`; one without points shows that."""
    now = time.time()
    known = [value for line in series for _, value in line.points if value is not None]
    if not known:
        return _frame(title, Markup(_nothing("No figures yet.")), "No figures yet.")
    top, ticks = _scale(max(known))
    parts = [*_grid(ticks, top, unit), *_times(now, seconds)]
    for number, line in enumerate(series[:MOST_LINES]):
        for piece in _pieces(line.points):
            path = " ".join(f"{_x(at, now, seconds):.1f},{_y(value, top):.1f}" for at, value in piece)
            if len(piece) == 1:
                at, value = piece[0]
                parts.append(f'<circle class="dot s{number}" cx="{_x(at, now, seconds):.1f}" cy="{_y(value, top):.1f}" r="2"/>')
            else:
                parts.append(f'<polyline class="line s{number}" points="{path}"/>')
    return _frame(title, Markup("".join(parts)), _described(series, unit))  # noqa: S704 - of numbers and escaped texts.


def bars(title: str, found: Sequence[Bar], seconds: float, unit: Callable[[float], str]) -> Markup:
    """Return a chart of bars over the last `seconds`."""
    now = time.time()
    shown = [bar for bar in found if bar.at >= now - seconds]
    if not shown:
        return _frame(title, Markup(_nothing("Nothing in this time.")), "Nothing in this time.")
    top, ticks = _scale(max(bar.value for bar in shown))
    parts = [*_grid(ticks, top, unit), *_times(now, seconds)]
    for bar in shown:
        x, y = _x(bar.at, now, seconds), _y(bar.value, top)
        height = max(1.0, HEIGHT - _BOTTOM - y)
        parts.append(
            f'<rect class="bar s{bar.kind}" x="{x - 2:.1f}" y="{HEIGHT - _BOTTOM - height:.1f}" width="4" height="{height:.1f}">'
            f"<title>{escape(bar.text)}</title></rect>"
        )
    text = f"{len(shown)} bars, the highest {unit(max(bar.value for bar in shown))}."
    return _frame(title, Markup("".join(parts)), text)  # noqa: S704 - as above.


def count(value: float) -> str:
    """Return a number in at most five characters."""
    for least, unit, each in ((1e9, "G", 1e9), (1e6, "M", 1e6), (1e4, "k", 1e3)):
        if value >= least:
            return f"{value / each:.3g}{unit}"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _frame(title: str, inside: Markup, text: str) -> Markup:
    template = (
        '<svg class="chart" viewBox="0 0 {width} {height}" role="img" preserveAspectRatio="xMidYMid meet">'
        "<title>{title}</title><desc>{text}</desc>{inside}</svg>"
    )
    return Markup(template).format(width=WIDTH, height=HEIGHT, title=title, text=text, inside=inside)  # noqa: S704 - escapes.


def _nothing(text: str) -> str:
    return f'<text class="nothing" x="{WIDTH // 2}" y="{HEIGHT // 2}" text-anchor="middle">{escape(text)}</text>'


def _described(series: Sequence[Line], unit: Callable[[float], str]) -> str:
    texts = []
    for line in series:
        known = [value for _, value in line.points if value is not None]
        if known:
            texts.append(f"{line.name}: now {unit(known[-1])}, at most {unit(max(known))}.")
    return " ".join(texts)


def _scale(highest: float) -> tuple[float, list[float]]:
    """Return the top of the axis and its ticks: round numbers, three to six of them."""
    if highest <= 0:
        return 1.0, [0.0, 1.0]
    rough = highest / 4
    power = 10 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 2.5, 5, 10) if each * power >= rough)
    ticks = [step * number for number in range(math.ceil(highest / step) + 1)]
    return ticks[-1], ticks


def _grid(ticks: Sequence[float], top: float, unit: Callable[[float], str]) -> list[str]:
    parts = []
    for tick in ticks:
        y = _y(tick, top)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(unit(tick))}</text>')
    return parts


def _times(now: float, seconds: float) -> list[str]:
    parts = []
    for part in range(5):
        at = now - seconds * (4 - part) / 4
        form = "%H:%M" if seconds <= 86_400 else "%d %b %H:%M"
        anchor = {0: "start", 4: "end"}.get(part, "middle")
        text = f"{datetime.fromtimestamp(at, UTC):{form}}"
        parts.append(
            f'<text class="tick" x="{_x(at, now, seconds):.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{text}</text>'
        )
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


def _x(at: float, now: float, seconds: float) -> float:
    share = min(1.0, max(0.0, 1 - (now - at) / seconds))
    return _LEFT + share * (WIDTH - _LEFT - _RIGHT)


def _y(value: float, top: float) -> float:
    return HEIGHT - _BOTTOM - value / top * (HEIGHT - _TOP - _BOTTOM)


def seconds_text(value: float) -> str:
    """Return seconds for an axis."""
    return "0 s" if value == 0 else duration(value)
