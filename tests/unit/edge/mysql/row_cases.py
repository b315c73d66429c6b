"""Tables of random columns, and rows events of them, good and damaged, with what every decoder of theirs makes of them."""

import random
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from edge.mysql import envelope, events, rows_compiled, values
from edge.mysql.column_codec import ColumnCodec, Place, code, for_key, treated, without_zero_dates
from edge.mysql.envelope import Table as Shared
from edge.mysql.envelope import Transaction
from edge.mysql.rows import Table
from edge.mysql.table_map import Field, TableMap
from edge.records.column_policy import UNDECODABLE, Treatment

CHARSETS = {1: "utf8mb4", 2: "latin1", 3: "cp866", 6: "ascii", 7: "koi8u", 63: "binary", 4: "sjis", 5: "swe7"}
_KNOWN_CHARSETS = (1, 2, 3, 6, 7, 63)
_TRANSACTION = Transaction(
    epoch=1, commit=9, commit_us=1_769_850_900_250_000, server_id=5, gtid="0-5-9", file="b.000007"
)
EXCLUDED = Treatment("exclude", None)

TEXTS = (
    b"", b"a", b"nine chars", b'"', b"\\", b"\b\t\n\f\r\x00\x1f\x7f", "é".encode(), "€".encode(), "😀".encode(),
    "\ud7ff\ue000\uffff".encode(), b"x" * 300, "7 letters ü".encode() * 9, b'tab\tand "quotes" ' * 5,
)  # fmt: skip
#: No UTF-8: continuations alone, overlong, surrogates, above U+10FFFF, and characters that are cut.
NO_TEXTS = (
    b"\x80", b"\xc0\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xff", b"\xc3",
    b"\xe2\x82", b"\xf0\x9f\x98", b"\x81\x8d",
)  # fmt: skip
_MEMBERS = (b"", b"a", b'q"', "ü".encode(), b"b c")


class Case(NamedTuple):
    """A table, the kind of an event of it, and its images."""

    table: Table
    kind: int
    images: bytes


def a_field(chance: random.Random, name: str, *, is_known: bool) -> tuple[Field, str]:
    """Return a column of a random type, and the server's name of that type where the log does not have it."""
    kind = chance.choice(KNOWN if is_known else KNOWN + _UNKNOWN)
    digits, collation = chance.randrange(7), chance.choice(_KNOWN_CHARSETS if is_known else tuple(CHARSETS))
    members: tuple[bytes, ...] = ()
    named, meta = "", 0
    if kind == values.NEWDECIMAL:
        precision = chance.randint(1, 65)
        meta = precision << 8 | chance.randint(0, min(precision, 38))
    elif kind == values.BIT:
        meta = chance.randrange(8) << 8 | chance.randint(1, 7)
    elif kind in {values.DATETIME2, values.TIMESTAMP2, values.TIME2}:
        meta = digits
    elif kind in {values.ENUM, values.SET}:
        count = chance.choice((1, 5, 60))
        members = tuple(chance.choice(_MEMBERS[:: chance.choice((1, -1))]) for _ in range(count))
        meta, collation = (chance.randint(1, 2) if kind == values.ENUM else (count + 7) // 8), chance.choice((1, 2, 63))
    elif kind in {values.VARCHAR, values.VARCHAR_COMPRESSED}:
        meta = chance.choice((40, 255, 256, 60_000))
    elif kind == values.STRING:
        meta, named = chance.choice((4, 16, 255)), chance.choice(("", "uuid", "" if is_known else "inet6"))
        if named:
            meta, collation = 16, 63
    elif kind in {values.BLOB, values.BLOB_COMPRESSED, values.GEOMETRY, values.JSON, values.VECTOR}:
        meta = chance.randint(1, 4)
    return Field(
        name=name, type=kind, meta=meta, unsigned=chance.random() < 0.5, collation=collation, members=members
    ), named


#: Types that C knows, and others.
KNOWN = (
    values.TINY, values.SHORT, values.INT24, values.LONG, values.LONGLONG, values.FLOAT, values.DOUBLE, values.YEAR,
    values.NEWDECIMAL, values.BIT, values.DATE, values.NEWDATE, values.DATETIME2, values.TIMESTAMP2, values.TIME2, values.ENUM,
    values.SET, values.VARCHAR, values.STRING, values.BLOB, values.GEOMETRY,
)  # fmt: skip
_UNKNOWN = (
    values.TIME, values.DATETIME, values.TIMESTAMP, values.JSON, values.VECTOR, values.BLOB_COMPRESSED, values.VARCHAR_COMPRESSED,
)  # fmt: skip


def a_table(chance: random.Random) -> tuple[Table, list[tuple[Field, ColumnCodec]]]:
    """Return a table of random columns, and these."""
    is_known = chance.random() < 0.8
    names = [chance.choice(("c", 'q"', "ü%")) + str(number) for number in range(chance.choice((1, 2, 5, 9, 30)))]
    pairs = [a_field(chance, name, is_known=is_known) for name in names]
    key = [field.name for field, _ in pairs if chance.random() < 0.2]
    chance.shuffle(key)
    codecs = []
    for field, kind in pairs:
        codec = a_codec(field, kind)
        if field.name in key:
            codec = for_key(codec)
        if not is_known and chance.random() < 0.1:
            codec = without_zero_dates(codec)
        if field.name not in key and chance.random() < 0.1:
            codec = treated(codec, EXCLUDED)
        codecs.append(codec)
    return table_of([field for field, _ in pairs], key, codecs), [
        (field, codec) for (field, _), codec in zip(pairs, codecs, strict=True)
    ]


def a_codec(field: Field, kind: str = "") -> ColumnCodec:
    """Return a column's codec."""
    return code(field, CHARSETS.__getitem__, kind, Place(field.name))


def table_of(fields: list[Field], key: list[str], codecs: list[ColumnCodec]) -> Table:
    """Return a table of these columns."""
    shared = Shared(connector="mariadb", source="jakarta/bank", database="bank", table="t")
    return Table(
        TableMap(database="bank", table="t", fields=tuple(fields), key=tuple(key), is_full=True), codecs, shared
    )


def a_value(chance: random.Random, field: Field, codec: ColumnCodec, odd: float) -> bytes:
    """Return a column's bytes: of a value that its type can have, but for an odd share of them."""
    is_odd, fixed = chance.random() < odd, struct.calcsize(f"<{codec.fixed}")
    if field.type in {values.FLOAT, values.DOUBLE} and not is_odd:
        number = chance.choice((0.0, -0.0, 1.0, 1e10, 1e16, 1e22, 0.1, chance.randrange(10**6) / 7))
        return struct.pack(f"<{codec.fixed}", number)
    if fixed:
        return chance.randbytes(fixed) if is_odd else _ordinary(chance, field, fixed)
    length = (1 if field.meta < 256 else 2) if field.type in {values.VARCHAR, values.STRING} else field.meta
    if CHARSETS[field.collation] not in {"utf8mb4", "ascii"}:
        text = chance.randbytes(chance.choice((0, 1, 2, 3, 16, 40)))
    elif is_odd:
        text = chance.choice(TEXTS) + chance.choice(NO_TEXTS) + chance.choice(TEXTS)
    else:
        text = chance.choice(TEXTS)
    text = text[: (1 << 8 * length) - 1]
    return len(text).to_bytes(length, "little") + text


def _ordinary(chance: random.Random, field: Field, size: int) -> bytes:  # noqa: PLR0911 - one for each kind.
    kind = field.type
    if kind == values.NEWDECIMAL:
        return _decimal(chance, field.meta >> 8, field.meta & 0xFF)
    if kind in {values.DATE, values.NEWDATE}:
        return (chance.choice((0, 2026)) << 9 | chance.randrange(13) << 5 | chance.randrange(32)).to_bytes(3, "little")
    clock = chance.randrange(24) << 12 | chance.randrange(60) << 6 | chance.randrange(60)
    extra = (field.meta + 1) // 2
    part = b"" if not extra else chance.randrange(100**extra).to_bytes(extra, "big")
    if kind == values.DATETIME2:
        day = (chance.choice((0, 9999, 2026)) * 13 + chance.randrange(13)) << 22 | chance.randrange(32) << 17
        return (1 << 39 | day | clock).to_bytes(5, "big") + part
    if kind == values.TIMESTAMP2:
        return (
            chance.choice((0, 1, 951_782_400, 2**31 - 1, 2**32 - 1, chance.randrange(1 << 32))).to_bytes(4, "big")
            + part
        )
    if kind == values.TIME2:
        number = (chance.randrange(839) << 12 | clock & 4095) << 8 * extra | int.from_bytes(part, "big")
        return ((0x800000 << 8 * extra) + chance.choice((-1, 1)) * number).to_bytes(3 + extra, "big")
    if kind == values.ENUM:
        return chance.randrange(len(field.members) + 1).to_bytes(size, "little")
    if kind == values.SET:
        return chance.randrange(1 << len(field.members)).to_bytes(size, "little")
    if kind == values.BIT:
        return chance.randrange(1 << (field.meta >> 8) * 8 + (field.meta & 0xFF)).to_bytes(size, "big")
    return chance.choice((bytes(size), b"\xff" * size, chance.randbytes(size)))


def _decimal(chance: random.Random, precision: int, scale: int) -> bytes:
    groups = []
    whole = precision - scale
    for digits in (
        [whole % 9] * (whole % 9 > 0) + [9] * (whole // 9) + [9] * (scale // 9) + [scale % 9] * (scale % 9 > 0)
    ):
        value = chance.choice((0, 0, 1, 10**digits - 1, chance.randrange(10**digits)))
        groups.append(value.to_bytes((0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[digits], "big"))
    data = bytearray(b"".join(groups))
    data[0] ^= 0x80
    return bytes(data) if chance.random() < 0.5 else bytes(byte ^ 0xFF for byte in data)


def cases(chance: random.Random) -> Iterator[Case]:
    """Yield an event of each kind of a random table."""
    table, columns = a_table(chance)
    odd = chance.choice((0, 0, 0.02, 0.2))

    def image() -> bytes:
        nulls, values = bytearray((len(columns) + 7) // 8), b""
        for number, (field, codec) in enumerate(columns):
            if chance.random() < 0.1:
                nulls[number >> 3] |= 1 << (number & 7)
            else:
                values += a_value(chance, field, codec, odd)
        return bytes(nulls) + values

    for kind in (rows_compiled.INSERT, rows_compiled.UPDATE, rows_compiled.DELETE):
        count = chance.choice((1, 1, 2, 20)) * (1 + (kind == rows_compiled.UPDATE))
        images = b"".join(image() for _ in range(count))
        yield Case(table, kind, damaged(chance, images) if chance.random() < 0.3 else images)


def damaged(chance: random.Random, images: bytes) -> bytes:
    """Return images with some bytes altered, taken out or added."""
    spoiled = bytearray(images)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(spoiled) + 1)
        what = chance.randrange(3)
        if what == 0:
            spoiled[at : at + 1] = bytes([chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))])
        elif what == 1:
            del spoiled[at : at + chance.choice((1, 2, 4, 100))]
        else:
            spoiled[at:at] = chance.choice((b"\0", b"\xff\xff\xff\xff", chance.randbytes(5)))
    return bytes(spoiled)


def decode_in_c(case: Case, first: int = 3) -> Any:
    """Return keys and values made in C, None where it left the event to Python, or for a table that has no plan."""
    table, images = case.table, case.images
    if table.in_c is None:
        return None
    middle, end = table.envelope.middle(_TRANSACTION), envelope.end(b"cud"[case.kind :][:1], _TRANSACTION, 7)
    return table.in_c.decode(case.kind, images, 0, len(images), first, middle, _TRANSACTION.place, end)


def changes(case: Case, *, in_c: bool) -> Any:
    """Return the changes, made in C or by Python alone; None where C left them to Python, or what is raised."""
    table, images = case.table, case.images
    if in_c:
        return None if table.in_c is None else table.in_c.changes(case.kind, images, 0, len(images))
    held, table.in_c = table.in_c, None
    try:
        return list(table.changes(events.WRITE_2 + case.kind, images, 0, len(images)))
    except (*UNDECODABLE, struct.error) as error:
        return type(error), str(error)
    finally:
        table.in_c = held


def outcome(case: Case, first: int = 3) -> Any:
    """Return keys and values by Python alone, or what is raised for images that are none."""
    table = case.table
    in_c, table.in_c = table.in_c, None
    try:
        decode = (table.inserts, table.updates, table.deletes)[case.kind]
        return decode(case.images, 0, len(case.images), _TRANSACTION, first, 7)
    except (*UNDECODABLE, struct.error) as error:
        return type(error), str(error)
    finally:
        table.in_c = in_c
