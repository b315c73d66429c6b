"""Durations and sizes as text: `"30s"`, `"2h"`, `"64MiB"`, turned into the unit of the field that takes them.

A field whose name ends with a unit (`heartbeat_seconds = 10`) can be given without it, as text (`heartbeat = "10s"`); a field
that is named by its unit alone (`megabytes = 1024`) is `size` then. Sizes are powers of 1024, whatever the case: KB is KiB.
"""

import re
from fractions import Fraction

#: A unit of a field's name, and how many of the smallest unit, seconds or bytes, it has.
_DURATIONS = {
    "milliseconds": Fraction(1, 1000),
    "seconds": Fraction(1),
    "minutes": Fraction(60),
    "hours": Fraction(3600),
    "days": Fraction(86_400),
}
_SIZES = {"kilobytes": Fraction(1 << 10), "megabytes": Fraction(1 << 20)}

_WRITTEN = {
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "min": Fraction(60),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86_400),
    "b": Fraction(1),
    "k": Fraction(1 << 10),
    "kb": Fraction(1 << 10),
    "kib": Fraction(1 << 10),
    "mb": Fraction(1 << 20),
    "mib": Fraction(1 << 20),
    "gb": Fraction(1 << 30),
    "gib": Fraction(1 << 30),
    "tb": Fraction(1 << 40),
    "tib": Fraction(1 << 40),
}
_DURATION_WORDS = frozenset({"ms", "s", "min", "m", "h", "d"})
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


def plain_name(field: str) -> tuple[str, str] | None:
    """Return a field's name without its unit, and the unit; None for a field that has none.

    `heartbeat_seconds` is `heartbeat`, `seconds`; `megabytes` is `size`, `megabytes`.
    """
    stem, _, unit = field.rpartition("_")
    if unit in _DURATIONS and stem:
        return stem, unit
    if unit in _SIZES:
        return stem or "size", unit
    return None


def converted(text: str, unit: str) -> int | float:
    """Return a duration or a size, such as `"30s"` or `"64MiB"`, in a field's unit; whole numbers stay whole.

    Raises ValueError, with a message for the person who wrote it, when it is neither or of the other kind.
    """
    duration = unit in _DURATIONS
    found = _TEXT.fullmatch(text)
    word = found[2].lower() if found else ""
    if found is None or word not in _WRITTEN or (word in _DURATION_WORDS) != duration:
        example = (
            "a duration such as '30s', '5min', '2h' or '7d'"
            if duration
            else "a size such as '64KiB', '16MiB' or '2GiB'"
        )
        raise ValueError(f"{text!r} is not {example}")
    amount = Fraction(found[1]) * _WRITTEN[word] / (_DURATIONS if duration else _SIZES)[unit]
    return int(amount) if amount.denominator == 1 else float(amount)
