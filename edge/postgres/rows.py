"""Row decoders, generated for each relation: from a tuple's bytes to the JSON of row and key in one pass.

A generated function slices the values of a tuple and places them into a template: no object for a column but its bytes. What
is unusual (an unchanged column, a date before year 1, NaN) goes the slow way, column by column, with the same result.
"""

import struct
from base64 import b64encode
from binascii import unhexlify
from collections.abc import Callable
from typing import NamedTuple

from msgspec import json

from edge.postgres import values
from edge.postgres.relation import Relation

_KIND_AND_LENGTH = struct.Struct(">BI").unpack_from
_TEXT, _NULL, _UNCHANGED = 0x74, 0x6E, 0x75
_NUMBERS, _FLOATS, _BOOL, _BYTEA = {20, 21, 23, 26}, {700, 701}, 16, 17
_TIMESTAMP, _TIMESTAMPTZ = 1114, 1184
#: Types whose text never holds anything to escape.
_PLAIN = {650, 790, 829, 869, 774, 1082, 1083, 1266, 1560, 1562, 1700, 2950, 3220}


class Tuple(NamedTuple):
    """A tuple taken apart: each column's JSON, None where the log did not carry it, and where the tuple ends."""

    columns: list[bytes | None]
    end: int


#: From message and offset of the first column to (row, key, end); None when the tuple needs the slow way.
Fast = Callable[[bytes, int], "tuple[bytes, bytes | None, int] | None"]


class Rows:
    """The decoders of one relation."""

    def __init__(self, relation: Relation, key: list[str]) -> None:
        self._names = [json.encode(column.name) for column in relation.columns]
        self._convert = [_converter(column.type_oid) for column in relation.columns]
        index = {column.name: number for number, column in enumerate(relation.columns)}
        self._key = [index[name] for name in key]
        self.width = len(relation.columns)
        self.fast = _generate(relation, self._names, self._key)

    def slow(self, message: bytes, offset: int) -> Tuple:
        """Take a tuple apart column by column; raise ValueError for a kind of column that is not ours."""
        columns: list[bytes | None] = []
        for convert in self._convert:
            kind, length = _KIND_AND_LENGTH(message, offset)
            if kind == _TEXT:
                offset += 5 + length
                columns.append(convert(message[offset - length : offset]))
            elif kind == _NULL:
                offset += 1
                columns.append(b"null")
            elif kind == _UNCHANGED:
                offset += 1
                columns.append(None)
            else:
                raise ValueError("a column is neither text, null nor unchanged")
        return Tuple(columns, offset)

    def row(self, columns: list[bytes | None]) -> bytes:
        """Return the JSON object of the columns that are there."""
        return b"{%b}" % b",".join(
            b"%b:%b" % (name, value) for name, value in zip(self._names, columns, strict=True) if value is not None
        )

    def key(self, columns: list[bytes | None]) -> bytes | None:
        """Return the JSON object of the key columns; None for a table without a key."""
        if not self._key:
            return None
        return b"{%b}" % b",".join(b"%b:%b" % (self._names[number], columns[number] or b"null") for number in self._key)

    def key_row(self, columns: list[bytes | None], identity: list[int]) -> bytes:
        """Return the JSON object of the columns of the replica identity."""
        return b"{%b}" % b",".join(b"%b:%b" % (self._names[number], columns[number] or b"null") for number in identity)

    def missing(self, columns: list[bytes | None]) -> bytes:
        """Return the JSON array of the names of columns that the log did not carry; empty when there are none."""
        names = [name for name, value in zip(self._names, columns, strict=True) if value is None]
        return b"[%b]" % b",".join(names) if names else b""


def _converter(oid: int) -> values.Convert:
    if oid in _NUMBERS | _FLOATS:
        return values.number
    if oid in _PLAIN:
        return values.ordinary
    return {
        _BOOL: values.boolean,
        _BYTEA: values.binary,
        _TIMESTAMP: values.timestamp,
        _TIMESTAMPTZ: values.timestamptz,
    }.get(oid, values.text)


def _generate(relation: Relation, names: list[bytes], key: list[int]) -> Fast:
    lines = ["def fast(m, o):"]
    texts, null_marks, templates = [], False, []
    for number, column in enumerate(relation.columns):
        value, oid = f"v{number}", column.type_oid
        quoted = oid not in _NUMBERS | _FLOATS | {_BOOL}
        mark = "N" if quoted else "b'null'"
        lines += ["    k, n = U(m, o)", "    if k == 116:", "        s = o + 5", "        o = s + n"]
        if oid == _BOOL:
            lines.append(f"        {value} = b'true' if m[s] == 116 else b'false'")
        elif oid in {_TIMESTAMP, _TIMESTAMPTZ}:
            zone = oid == _TIMESTAMPTZ
            end = "m[o - 3:o] != b'+00'" if zone else "m[o - 2:o] == b'BC'"
            lines += [f"        if m[s + 10] != 32 or {end}: return None"]
            lines += [
                f"        {value} = b'%bT%b{'Z' if zone else ''}' % (m[s:s + 10], m[s + 11:o{' - 3' if zone else ''}])"
            ]
        elif oid == _BYTEA:
            lines += ["        if m[s:s + 2] != b'\\\\x': return None", f"        {value} = B(X(m[s + 2:o]))"]
        elif oid in _FLOATS:
            lines += [f"        {value} = m[s:o]", f"        if {value}[-1] > 57: return None"]
        else:
            lines.append(f"        {value} = m[s:o]")
            if quoted and oid not in _PLAIN:
                texts.append(value)
        lines += [
            "    elif k == 110:",
            "        o += 1",
            f"        {value} = {mark}",
            "    else:",
            "        return None",
        ]
        templates.append(names[number].replace(b"%", b"%%") + (b':"%b"' if quoted else b":%b"))
        null_marks = null_marks or quoted
    if texts:
        joined = texts[0] if len(texts) == 1 else f"J(({', '.join(texts)}))"
        lines += [f"    if E({joined}): return None"]
    row = _template(templates, range(len(templates)))
    lines.append(f"    row = {row}")
    if null_marks:
        lines += ["    if Q in row: row = row.replace(Q, b'null')"]
    lines.append(f"    return row, {_template(templates, key) if key else 'None'}, o")
    scope = {
        "U": _KIND_AND_LENGTH, "J": b"".join, "E": values.must_escape, "N": b"\x00", "Q": b'"\x00"',
        "B": b64encode, "X": unhexlify,
    }  # fmt: skip
    exec("\n".join(lines), scope)  # noqa: S102 - built from column numbers and escaped names alone.
    return scope["fast"]  # type: ignore[return-value]


def _template(templates: list[bytes], numbers: "range | list[int]") -> str:
    chosen = list(numbers)
    body = b"{%b}" % b",".join(templates[number] for number in chosen)
    arguments = "".join(f"v{number}, " for number in chosen)
    return f"{body!r} % ({arguments})" if chosen else "b'{}'"
