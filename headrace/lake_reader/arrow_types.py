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


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    #: Its name in the table's files.
    stored: str
    type: "pa.DataType"


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
