"""How edge/compiled/row_images.c reads a column and makes JSON of it: the same as its codec does in Python."""

import codecs
import struct
from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

from msgspec import json

from edge.mysql import charset, types, values
from edge.mysql.table_map import Field
from edge.records.form_limits import NoForm


class Wire(NamedTuple):
    """A column as C reads it."""

    #: How it makes JSON of the value; empty where it does not.
    form: str = ""
    #: The value's bytes, or of `is_sized` those of its length ahead of it; 0 for an unknown type.
    size: int = 0
    is_sized: bool = False
    #: Digits of a decimal or of a fraction, bits, or bytes with the zeros that the log leaves out.
    length: int = 0
    scale: int = 0
    #: The JSON of an ENUM's members by number, of a SET's without quotes, or of the character that each byte is.
    members: tuple[bytes, ...] = ()


#: Forms of columns of a fixed size; those of integers depend on their sign.
_FIXED: Final = {
    types.FLOAT: "f", types.DOUBLE: "g", types.YEAR: "y", types.NEWDECIMAL: "d", types.BIT: "b", types.DATE: "D",
    types.NEWDATE: "D", types.DATETIME2: "m", types.TIMESTAMP2: "s", types.TIME2: "h", types.ENUM: "e", types.SET: "S",
}  # fmt: skip
_INTEGERS: Final = frozenset({types.TINY, types.SHORT, types.INT24, types.LONG, types.LONGLONG})
_STRINGS: Final = frozenset({types.STRING, types.VARCHAR, types.VAR_STRING, types.VARCHAR_COMPRESSED})
_CHARACTERS: Final = frozenset(
    {types.STRING, types.VARCHAR, types.VAR_STRING, types.BLOB, types.TINY_BLOB, types.MEDIUM_BLOB, types.LONG_BLOB}
)
#: The length ahead of a string that may be longer has two bytes.
_SHORT: Final = 255


class Shown(NamedTuple):
    """What the codec in Python has found of a column."""

    fixed: str
    length: int | None
    scale: int | None
    members: tuple[str, ...]


def wire_of(field: Field, of: Callable[[], str], kind: str, shown: Shown) -> Wire:
    """Return how C reads a column; `of` names the character set of one with characters, `kind` is the server's type."""
    number = field.type
    if shown.fixed:
        size = struct.calcsize(f"<{shown.fixed}")
        form = ("u" if field.unsigned else "i") if number in _INTEGERS else _FIXED.get(number, "")
        return Wire(form, size, False, shown.length or 0, shown.scale or 0, _members(number, shown.members))
    size = field.meta if number not in _STRINGS else 1 if field.meta <= _SHORT else 2
    form, length = "", 0
    letters: tuple[bytes, ...] = ()
    if number == types.GEOMETRY:
        form = "x"
    elif number == types.STRING and kind in values.ADDRESSES:
        form = "U" if kind == "uuid" else ""
    elif number in _CHARACTERS:
        name = charset.BINARY if field.collation == types.BINARY else of()
        if name == charset.BINARY:
            form, length = "x", field.meta if number == types.STRING else 0
        elif name in charset.UTF8:
            form = "t"
        elif letters := _letters(name):
            form = "l"
    return Wire(form, size, is_sized=True, length=length, members=letters)


def _members(number: int, texts: tuple[str, ...]) -> tuple[bytes, ...]:
    if number == types.ENUM:
        return values.members(texts)
    return tuple(json.encode(text)[1:-1] for text in texts)


@cache
def _letters(name: str) -> tuple[bytes, ...]:
    """Return the JSON of each byte of a character set of single bytes, empty for one that is no character; else nothing."""
    if charset.width(name) != 1:
        return ()
    try:
        codec = charset.decoder(name, "")
    except NoForm:
        return ()
    return tuple(json.encode(codecs.decode(bytes([byte]), codec, "ignore"))[1:-1] for byte in range(256))
