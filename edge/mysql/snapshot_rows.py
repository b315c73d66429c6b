"""Rows of a copied table: what SQL selects of each column, so that a record has the bytes that the log's would have.

The catalog's description becomes the field that the log would have, and so the same JSON; only what is taken from a
row image there is taken here from the server's text (MySQL manual, "Text Resultset"). Texts come as the table stores them,
since the connection requests no conversion. A key's value is kept as text, and goes back into SQL as the literal that the
column's own order is compared with.

Rows as the server selects them become keys and rows of records by functions generated for each table. A row packet ("Text
Resultset Row"): for each column Int8 0xFB for null, or the packed length of its text and the text. What is behind the table's
columns is for the key alone.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from msgspec import json

from edge.mysql import column_text, values
from edge.mysql.careful_rows import CarefulImages, Undecodable
from edge.mysql.column_codec import ColumnCodec
from edge.mysql.column_text import Wire
from edge.mysql.rows_compiled import Image, Images
from edge.mysql.table_map import Field, packed
from headrace.errors import NeedsOperator

_NULL = 0xFB
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII)
_HEXADECIMAL = re.compile(r"(?:[0-9a-f]{2})*")
_MOMENT_OR_ADDRESS = re.compile(r"[0-9a-f:. -]+")
_MEMBER = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPED, _ESCAPES = re.compile(r"\\(.)", re.DOTALL), {"0": "\0", "n": "\n", "r": "\r"}
_MOMENTS = frozenset({"date", "time", "datetime", "timestamp"})
_INTEGERS = {
    "tinyint": values.TINY, "smallint": values.SHORT, "mediumint": values.INT24, "int": values.LONG, "bigint": values.LONGLONG,
}  # fmt: skip
_BLOBS = {
    "tinyblob": 1, "tinytext": 1, "blob": 2, "text": 2, "mediumblob": 3, "mediumtext": 3, "longblob": 4, "longtext": 4,
}  # fmt: skip
_TIMES = {"time": values.TIME2, "datetime": values.DATETIME2, "timestamp": values.TIMESTAMP2}
_GEOMETRIES = frozenset({
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
    "geomcollection",
})  # fmt: skip
_OTHERS = dict.fromkeys(_GEOMETRIES, (values.GEOMETRY, 4)) | {kind: (code, 0) for kind, code in _INTEGERS.items()} | {
    "float": (values.FLOAT, 4), "double": (values.DOUBLE, 8), "year": (values.YEAR, 0), "date": (values.DATE, 0),
    "json": (values.JSON, 4), "enum": (values.ENUM, 1), "set": (values.SET, 1), "vector": (values.VECTOR, 4),
    "inet4": (values.STRING, 4), "inet6": (values.STRING, 16), "uuid": (values.STRING, 16),
}  # fmt: skip
_STRINGS = {
    "char": values.STRING, "binary": values.STRING, "varchar": values.VARCHAR, "varbinary": values.VARCHAR,
}  # fmt: skip
#: Types whose records hold the server's text as it is, between quotes.
_AS_TEXT = frozenset({values.NEWDECIMAL, values.DATE, values.TIME2})
_BYTES = frozenset({values.GEOMETRY, values.VECTOR, values.BLOB, values.VARCHAR, values.STRING})


class Catalogued(NamedTuple):
    """A row of information_schema.columns."""

    name: str
    data_type: str
    column_type: str
    is_nullable: str
    octets: int | None
    precision: int | None
    scale: int | None
    fraction: int | None
    charset: str | None
    collation: str | None

    def as_logged(self, *, mariadb: bool) -> Self:
        """Return the column as the log has it: a vector of MariaDB's is bytes there."""
        return self._replace(data_type="varbinary") if mariadb and self.data_type == "vector" else self


#: What is queried for a Catalogued.
CATALOGUED = (
    "column_name, data_type, column_type, is_nullable, character_octet_length, numeric_precision, numeric_scale, "
    "datetime_precision, character_set_name, collation_name"
)


def field(column: Catalogued, where: str) -> Field:
    """Return the field that the log would have; raise NeedsOperator for a type that is not read."""
    kind = column.data_type
    code, meta = _coded(column, kind)
    if code is None:
        raise NeedsOperator(
            f"column {where} is of a type that this release does not copy ({kind})",
            hint="Alter the column, or leave its table out of the source's tables.",
        )
    return Field(
        name=column.name,
        type=code,
        meta=meta,
        nullable=column.is_nullable == "YES",
        unsigned="unsigned" in column.column_type and code in values.NUMERIC,
        collation=values.BINARY if column.charset in {None, column_text.BINARY} else 0,
        members=_members(column) if kind in {"enum", "set"} else (),
    )


def _has_empty_member(column: Catalogued) -> bool:
    return column.data_type == "enum" and b"" in _members(column)


def _members(column: Catalogued) -> tuple[bytes, ...]:
    """Return the members of an ENUM or a SET, which the catalog prints as SQL: `enum('a','it''s')`."""
    printed = (match[1].replace("''", "'") for match in _MEMBER.finditer(column.column_type))
    texts = (_ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), text) for text in printed)
    return tuple(
        text.encode("latin1" if column.charset == column_text.BINARY else "utf-8", "replace") for text in texts
    )


def _coded(column: Catalogued, kind: str) -> tuple[int | None, int]:
    """Return type and metadata, None for a type that is not known."""
    octets, precision = column.octets or 0, column.precision or 0
    coded: tuple[int | None, int] = _OTHERS.get(kind, (None, 0))
    if kind in _BLOBS:
        coded = values.BLOB, _BLOBS[kind]
    elif kind in _TIMES:
        coded = _TIMES[kind], column.fraction or 0
    elif kind in _STRINGS:
        # The length of a compressed one includes the byte ahead of the compressed bytes.
        coded = _STRINGS[kind], octets + ("COMPRESSED" in column.column_type)
    elif kind == "decimal":
        coded = values.NEWDECIMAL, precision << 8 | (column.scale or 0)
    elif kind == "bit":
        coded = values.BIT, precision // 8 << 8 | precision % 8
    return coded


def selected(column: Catalogued) -> str:
    """Return what SQL selects, to be read by `taken`."""
    name = quoted(column.name)
    if column.data_type in {"bit", "year"} or ("zerofill" in column.column_type and column.data_type in _INTEGERS):
        return f"{name} + 0"
    if column.data_type == "decimal" and "zerofill" in column.column_type:
        return f"cast({name} as decimal({column.precision}, {column.scale}))"
    if _has_empty_member(column):
        # By its number, which is another one than that of a wrong value.
        return f"{name} + 0"
    if column.data_type in {"float", "double"}:
        # With all digits, and with the sign of zero.
        return f"{name} * 1e0"
    if column.data_type in values.ADDRESSES:
        return f"cast({name} as binary({4 if column.data_type == 'inet4' else 16}))"
    return name


def taken(codec: ColumnCodec, field: Field, column: Catalogued, where: str) -> ColumnCodec:
    """Return the codec of a column whose value is what `selected` gave."""
    kind, lines, form, codec = field.type, codec.lines, '"%b"', codec._replace(wire=Wire())
    if kind in _BYTES:
        return codec._replace(fixed="", read=())
    if kind in _AS_TEXT:
        lines = ()
    elif kind in {values.DATETIME2, values.TIMESTAMP2}:
        zone = "Z" if kind == values.TIMESTAMP2 else ""
        lines = (f"{{v}} = server_moment({{v}}, b{zone!r})",)
    elif kind == values.BIT:
        lines = (f"{{v}} = format(int({{v}}), '0{codec.length}b').encode()",)
    elif kind in {values.FLOAT, values.DOUBLE}:
        lines, form = ("{v} = float({v})", *codec.lines), "%b"
    elif _has_empty_member(column):
        return codec._replace(fixed="", read=(), lines=("{v} = members_{v}[int({v})]",))
    elif kind in {values.ENUM, values.SET, values.JSON}:
        lines, form = (f"{{v}} = encode(str({{v}}, {_codec(column, where)!r}, 'replace'))",), "%b"
    else:
        lines, form = (), "%b"
    return codec._replace(fixed="", read=(), lines=lines, form=form, arguments=("{v}",), scope={})


def _codec(column: Catalogued, where: str) -> str:
    if column.charset is None or column.charset in column_text.UTF8:
        return "utf-8"
    # Members of binary columns are names all the same.
    return "latin1" if column.charset == column_text.BINARY else column_text.decoder(column.charset, where)


class KeyColumn(NamedTuple):
    """A column of a key: its name in SQL, and how its values come and go."""

    name: str
    kind: str
    charset: str | None
    #: All that its values are ordered by.
    declared: str

    @classmethod
    def from_catalog(cls, column: Catalogued) -> Self:
        """Return a column of the table as one of its key."""
        name = quoted(column.name)
        declared = " ".join(filter(None, (name, column.column_type, column.collation)))
        return cls(name, column.data_type, column.charset, declared)

    @property
    def selected(self) -> str | None:
        """What SQL selects in addition to the column's value; None where that is enough."""
        # In the order of their members, not of their names.
        return f"{self.name} + 0" if self.kind in {"enum", "set"} else None

    def text(self, value: bytes) -> str:
        """Return a value, as `selected` gave it, in the form that is kept."""
        if self.kind in values.ADDRESSES:
            return values.ADDRESSES[self.kind](value).decode()
        if self._is_text:
            return value.hex()
        return value.decode()

    def literal(self, text: str) -> str:
        """Return a kept value as SQL takes it; raise NeedsOperator for one that cannot have been kept."""
        if self._is_text and _HEXADECIMAL.fullmatch(text):
            introducer = "" if self.charset in {None, column_text.BINARY} else f"_{self.charset} "
            return f"{introducer}x'{text}'"
        if (self.kind in values.ADDRESSES or self.kind in _MOMENTS) and _MOMENT_OR_ADDRESS.fullmatch(text):
            return f"'{text}'"
        if not self._is_text and _NUMBER.fullmatch(text):
            return f"{text}e0" if self.kind in {"float", "double"} and "e" not in text else text
        raise NeedsOperator(
            f"the snapshot plan holds a key that {self.name} cannot have", hint="Request the snapshot again."
        )

    @property
    def _is_text(self) -> bool:
        return self.kind in _STRINGS or self.kind in _BLOBS


def quoted(name: str) -> str:
    """Return an identifier as SQL takes it."""
    return "`" + name.replace("`", "``") + "`"


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


def row_texts(packet: bytes) -> list[bytes | None]:
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
