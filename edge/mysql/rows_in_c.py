"""Rows events decoded in C (edge/compiled/row_images.c), where that was compiled: plans for tables whose columns it knows.

They give the bytes of edge/mysql/rows.py, or None for an event that holds something unusual, which is decoded there. A table with
a column that C does not know (JSON of MySQL's, compressed ones, several bytes a character), or with a form of its own
(`[records]`, `[policy]`), has no plan.
"""

import struct
from typing import Any, Final

from edge import compiled
from edge.mysql.column_codec import ColumnCodec

#: The module in C, or None.
module: Any = compiled.module

INSERT, UPDATE, DELETE = range(3)
_LEFT_OUT: Final = b"-"
_COLUMN: Final = struct.Struct("<cBHHH")


def images(names: list[bytes], codes: list[ColumnCodec], key: list[int]) -> Any:
    """Return what decodes a table's rows events; None where that is Python alone."""
    if module is None or not codes:
        return None
    columns, members = [], []
    for codec in codes:
        wire, is_left_out = codec.wire, codec.policy == "exclude"
        form = _LEFT_OUT if is_left_out else wire.form.encode()
        if not form or not wire.size:
            return None
        columns.append(_COLUMN.pack(form, wire.is_sized, wire.size, wire.length, wire.scale))
        members.append(() if is_left_out else wire.members)
    try:
        return module.Images(b"".join(columns), tuple(name + b":" for name in names), tuple(members), tuple(key))
    except ValueError:
        # A description that no server writes.
        return None
