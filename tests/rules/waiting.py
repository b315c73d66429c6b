"""Waiting for a condition with a deadline, in place of sleeping."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def eventually(
    condition: Callable[[], Value],
    seconds: float = 60,
    *,
    every: float = 0.05,
    saying: str = "the condition holds",
    progress: Callable[[], object] = lambda: None,
) -> Value:
    """Return the condition's first true value.

    Raises AssertionError after `seconds` in which `progress` returned the same, with the last value, or from the last error: an
    error counts as "not yet".
    """
    deadline = time.monotonic() + seconds
    reached: object = None
    while True:
        error: Exception | None = None
        value: Value | None = None
        try:
            if value := condition():
                return value
        except Exception as found:  # noqa: BLE001 - whatever it is, the next look may do better.
            error = found
        if (now := progress()) != reached:
            deadline, reached = time.monotonic() + seconds, now
        if time.monotonic() > deadline:
            last = repr(error) if error else repr(value)
            raise AssertionError(f"not within {seconds} s: {saying}; last: {last}") from error
        time.sleep(every)
