"""How a column's bytes become text: character sets by the server's names, as Python decodes them (MariaDB manual, "Supported
Character Sets"), MySQL's binary JSON, and what edge/compiled/row_images.c makes the same JSON of, by letters and by columns'
types.

Everything in the log is as the table stores it; records are UTF-8. Texts of a character set that no codec of Python's equals are
not guessed: they cannot be decoded. Servers store bytes that are no characters of a column's set: in records U+FFFD takes their
place.

Binary JSON (MySQL internals manual, "JSON binary format") becomes what the server prints. Int8 type, then the value. Objects and
arrays: number of elements and size in bytes, for objects an offset and Int16 length of each key, for each value its type and an
offset or the value itself where it is small, then keys and values; offsets count from the number of elements on, and are of two
or four bytes. Bytes that are none raise ValueError, struct.error or IndexError.
"""

import codecs
import struct
from base64 import b64encode
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Final, NamedTuple

from msgspec import json

from edge.mysql import values
from edge.mysql.table_map import Field
from edge.records.column_policy import NoForm

#: Character sets whose bytes are UTF-8 already.
UTF8: Final = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})
BINARY: Final = "binary"

_CODECS: Final = {
    "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13", "greek": "iso8859_7", "hebrew": "iso8859_8",
    "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257", "cp850": "cp850", "cp852": "cp852",
    "cp866": "cp866", "koi8r": "koi8_r", "koi8u": "koi8_u", "tis620": "tis_620", "macroman": "mac_roman",
    "macce": "mac_latin2", "big5": "big5", "gbk": "gbk", "gb2312": "gb2312", "gb18030": "gb18030", "sjis": "shift_jis",
    "cp932": "cp932", "ujis": "euc_jp", "euckr": "cp949", "ucs2": "utf_16_be", "utf16": "utf_16_be",
    "utf16le": "utf_16_le", "utf32": "utf_32_be",
}  # fmt: skip
#: Characters that Python's codec has in place of the servers'.
_DIFFERENT: Final = {
    "cp866": {"\u2116": "\u207f", "\xa4": "\xb2"}, "greek": {"\u2018": "\u02bd", "\u2019": "\u02bc"},
    "hebrew": {"\xaf": "\u203e"}, "koi8u": {"\u2219": "\u2022"}, "sjis": {"\uff3c": "\\"}, "ujis": {"\uff3c": "\\"},
}  # fmt: skip
_OWN: Final = "headrace_"
#: Most bytes of a character, where it is not one: the log has a column's length in bytes.
_WIDTHS: Final = {
    "utf8mb4": 4, "utf8mb3": 3, "utf8": 3, "ucs2": 2, "utf16": 4, "utf16le": 4, "utf32": 4, "big5": 2, "gbk": 2, "gb2312": 2,
    "gb18030": 4, "sjis": 2, "cp932": 2, "ujis": 3, "euckr": 2,
}  # fmt: skip
#: The servers' latin1 is Windows' code page 1252, with its five holes filled by the control characters of ISO 8859-1.
_LATIN1 = "".join(
    bytes([byte]).decode("latin1" if byte in {0x81, 0x8D, 0x8F, 0x90, 0x9D} else "cp1252") for byte in range(256)
)


def list_names() -> frozenset[str]:
    """Return the character sets that are read."""
    return UTF8 | _CODECS.keys() | {"latin1", BINARY}


def width(charset: str) -> int:
    """Return how many bytes a character of a character set takes at most."""
    return _WIDTHS.get(charset, 1)


def decoder(charset: str, column: str) -> str:
    """Return the name of the codec for a character set; raise NoForm, naming the column, when there is none."""
    if charset == "latin1" or charset in _DIFFERENT:
        return _OWN + charset
    if charset in _CODECS:
        return _CODECS[charset]
    raise NoForm(
        f"column {column} has the character set {charset!r}, which this release does not read",
        hint="Convert the column to utf8mb4, or leave its table out of the source's tables.",
    )


class Text:
    """A column's bytes as text, with U+FFFD where they are no characters, which is reported by the column's name."""

    def __init__(self, codec: str, column: str, report: Callable[[str], None]) -> None:
        self._codec, self._column, self._report = codec, column, report

    def __call__(self, value: bytes) -> str:
        """Return the text of a value."""
        try:
            return str(value, self._codec)
        except UnicodeDecodeError:
            self._report(self._column)
            return str(value, self._codec, "replace")


def statement_text(words: bytes, charset: str) -> str:
    """Return a statement as text; what its client's character set does not have becomes U+FFFD."""
    if charset == "latin1":
        return words.decode("headrace_latin1")
    return words.decode(_CODECS.get(charset, "utf-8"), "replace")


def _find(name: str) -> codecs.CodecInfo | None:
    charset = name.removeprefix(_OWN)
    if charset == name or charset not in {*_DIFFERENT, "latin1"}:
        return None
    if charset == "latin1":
        return codecs.CodecInfo(
            name=name,
            encode=lambda text, errors="strict": codecs.charmap_encode(text, errors, codecs.charmap_build(_LATIN1)),
            decode=lambda data, errors="strict": codecs.charmap_decode(data, errors, _LATIN1),
        )
    base, different = _CODECS[charset], str.maketrans(_DIFFERENT[charset])
    back = {ord(ours): python for python, ours in _DIFFERENT[charset].items() if not ours.isascii()}
    return codecs.CodecInfo(
        name=name,
        encode=lambda text, errors="strict": (text.translate(back).encode(base, errors), len(text)),
        decode=lambda data, errors="strict": (bytes(data).decode(base, errors).translate(different), len(data)),
    )


codecs.register(_find)


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
    values.FLOAT: "f", values.DOUBLE: "g", values.YEAR: "y", values.NEWDECIMAL: "d", values.BIT: "b", values.DATE: "D",
    values.NEWDATE: "D", values.DATETIME2: "m", values.TIMESTAMP2: "s", values.TIME2: "h", values.ENUM: "e", values.SET: "S",
}  # fmt: skip
_INTEGERS: Final = frozenset({values.TINY, values.SHORT, values.INT24, values.LONG, values.LONGLONG})
_STRINGS: Final = frozenset({values.STRING, values.VARCHAR, values.VAR_STRING, values.VARCHAR_COMPRESSED})
_CHARACTERS: Final = frozenset(
    {
        values.STRING,
        values.VARCHAR,
        values.VAR_STRING,
        values.BLOB,
        values.TINY_BLOB,
        values.MEDIUM_BLOB,
        values.LONG_BLOB,
    }
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
    if number == values.GEOMETRY:
        form = "x"
    elif number == values.STRING and kind in values.ADDRESSES:
        form = "U" if kind == "uuid" else ""
    elif number in _CHARACTERS:
        name = BINARY if field.collation == values.BINARY else of()
        if name == BINARY:
            form, length = "x", field.meta if number == values.STRING else 0
        elif name in UTF8:
            form = "t"
        elif letters := _letters(name):
            form = "l"
    return Wire(form, size, is_sized=True, length=length, members=letters)


def _members(number: int, texts: tuple[str, ...]) -> tuple[bytes, ...]:
    if number == values.ENUM:
        return values.members(texts)
    return tuple(json.encode(text)[1:-1] for text in texts)


@cache
def _letters(name: str) -> tuple[bytes, ...]:
    """Return the JSON of each byte of a character set of single bytes, empty for one that is no character; else nothing."""
    if width(name) != 1:
        return ()
    try:
        codec = decoder(name, "")
    except NoForm:
        return ()
    return tuple(json.encode(codecs.decode(bytes([byte]), codec, "ignore"))[1:-1] for byte in range(256))


_OBJECT, _LARGE_OBJECT, _ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_DOUBLE, _STRING, _OPAQUE = 0x0B, 0x0C, 0x0F
_NUMBERS: Final = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_LITERALS: Final = ("null", "true", "false")
_DEEPEST = 100


def json_text(data: bytes) -> str:
    """Return the document as the server prints it; nothing at all is null."""
    return _Document(data).value(data[0], 1, 0) if data else "null"


class _Document:
    """One document, which has no more values than bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = len(data) + 1

    def value(self, kind: int, at: int, depth: int) -> str:
        self._left -= 1
        if depth > _DEEPEST or self._left < 0 or at > len(self._data):
            raise ValueError("a JSON document refers to itself")
        if kind in {_OBJECT, _LARGE_OBJECT, _ARRAY, _LARGE_ARRAY}:
            return self._container(kind, at, depth)
        if kind == _LITERAL:
            return _LITERALS[self._data[at]]
        if kind in _NUMBERS:
            return str(struct.unpack_from(_NUMBERS[kind], self._data, at)[0])
        if kind == _DOUBLE:
            number = struct.unpack_from("<d", self._data, at)[0]
            values.double_json(number)
            return double_text(number)
        if kind == _STRING:
            return json.encode(self._bytes(at).decode()).decode()
        if kind == _OPAQUE:
            return _opaque(self._data[at], self._bytes(at + 1))
        raise ValueError("a JSON value is of an unknown type")

    def _container(self, kind: int, start: int, depth: int) -> str:
        large, is_object = kind in {_LARGE_OBJECT, _LARGE_ARRAY}, kind in {_OBJECT, _LARGE_OBJECT}
        width, form = (4, "<I") if large else (2, "<H")
        (count,) = struct.unpack_from(form, self._data, start)
        keys = start + 2 * width
        entries = keys + (count * (width + 2) if is_object else 0)
        if entries + count * (width + 1) > len(self._data):
            raise ValueError("a JSON value has more elements than bytes")
        inline = {_LITERAL, 5, 6} | ({7, 8} if large else set())
        parts = []
        for number in range(count):
            entry = entries + number * (width + 1)
            element = self._data[entry]
            (offset,) = struct.unpack_from(form, self._data, entry + 1)
            text = self.value(element, entry + 1 if element in inline else start + offset, depth + 1)
            if is_object:
                offset, length = struct.unpack_from(form + "H", self._data, keys + number * (width + 2))
                name = self._data[start + offset : start + offset + length].decode()
                text = f"{json.encode(name).decode()}: {text}"
            parts.append(text)
        return f"{{{', '.join(parts)}}}" if is_object else f"[{', '.join(parts)}]"

    def _bytes(self, at: int) -> bytes:
        """Seven bits of the length in each byte, the lowest first, while the eighth is set; then the bytes."""
        length = 0
        for number in range(5):
            byte = self._data[at + number]
            length |= (byte & 0x7F) << (7 * number)
            if byte < 0x80:
                text = self._data[at + number + 1 : at + number + 1 + length]
                if len(text) != length:
                    raise ValueError("a JSON string is cut short")
                return text
        raise ValueError("a JSON string has an impossible length")


def double_text(number: float) -> str:
    """Return a double as the server prints it: the shortest digits, whole ones with a point, so that they stay doubles.

    Numbers below 1e-15, and whole ones from 1e15 on, have an exponent.
    """
    text = repr(number)
    if "e" not in text and (abs(number) < 1e15 or not text.endswith(".0")):
        return text
    sign, parts, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    digits = "".join(map(str, parts)).rstrip("0")
    # Of 0.DIGITS.
    power = len(parts) + exponent
    if -15 < power < 1:
        return f"{'-' * sign}0.{'0' * -power}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{'-' * sign}{digits[0]}{fraction}e{power - 1}"


def _opaque(kind: int, data: bytes) -> str:
    if kind == values.NEWDECIMAL:
        return values.decimal(data[0], data[1], data[2:])
    if kind in {values.DATE, values.DATETIME, values.TIMESTAMP, values.TIME} and len(data) == 8:
        packed = int.from_bytes(data, "little", signed=True)
        return f'"{_moment(kind, packed)}"'
    return f'"base64:type{kind}:{b64encode(data).decode()}"'


def _moment(kind: int, packed: int) -> str:
    sign = "-" if packed < 0 and kind == values.TIME else ""
    packed = abs(packed)
    whole, micro = packed >> 24, packed & 0xFFFFFF
    if kind == values.TIME:
        hour, minute, second = whole >> 12 & 0x3FF, whole >> 6 & 63, whole & 63
        return f"{sign}{hour:02}:{minute:02}:{second:02}.{micro:06}"
    date = values.DAYS[whole >> 17].decode()[:10]
    if kind == values.DATE:
        return date
    return f"{date} {values.TIMES[whole & 0x1FFFF].decode()}.{micro:06}"
