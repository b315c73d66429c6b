"""Types of values: what names may be, as patterns and in words; the units of seconds, bytes and numbers; and expectations,
as far as they can be checked without Spark.

A function is allowed where it computes from its arguments alone: the written list of `headrace lake serve`, which its Java has.
"""

import re
from fractions import Fraction
from functools import cache
from pathlib import Path

SOURCE_NAME = r"^[a-z0-9][a-z0-9_-]*/[a-z0-9][a-z0-9_.-]*$"
STREAM_NAME = r"^[a-z0-9][a-z0-9_-]*$"
#: A source, or all of a region.
SOURCES_OF = rf"{SOURCE_NAME}|^[a-z0-9][a-z0-9_-]*/\*$"
IDENTIFIER = r"^[a-z_][a-z0-9_]{0,62}$"
AMQP_ADDRESS = r"^amqps?://"
LISTEN_ADDRESS = r"^[^:]*:\d+$"
TABLE_NAME = r"^[^.]+\..+$"
TABLE_PATTERN = r"^[^.]+\.[^.]+$"
COLUMN_PATTERN = r"^[^.]+\.[^.]+\.[^.]+$"
PORTS = r"^\d{1,5}(,\d{1,5})*$"
KAFKA_PREFIX = r"^[A-Za-z0-9._-]{1,100}$"
KAFKA_INSTANCE = r"^[A-Za-z0-9._-]{0,100}$"
TOPIC_OR_EMPTY = r"^[A-Za-z0-9._-]{0,249}$"
ADDRESSES_OF = r"^[^*]+$|^[^*]+/\*$"
KAFKA_GROUP = r"^[A-Za-z0-9._-]{0,200}$"

IN_WORDS = {
    SOURCE_NAME: "a source's name: REGION/NAME, such as 'jakarta/bank', of lower-case letters, digits, '-' and '_'",
    STREAM_NAME: "a name of lower-case letters, digits, '-' and '_' that begins with a letter or a digit",
    SOURCES_OF: "a source's name such as 'jakarta/bank', or all of a region: 'jakarta/*'",
    IDENTIFIER: "a name of lower-case letters, digits and '_', at most 63 of them, that does not begin with a digit",
    AMQP_ADDRESS: "an address that begins with amqps:// or amqp://",
    LISTEN_ADDRESS: "HOST:PORT, such as '0.0.0.0:5672'",
    TABLE_NAME: "a table's name with its schema: SCHEMA.TABLE",
    TABLE_PATTERN: "SCHEMA.TABLE, in which * and ? may be used",
    COLUMN_PATTERN: "SCHEMA.TABLE.COLUMN, in which * and ? may be used",
    PORTS: "a port, or one for each host with commas between",
    KAFKA_PREFIX: "1 to 100 letters, digits, '.', '_' and '-'",
    KAFKA_INSTANCE: "at most 100 letters, digits, '.', '_' and '-'",
    TOPIC_OR_EMPTY: "a topic's name: at most 249 letters, digits, '.', '_' and '-'",
    ADDRESSES_OF: "an address such as 'alerts/jakarta', or all that begin so: 'alerts/jakarta/*'",
    KAFKA_GROUP: "at most 200 letters, digits, '.', '_' and '-'",
}


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
_LIST = Path(__file__).parents[2] / "spark_jobs" / "serve" / "Functions.java"
#: What a parenthesis may follow that is no function: words of SQL, and types with a size.
_WORDS = frozenset({"then", "else", "is", "distinct", "from", "as", "char", "varchar", "numeric", "dec", "character"})
#: Texts and quoted names, which hold no calls, and comments.
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/", re.DOTALL)
_CALL = re.compile(r"([A-Za-z_][\w.]*)\s*\(")
#: Folders in which Spark's own functions are.
_FOLDERS = ("", "builtin", "system.builtin")


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


def convert(text: str, unit: str) -> int | float:
    """Return a duration or a size, such as `"30s"` or `"64MiB"`, in a field's unit; whole numbers stay whole.

    Raises ValueError, with a message for the person who wrote it, when it is neither or of the other kind.
    """
    duration = unit in _DURATIONS
    match = _TEXT.fullmatch(text)
    word = match[2].lower() if match else ""
    if match is None or word not in _WRITTEN or (word in _DURATION_WORDS) != duration:
        example = (
            "a duration such as '30s', '5min', '2h' or '7d'"
            if duration
            else "a size such as '64KiB', '16MiB' or '2GiB'"
        )
        raise ValueError(f"{text!r} is not {example}")
    amount = Fraction(match[1]) * _WRITTEN[word] / (_DURATIONS if duration else _SIZES)[unit]
    return int(amount) if amount.denominator == 1 else float(amount)


@cache
def allowed_functions() -> frozenset[str]:
    """Return the functions that an expression may call."""
    match = re.search(r'ALLOWED = Set\.of\("""(.*?)"""', _LIST.read_text("utf-8"), re.DOTALL)
    assert match is not None, "the list is in Functions.java"
    return frozenset(match[1].split())


def refuse_function(name: str) -> str | None:
    """Return why a function cannot be called; None where it can."""
    folder, _, own = name.lower().rpartition(".")
    if folder in _FOLDERS and own in allowed_functions():
        return None
    return f"the function {name} is refused: it is not among those that are known to compute from their arguments alone"


def find_expression_problem(expression: str) -> str | None:
    """Return what is certainly wrong with an expression; None where Spark has to see it."""
    plain = _QUOTED.sub(lambda match: "''" if match[0][0] == "'" else " ", expression)
    if not plain.strip():
        return "it is empty"
    if "'" in plain.replace("''", "") or '"' in plain or "`" in plain:
        return "a quote is not closed"
    depth = 0
    for character in plain:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            break
    if depth:
        return "its parentheses do not match"
    if ";" in plain:
        return "it is more than one expression"
    calls = (name for name in _CALL.findall(plain) if name.lower() not in _WORDS)
    return next(filter(None, map(refuse_function, calls)), None)
