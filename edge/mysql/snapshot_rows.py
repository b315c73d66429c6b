"""Rows as the server selects them, turned into keys and rows of records by functions generated for each table.

A row packet (MySQL manual, "Text Resultset Row"): for each column Int8 0xFB for null, or the packed length of its text and the
text. What is behind the table's columns is for the key alone.

SnapshotOrdinals for rows that are put where the log has no transaction: at a place between two, and each only once.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import json

from edge.mysql.careful_rows import CarefulImages, Undecodable
from edge.mysql.column_codec import ColumnCodec
from edge.mysql.rows_compiled import Image, Images
from edge.mysql.table_map import packed
from headrace import files
from headrace.errors import NeedsOperator
from headrace.formats import SNAPSHOT_PLACE, UNREADABLE
from headrace.position import Position

_NULL = 0xFB


class Rows:
    """A table's rows by packet."""

    def __init__(self, names: list[str], codes: list[ColumnCodec], key: list[int]) -> None:
        count = len(names)
        quoted = [json.encode(name) for name in names]
        self._images = Images(quoted, codes, key, taken=True)
        self._names, self._careful = names, CarefulImages(quoted, codes, key, taken=True)
        self._patterns: dict[int, Image] = {}
        self._split = _splitting(count)
        self._bytes = (count + 7) // 8

    def read(self, packet: bytes) -> tuple[bytes | None, bytes]:
        """Return a row's key and the row, as JSON; no key of a table without one."""
        nulls, columns = self._split(packet)
        image = self._patterns.get(nulls)
        if image is None:
            pattern = nulls.to_bytes(self._bytes, "little")
            image = self._images[pattern]
            if pattern in self._images:
                self._patterns[nulls] = image
        _, key, row = image(columns, 0)  # type: ignore[arg-type]
        return key, row

    def read_carefully(self, packet: bytes) -> tuple[bytes | None, bytes, Undecodable | None]:
        """Return the same of a row with values that cannot be decoded, null in it, and the first of them."""
        nulls, columns = self._split(packet)
        _, key, row, bad = self._careful.decode(nulls.to_bytes(self._bytes, "little"), columns, 0)
        if not bad:
            return key, row, None
        in_key = sorted(self._careful.key_columns.intersection(bad))
        column = self._names[[*in_key, *bad][0]]
        return key, row, Undecodable(column, in_key=bool(in_key), size=len(packet))


def columns(packet: bytes) -> list[bytes | None]:
    """Return the texts of a row, None for null."""
    texts: list[bytes | None] = []
    at = 0
    while at < len(packet):
        if packet[at] == _NULL:
            texts.append(None)
            at += 1
            continue
        length, at = packed(packet, at)
        texts.append(packet[at : at + length])
        at += length
    return texts


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


#: So many are taken beyond what is needed, so that the file is written seldom.
_AHEAD = 1 << 18
_MOST = 1 << 32


class _Taken(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    place: int = -1
    #: The first ordinal that was never used there.
    free: int = 0
    version: int = SNAPSHOT_PLACE.version


class SnapshotOrdinals:
    """The ordinals of a state folder."""

    def __init__(self, folder: Path, *sent: Position) -> None:
        """Begin behind what was taken, and behind positions that were sent."""
        self._path = folder / "snapshot-place.json"
        self._taken = self._read()
        self._sent = sent
        self._place, self._next = -1, 0

    def take(self, place: int, count: int) -> int:
        """Return the first of so many ordinals at a place, none of them used before."""
        first = self._next
        if place != self._place:
            behind = [position.ordinal + 1 for position in self._sent if position.commit == place]
            first = max([self._taken.free if self._taken.place == place else 0, *behind])
        after = first + count
        if after > _MOST:
            raise NeedsOperator(
                f"more rows were copied at one place of the log, {place:016x}, than it has positions",
                hint="Let the source commit something; then start the edge again.",
            )
        if self._taken.place != place or after > self._taken.free:
            taken = _Taken(place, min(after + _AHEAD, _MOST))
            files.write_private(self._path, msgspec.json.encode(taken))
            self._taken = taken
        self._place, self._next = place, after
        return first

    def _read(self) -> _Taken:
        try:
            data = self._path.read_bytes()
            SNAPSHOT_PLACE.check_json(data, str(self._path))
            return msgspec.json.decode(data, type=_Taken)
        except FileNotFoundError:
            return _Taken()
        except OSError as error:
            raise files.problem(self._path, "read", error) from error
        except UNREADABLE as error:
            raise NeedsOperator(
                f"{self._path} is damaged",
                hint="Stop the edge, move the file to another folder, and start it when the source has committed something.",
            ) from error
