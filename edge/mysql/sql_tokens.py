"""The tokens of a statement as MariaDB and MySQL read it: words, names and strings in quotes, signs; comments are passed over.

What is in an executable comment counts, whatever the version that it is for.
"""

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

#: Bits of `sql_mode` that change how text is read.
ANSI_QUOTES: Final = 0x4
NO_BACKSLASH_ESCAPES: Final = 0x100000

_SPACE = re.compile(r"[\x00-\x20]+")
_EXECUTABLE = re.compile(r"/\*M?!\d{0,6}")
_COMMENT = re.compile(r"/\*.*?(?:\*/|$)", re.DOTALL)
_LINE = re.compile(r"(?:#|--(?=[\x00-\x20]|$))[^\n]*")
_WORD = re.compile("[0-9A-Za-z_$\u0080-\U0010ffff]+")
_TICKED = re.compile(r"`((?:[^`]|``)*)(?:`|$)", re.DOTALL)
_DOUBLE = re.compile(r'"((?:[^"]|"")*)(?:"|$)', re.DOTALL)
_SINGLE = re.compile(r"'((?:[^']|'')*)(?:'|$)", re.DOTALL)
_DOUBLE_ESCAPED = re.compile(r'"((?:[^"\\]|""|\\.)*)(?:"|$)', re.DOTALL)
_SINGLE_ESCAPED = re.compile(r"'((?:[^'\\]|''|\\.)*)(?:'|$)", re.DOTALL)


class Form(Enum):
    """What a token is."""

    #: A keyword, a name without quotes, or a number.
    WORD = "word"
    #: A name in quotes. Whether one in double quotes is a string depends on where it is.
    NAME = "name"
    STRING = "string"
    #: One character of punctuation.
    SIGN = "sign"


class Token(NamedTuple):
    """A token, without its quotes."""

    form: Form
    text: str

    @property
    def keyword(self) -> str:
        """The word in capitals; empty for anything that cannot be a keyword."""
        return self.text.upper() if self.form is Form.WORD else ""

    def is_sign(self, sign: str) -> bool:
        """Return whether it is this character of punctuation."""
        return self.form is Form.SIGN and self.text == sign


def tokens(text: str, sql_mode: int = 0) -> Iterator[Token]:
    """Yield the tokens of a statement."""
    double = _DOUBLE if sql_mode & (ANSI_QUOTES | NO_BACKSLASH_ESCAPES) else _DOUBLE_ESCAPED
    single = _SINGLE if sql_mode & NO_BACKSLASH_ESCAPES else _SINGLE_ESCAPED
    at, size, in_executable = 0, len(text), 0
    while at < size:
        if in_executable and text.startswith("*/", at):
            at, in_executable = at + 2, in_executable - 1
        elif opened := _EXECUTABLE.match(text, at):
            at, in_executable = opened.end(), in_executable + 1
        elif passed := _SPACE.match(text, at) or _COMMENT.match(text, at) or _LINE.match(text, at):
            at = passed.end()
        elif word := _WORD.match(text, at):
            at = word.end()
            yield Token(Form.WORD, word[0])
        elif quoted := _TICKED.match(text, at):
            at = quoted.end()
            yield Token(Form.NAME, quoted[1].replace("``", "`"))
        elif quoted := double.match(text, at):
            at = quoted.end()
            yield Token(Form.NAME, quoted[1].replace('""', '"'))
        elif quoted := single.match(text, at):
            at = quoted.end()
            yield Token(Form.STRING, quoted[1])
        else:
            yield Token(Form.SIGN, text[at])
            at += 1
