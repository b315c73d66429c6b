"""What a run may have beside sources and their changes: alerts to branches, requests to edges, tables whose schema is refused."""

from collections.abc import Callable
from typing import Any


class RunPart:
    """Something that a run has, or has not."""

    def sections(self) -> dict[str, Any]:
        """Return what it needs in the bridges' files."""
        return {}

    def faults(self) -> dict[str, Callable[[], object]]:
        """Return what may go wrong with it."""
        return {}

    def themes(self) -> list[tuple[str, ...]]:
        """Return which faults of it and of others go together."""
        return []

    def start(self) -> None:
        """Begin."""

    def is_done(self) -> bool:
        """Whether all that is to come is there."""
        return True

    def judge(self, *, done: bool) -> None:
        """Raise FailedRunError where something is not as it must be; `done`: whether everything has come."""

    def shown(self) -> str:
        """Return how far it is."""
        return ""
