"""The folder of a table under the lake's root: one for each name, and no name at a source leads out of the lake."""

import hashlib
import re

#: What a folder's name cannot hold: separators, and what only confuses.
_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f]")
#: Bytes that a file system takes in one name, and those that are kept of a longer one.
_MOST, _KEPT = 255, 180


def folder(table: str) -> str:
    """Return the folder's name of a table, by its source's `schema.table`: the name itself wherever it can be one."""
    if not _UNSAFE.search(table) and table not in {"", ".", ".."} and len(table.encode()) <= _MOST:
        return table
    readable = _UNSAFE.sub("_", table).lstrip(".").encode()[:_KEPT].decode(errors="ignore")
    return f"{readable or 'table'}-{hashlib.sha256(table.encode()).hexdigest()[:12]}"
