"""The columns of a Delta table in Arrow: their types, and under which names its files have them."""

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import NeedsOperator

if TYPE_CHECKING:
    import pyarrow as pa

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_PHYSICAL = "delta.columnMapping.physicalName"
#: Microseconds of the beginning of Julian day 0, before which Spark's 96 bits have a negative day and time of day. Arrow takes
#: both for positive ones, which adds this much, modulo 2**64.
_JULIAN = -2_440_588 * 86_400_000_000
_ADDED = (2**32 * 86_400_000_000) % 2**64 + 2**64 // 1000


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    #: Its name in the table's files.
    stored: str
    type: "pa.DataType"


def of_int96(times: "pa.Array") -> "pa.Array":
    """Return times of 96 bits as Spark has them, from what Arrow makes of them: `infinity` of PostgreSQL is beyond Arrow's."""
    import pyarrow as pa  # noqa: PLC0415 - an extra.
    import pyarrow.compute as pc  # noqa: PLC0415 - as above.

    plain = times.cast(pa.timestamp("us")).view(pa.int64())
    # Wraps, as Spark's own does.
    right = pc.subtract(plain, pa.scalar(_ADDED - 2**64 if _ADDED >= 2**63 else _ADDED, pa.int64()))
    return pc.if_else(pc.less(plain, _JULIAN), right, plain).view(pa.timestamp("us"))


def columns(schema: str) -> list[Column]:
    """Return the columns of a schema as a Delta log has it; raise NeedsOperator for a type that has none in Arrow here."""
    return [
        Column(field["name"], field.get("metadata", {}).get(_PHYSICAL, field["name"]), _type(field["type"]))
        for field in json.loads(schema)["fields"]
    ]


def _type(of_delta: Any) -> "pa.DataType":
    import pyarrow as pa  # noqa: PLC0415 - an extra.

    plain = {
        "long": pa.int64(),
        "integer": pa.int32(),
        "short": pa.int16(),
        "byte": pa.int8(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "date": pa.date32(),
        "string": pa.string(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    if isinstance(of_delta, str):
        if match := _DECIMAL.fullmatch(of_delta):
            return pa.decimal128(int(match[1]), int(match[2]))
        if of_delta in plain:
            return plain[of_delta]
    elif of_delta["type"] == "array":
        return pa.list_(_type(of_delta["elementType"]))
    elif of_delta["type"] == "map":
        return pa.map_(_type(of_delta["keyType"]), _type(of_delta["valueType"]))
    elif of_delta["type"] == "struct":
        return pa.struct([(field["name"], _type(field["type"])) for field in of_delta["fields"]])
    raise NeedsOperator(f"a column of Delta type {of_delta!r} cannot be read here", hint="Read the table with Spark.")
