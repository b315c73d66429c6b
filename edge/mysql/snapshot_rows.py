"""Rows as the server selects them, turned into keys and rows of records by functions generated for each table.

A row packet (MySQL manual, "Text Resultset Row"): for each column Int8 0xFB for null, or the packed length of its text and the
text. What is behind the table's columns is for the key alone.
"""

from collections.abc import Callable
from typing import Any

from msgspec import json

from edge.mysql.column_codec import ColumnCodec
from edge.mysql.rows_compiled import Image, Images
from edge.mysql.table_map import packed

_NULL = 0xFB


class Rows:
    """A table's rows by packet."""

    def __init__(self, names: list[str], codes: list[ColumnCodec], key: list[int]) -> None:
        count = len(names)
        self._images = Images([json.encode(name) for name in names], codes, key, taken=True)
        self._patterns: dict[int, Image] = {}
        self._split = _splitting(count)
        self._bytes = (count + 7) // 8

    def read(self, packet: bytes) -> tuple[bytes, bytes]:
        """Return a row's key and the row, as JSON."""
        nulls, columns = self._split(packet)
        image = self._patterns.get(nulls)
        if image is None:
            pattern = nulls.to_bytes(self._bytes, "little")
            image = self._images[pattern]
            if pattern in self._images:
                self._patterns[nulls] = image
        _, key, row = image(columns, 0)  # type: ignore[arg-type]
        assert key is not None
        return key, row


def columns(packet: bytes) -> list[bytes | None]:
    """Return the texts of a row, None for null."""
    found: list[bytes | None] = []
    at = 0
    while at < len(packet):
        if packet[at] == _NULL:
            found.append(None)
            at += 1
            continue
        length, at = packed(packet, at)
        found.append(packet[at : at + length])
        at += length
    return found


def _text(packet: bytes, at: int) -> tuple[bytes, int]:
    length, at = packed(packet, at)
    return packet[at : at + length], at + length


def _splitting(count: int) -> Callable[[bytes], tuple[int, tuple[bytes | None, ...]]]:
    """Return what takes a packet apart: the nulls as bits, and the first so many columns."""
    body = ["p = nulls = 0"]
    for number in range(count):
        body += [
            "n = m[p]",
            "if n < 251:",
            f"    c{number} = m[p + 1:(p := p + 1 + n)]",
            f"elif n == {_NULL}:",
            f"    c{number} = None",
            "    p += 1",
            f"    nulls |= {1 << number}",
            "else:",
            f"    c{number}, p = text(m, p)",
        ]
    body.append(f"return nulls, ({''.join(f'c{number}, ' for number in range(count))})")
    source = "def split(m):\n" + "".join(f"    {line}\n" for line in body)
    scope: dict[str, Any] = {"text": _text}
    exec(compile(source, "<row>", "exec"), scope)  # noqa: S102 - made of numbers alone.
    split: Callable[[bytes], tuple[int, tuple[bytes | None, ...]]] = scope["split"]
    return split
