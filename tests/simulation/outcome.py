"""What a run is judged by."""

from collections.abc import Sequence
from typing import Any


class FailedRunError(Exception):
    """Something is not as it must be."""


def first_difference(source: str, wanted: Sequence[Any], there: Sequence[Any]) -> None:
    """Raise FailedRunError where what is there is not every change once and in order, as far as it goes."""
    for index, (one, other) in enumerate(zip(wanted, there, strict=False)):
        if one != other:
            what = "repeated or out of order" if other in wanted[:index] else "missing"
            raise FailedRunError(f"{source}: record {index} is {other}, expected {one}: {what}")
    if len(there) > len(wanted):
        raise FailedRunError(
            f"{source}: {len(there) - len(wanted)} records too many, the first is {there[len(wanted)]}"
        )
