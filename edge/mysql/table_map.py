"""Table map events: a table as the log itself describes it when rows of it follow (MySQL manual, "Table_map_event").

Int48 table id, Int16 flags, Int8 length and name of the database and a zero, the same of the table, packed number of columns,
a type for each, packed length and metadata, a bit for each column that may be null, then what `binlog_row_metadata=FULL` adds:
Int8 kind, packed length, value. Whatever is not that raises ValueError, struct.error or IndexError.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from edge.mysql import values

#: Kinds of optional metadata.
_SIGNEDNESS, _DEFAULT_CHARSET, _CHARSETS, _NAMES, _SETS, _ENUMS, _GEOMETRIES, _KEY, _KEY_PARTS = range(1, 10)
_ENUM_DEFAULT_CHARSET, _ENUM_CHARSETS = 10, 11
_MOST_COLUMNS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A column as the log has it."""

    name: str = ""
    type: int
    #: The type's metadata: length, precision and scale, digits of a second.
    meta: int = 0
    nullable: bool = True
    unsigned: bool = False
    #: Number of the collation; 0 where the log has none.
    collation: int = 0
    #: Members of an enum or set, in their collation's encoding.
    members: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMap:
    """A table map event."""

    database: str
    table: str
    fields: tuple[Field, ...]
    #: Names of the primary key's columns, in key order.
    key: tuple[str, ...]
    #: Whether names are there: `binlog_row_metadata` was FULL.
    is_full: bool


def packed(data: bytes, at: int) -> tuple[int, int]:
    """Return a packed integer and the place after it: one byte below 251, else 2, 3 or 8 bytes after 252, 253 or 254."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}.get(first)
    if size is None or at + 1 + size > len(data):
        raise ValueError("a packed integer is none")
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def parse_names(body: bytes) -> tuple[str, str, int]:
    """Return database and table of the body of a table map event, from the table's id on, and the place after them."""
    database, at = _name(body, 8)
    table, at = _name(body, at)
    return database, table, at


def year_has_sign(version: str) -> bool | None:
    """Whether a server of a version states a sign of columns of type YEAR; None where that is not known.

    MySQL 8.0.15 and 8.0.20 state none, 8.0.29 and MariaDB do.
    """
    release = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if "MariaDB" in version or release >= (8, 0, 29):
        return True
    return False if len(release) == 3 and release <= (8, 0, 20) else None


def readings(body: bytes, *, mariadb: bool, year_has_sign: bool | None) -> list[TableMap]:
    """Return what the body of a table map event may describe: two tables where signs depend on what is not known."""
    if year_has_sign is not None:
        return [parse(body, mariadb=mariadb, year_has_sign=year_has_sign)]
    both = []
    for has_sign in (True, False):
        with suppress(ValueError):
            both.append(parse(body, mariadb=mariadb, year_has_sign=has_sign))
    if not both:
        raise ValueError("signedness is stated for other columns than the table has")
    return both[:1] if len({tuple(signs(each).values()) for each in both}) == 1 else both


def signs(table: TableMap) -> dict[str, bool]:
    """Return which columns of numbers are unsigned, by their names, or places where the log names none; YEAR has no sign."""
    numeric = values.NUMERIC - {values.YEAR}
    return {
        field.name or str(place): field.unsigned for place, field in enumerate(table.fields) if field.type in numeric
    }


def parse(body: bytes, *, mariadb: bool, year_has_sign: bool = True) -> TableMap:
    """Return the table that the body of a table map event, from the table's id on, describes."""
    database, table, at = parse_names(body)
    count, at = packed(body, at)
    if not 1 <= count <= _MOST_COLUMNS:
        raise ValueError("a table has an impossible number of columns")
    codes, at = body[at : at + count], at + count
    length, at = packed(body, at)
    metadata, at = body[at : at + length], at + length
    nullable, at = body[at : at + (count + 7) // 8], at + (count + 7) // 8
    if len(metadata) != length or len(nullable) != (count + 7) // 8:
        raise ValueError("a table map is cut short")
    fields = _typed(codes, metadata, nullable)
    bare = TableMap(database=database, table=table, fields=tuple(fields), key=(), is_full=False)
    return _describe(bare, body, at, mariadb=mariadb, year_has_sign=year_has_sign)


def _name(body: bytes, at: int) -> tuple[str, int]:
    length = body[at]
    if body[at + 1 + length] != 0:
        raise ValueError("a name has another length than stated")
    return body[at + 1 : at + 1 + length].decode(), at + 2 + length


def _typed(codes: bytes, metadata: bytes, nullable: bytes) -> Iterator[Field]:
    at = 0
    for number, given in enumerate(codes):
        code, size = given, values.META_SIZES.get(given, 0)
        raw = metadata[at : at + size]
        if len(raw) != size:
            raise ValueError("a table's metadata is cut short")
        at += size
        meta = int.from_bytes(raw, "big" if code in values.BIG_ENDIAN_META else "little")
        if code == values.STRING:
            code, meta = _string(meta)
        yield Field(type=code, meta=meta, nullable=bool(nullable[number >> 3] >> (number & 7) & 1))
    if at != len(metadata):
        raise ValueError("a table's metadata is longer than its types")


def _string(meta: int) -> tuple[int, int]:
    """Return the real type and length: bits 4 and 5 of the first byte, upside down, are the length's eighth and ninth."""
    first, second = meta >> 8, meta & 0xFF
    if first & 0x30 != 0x30:
        return first | 0x30, second | ((first & 0x30) ^ 0x30) << 4
    return first, second


def _describe(table: TableMap, body: bytes, at: int, *, mariadb: bool, year_has_sign: bool) -> TableMap:
    fields = list(table.fields)
    key: list[int] = []
    full = False
    while at < len(body):
        kind = body[at]
        length, start = packed(body, at + 1)
        at = start + length
        value = body[start:at]
        if len(value) != length:
            raise ValueError("a table's description is cut short")
        if kind == _SIGNEDNESS:
            _sign(fields, value, values.NUMERIC if year_has_sign else values.NUMERIC - {values.YEAR})
        elif kind == _NAMES:
            _call(fields, list(_strings(value)))
            full = True
        elif kind in {_DEFAULT_CHARSET, _CHARSETS}:
            kinds = values.MARIADB_CHARACTER if mariadb else values.CHARACTER
            _collate(fields, kinds, list(_integers(value)), each=kind == _CHARSETS)
        elif kind in {_ENUM_DEFAULT_CHARSET, _ENUM_CHARSETS}:
            _collate(fields, values.MEMBERED, list(_integers(value)), each=kind == _ENUM_CHARSETS)
        elif kind in {_SETS, _ENUMS}:
            _enumerate(fields, values.SET if kind == _SETS else values.ENUM, value)
        elif kind == _KEY:
            key = list(_integers(value))
        elif kind == _KEY_PARTS:
            key = list(_integers(value))[::2]
    return replace(table, fields=tuple(fields), key=tuple(fields[number].name for number in key), is_full=full)


def _sign(fields: list[Field], value: bytes, kinds: frozenset[int]) -> None:
    numeric = [number for number, field in enumerate(fields) if field.type in kinds]
    if len(value) != (len(numeric) + 7) // 8:
        raise ValueError("signedness is stated for columns that are no numbers")
    for place, number in enumerate(numeric):
        fields[number] = replace(fields[number], unsigned=bool(value[place >> 3] << (place & 7) & 0x80))


def _call(fields: list[Field], names: list[bytes]) -> None:
    if len(names) != len(fields) or len(set(names)) != len(names):
        raise ValueError("a table has not as many names as columns")
    fields[:] = [replace(field, name=name.decode()) for field, name in zip(fields, names, strict=True)]


def _collate(fields: list[Field], kinds: frozenset[int], numbers: list[int], *, each: bool) -> None:
    which = [number for number, field in enumerate(fields) if field.type in kinds]
    if each:
        if len(numbers) != len(which):
            raise ValueError("a table has not as many collations as columns with text")
        collations = numbers
    else:
        collations = [numbers[0]] * len(which)
        for place, collation in zip(numbers[1::2], numbers[2::2], strict=True):
            collations[place] = collation
    for number, collation in zip(which, collations, strict=True):
        fields[number] = replace(fields[number], collation=collation)


def _enumerate(fields: list[Field], code: int, value: bytes) -> None:
    at = 0
    for number, field in enumerate(fields):
        if field.type != code:
            continue
        count, at = packed(value, at)
        members = []
        for _ in range(count):
            length, at = packed(value, at)
            members.append(value[at : at + length])
            at += length
        fields[number] = replace(field, members=tuple(members))
    if at != len(value):
        raise ValueError("members are stated for more columns than have them")


def _strings(value: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(value):
        length, at = packed(value, at)
        yield value[at : at + length]
        at += length


def _integers(value: bytes) -> Iterator[int]:
    at = 0
    while at < len(value):
        number, at = packed(value, at)
        yield number
