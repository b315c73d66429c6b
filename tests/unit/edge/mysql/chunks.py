"""A table as chunks read it, and rows as the server sends them."""

import struct
from dataclasses import replace

from edge.mysql.snapshot_rows import Catalogued, KeyColumn, field
from edge.mysql.snapshot_table import SnapshotTable
from edge.mysql.table_map import TableMap

ID = Catalogued("id", "int", "int(11)", "YES", None, 10, 0, None, None, None)
NOTE = Catalogued("note", "text", "text", "YES", 65535, None, None, None, "utf8mb4", "utf8mb4_bin")


def table(*key, columns=(ID, NOTE)):
    """Return a table with these columns as its key, `id` when none is named."""
    names = [column.name for column in columns]
    key = key or ("id",)
    return SnapshotTable(
        described=TableMap(
            database="bank", table="accounts", fields=tuple(field(it, it.name) for it in columns), key=key, is_full=True
        ),
        columns=tuple(columns),
        key=tuple(KeyColumn.from_catalog(it) for name in key for it in columns if it.name == name),
        places=tuple(names.index(name) for name in key),
        index="PRIMARY",
        shape="",
    )


def without_key(found):
    """Return a table as it is without its key."""
    return replace(found, described=replace(found.described, key=()), key=(), places=(), index="")


def text(value):
    """Return a column as a row packet has it."""
    if value is None:
        return b"\xfb"
    head = bytes([len(value)]) if len(value) < 251 else b"\xfc" + struct.pack("<H", len(value))
    return head + value


def packet(*values):
    return b"".join(map(text, values))
