"""Character sets by the server's names, as Python decodes them (MariaDB manual, "Supported Character Sets").

Everything in the log is as the table stores it; records are UTF-8. A character set that no codec of Python's equals is
refused by name, not guessed.
"""

import codecs
from typing import Final

from headrace.errors import NeedsOperator

#: Character sets whose bytes are UTF-8 already.
UTF8: Final = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})
BINARY: Final = "binary"

_CODECS: Final = {
    "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13", "greek": "iso8859_7", "hebrew": "iso8859_8",
    "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257", "cp850": "cp850", "cp852": "cp852",
    "cp866": "cp866", "koi8r": "koi8_r", "koi8u": "koi8_u", "tis620": "tis_620", "macroman": "mac_roman",
    "macce": "mac_latin2", "big5": "big5", "gbk": "gbk", "gb2312": "gb2312", "gb18030": "gb18030", "sjis": "shift_jis",
    "cp932": "cp932", "ujis": "euc_jp", "euckr": "euc_kr", "ucs2": "utf_16_be", "utf16": "utf_16_be",
    "utf16le": "utf_16_le", "utf32": "utf_32_be",
}  # fmt: skip
#: Most bytes of a character, where it is not one: the log has a column's length in bytes.
_WIDTHS: Final = {
    "utf8mb4": 4, "utf8mb3": 3, "utf8": 3, "ucs2": 2, "utf16": 4, "utf16le": 4, "utf32": 4, "big5": 2, "gbk": 2, "gb2312": 2,
    "gb18030": 4, "sjis": 2, "cp932": 2, "ujis": 3, "euckr": 2,
}  # fmt: skip
#: The servers' latin1 is Windows' code page 1252, with its five holes filled by the control characters of ISO 8859-1.
_LATIN1 = "".join(
    bytes([byte]).decode("latin1" if byte in {0x81, 0x8D, 0x8F, 0x90, 0x9D} else "cp1252") for byte in range(256)
)


def known() -> frozenset[str]:
    """Return the character sets that are read."""
    return UTF8 | _CODECS.keys() | {"latin1", BINARY}


def width(charset: str) -> int:
    """Return how many bytes a character of a character set takes at most."""
    return _WIDTHS.get(charset, 1)


def decoder(charset: str, column: str) -> str:
    """Return the name of the codec for a character set; raise NeedsOperator, naming the column, when there is none."""
    if charset == "latin1":
        return "headrace_latin1"
    if charset in _CODECS:
        return _CODECS[charset]
    raise NeedsOperator(
        f"column {column} has the character set {charset!r}, which this release does not read",
        hint="Convert the column to utf8mb4, or leave its table out of the source's tables.",
    )


def statement_text(words: bytes, charset: str) -> str:
    """Return a statement as text; what its client's character set does not have becomes U+FFFD."""
    if charset == "latin1":
        return words.decode("headrace_latin1")
    return words.decode(_CODECS.get(charset, "utf-8"), "replace")


def _find(name: str) -> codecs.CodecInfo | None:
    if name != "headrace_latin1":
        return None
    return codecs.CodecInfo(
        name=name,
        encode=lambda text, errors="strict": codecs.charmap_encode(text, errors, codecs.charmap_build(_LATIN1)),
        decode=lambda data, errors="strict": codecs.charmap_decode(data, errors, _LATIN1),
    )


codecs.register(_find)
