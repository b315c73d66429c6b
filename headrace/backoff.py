"""Jittered exponential back-off: how long to pause before the next attempt (full jitter, after Brooker, 2015)."""

import random


class Backoff:
    """Pauses that grow from `first` to `longest` seconds, each drawn at random below its bound, until `reset`."""

    def __init__(self, *, first: float = 0.1, longest: float = 10.0) -> None:
        self._first = first
        self._longest = longest
        self._attempts = 0

    def pause(self) -> float:
        """Return the next pause in seconds, at least a tenth of its bound, so that a loop never spins."""
        bound: float = self._first * 2 ** min(self._attempts, 30)
        self._attempts += 1
        return jittered(bound, self._longest)

    def reset(self) -> None:
        """Start again from the shortest pause: the attempt succeeded."""
        self._attempts = 0


def jittered(bound: float, longest: float) -> float:
    """Return a pause in seconds drawn at random below `bound` and `longest`, and at least a tenth of that."""
    return min(bound, longest) * (0.1 + 0.9 * random.random())  # noqa: S311 - spreading load, not guarding a secret.
