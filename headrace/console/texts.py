"""How values are written on the pages."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from headrace.console.plots import count
from headrace.status.table import duration, size

#: A sign for each state, of a shape of its own: colour alone is not enough for some people.
_SIGNS = {"ok": "●", "warn": "▲", "bad": "■", "idle": "◌", "unknown": "○"}
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


def _size(number: int | None) -> str:
    """Return bytes with their unit: 44 MB."""
    if number is None:
        return _NONE
    text = size(number)
    return f"{text} B" if text[-1].isdigit() else f"{text[:-1]} {text[-1]}B"


def _source_link(source: str) -> str:
    return f"/sources/{quote(source)}"


FILTERS: dict[str, Callable[..., Any]] = {
    "duration": _duration,
    "size": _size,
    "count": lambda number: _NONE if number is None else count(float(number)),
    "whole": lambda number: _NONE if number is None else f"{number:,}",
    "age": _age,
    "clock": _clock,
    "sign": lambda state: _SIGNS[state],
    "source_link": _source_link,
}
