"""The state of a table of the lake: what `headrace lake tables`, the console's pages and its metrics call it."""

from collections.abc import Mapping

#: Every state, so that one that no table has can be counted as 0.
TABLE_STATES = ("published", "behind", "copying", "stopped", "not made")


def table_state(*, reason: str | None, copying: Mapping[str, str], version: int | None, behind: bool) -> str:
    """Return the state of a table that stopped for a `reason`, is copied, or has a version that may be `behind` its stream's."""
    if reason:
        return "stopped"
    if copying:
        return "copying"
    if version is None:
        return "not made"
    return "behind" if behind else "published"
