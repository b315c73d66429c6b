"""Statements in the log, read only as far as they bear on rows: where a transaction ends, which tables are emptied, what a
row-based log cannot hold.

Assumes that servers write what they were sent, comments and all, or `DROP TABLE` with names in backticks. What is not
recognised as harmless is refused: a change that came as a statement would be lost. Where a statement empties tables and their
names cannot be read, it counts as one that moves rows, which is reported.
"""

import re
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise, takewhile
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


class Kind(Enum):
    """What a statement means for the stream."""

    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    #: Tables lose all their rows: TRUNCATE, DROP, CREATE OR REPLACE.
    EMPTIES = "empties"
    #: Rows move or vanish without a row event: RENAME TABLE, DROP DATABASE, a partition dropped or exchanged.
    MOVES = "moves"
    #: An XA transaction's rows begin, and end; one that was prepared is decided upon.
    XA_START = "xa start"
    XA_END = "xa end"
    XA_COMMIT = "xa commit"
    XA_ROLLBACK = "xa rollback"
    HARMLESS = "harmless"
    #: Rows changed by statement.
    REFUSED = "refused"


class Statement(NamedTuple):
    """A statement's kind, and the tables it empties as (database or "", table)."""

    kind: Kind
    tables: tuple[tuple[str, str], ...] = ()
    #: Of the statement, its first keywords and the name after them as it is written, for messages: never a value.
    opening: str = ""
    #: Of the XA transaction, as the server writes it.
    xid: str = ""


#: Most of a log's statements are these, as the server writes them.
_BOUNDS: Final = {
    bound: Statement(kind, opening=bound)
    for bound, kind in (("BEGIN", Kind.BEGIN), ("COMMIT", Kind.COMMIT), ("ROLLBACK", Kind.ROLLBACK))
}
_XA = re.compile(r"XA\s+(START|END|COMMIT|ROLLBACK)\s+(X'[0-9A-F]*',X'[0-9A-F]*',\d+)", re.IGNORECASE)
_XA_KINDS: Final = {"START": Kind.XA_START, "END": Kind.XA_END, "COMMIT": Kind.XA_COMMIT, "ROLLBACK": Kind.XA_ROLLBACK}
#: What begins a statement that empties tables, without the words that may be between.
_EMPTYING: Final = (("TRUNCATE", "TABLE"), ("TRUNCATE",), ("DROP", "TABLE"), ("DROP", "TABLES"), ("CREATE", "TABLE"))
#: Pairs of words by which ALTER TABLE moves rows.
_MOVING: Final = frozenset({
    ("DROP", "PARTITION"), ("TRUNCATE", "PARTITION"), ("EXCHANGE", "PARTITION"), ("CONVERT", "PARTITION"),
    ("CONVERT", "TABLE"), ("DISCARD", "TABLESPACE"), ("IMPORT", "TABLESPACE"), ("DISCARD", "PARTITION"),
    ("IMPORT", "PARTITION"),
})  # fmt: skip
#: Words with which statements begin, ahead of the name of what they change, and what is between names.
_OPENING: Final = frozenset({
    "ALTER", "CREATE", "DATA", "DATABASE", "DELETE", "DROP", "EXISTS", "FROM", "IF", "IGNORE", "INSERT", "INTO", "LOAD", "ONLINE",
    "OR", "RENAME", "REPLACE", "SCHEMA", "SET", "START", "STATEMENT", "TABLE", "TABLES", "TRANSACTION", "TRUNCATE", "UPDATE",
    "ROLLBACK", "COMMIT", "BEGIN",
})  # fmt: skip
_JOINS: Final = frozenset({".", ",", "TO"})
#: What ALTER TABLE renames without moving a row.
_RENAMED_WITHIN: Final = frozenset({"COLUMN", "INDEX", "KEY", "CONSTRAINT"})
#: Takes the place of a character that could not be decoded.
_UNREADABLE: Final = "\ufffd"

#: First words of statements that change no row, or whose rows come as row events.
_HARMLESS = frozenset({
    "ALTER", "ANALYZE", "CHECK", "CREATE", "DROP", "FLUSH", "GRANT", "INSTALL", "OPTIMIZE", "RELEASE", "RENAME", "REPAIR",
    "REVOKE", "SAVEPOINT", "SET", "UNINSTALL",
})  # fmt: skip


def read_statement(text: str, sql_mode: int = 0) -> Statement:
    """Return what a statement means that was executed under an `sql_mode`."""
    if bound := _BOUNDS.get(text):
        return bound
    if match := _XA.fullmatch(text.strip("; \n\t")):
        return Statement(
            _XA_KINDS[match[1].upper()], opening=f"XA {match[1].upper()}", xid=match[2].lower().replace("x'", "X'")
        )
    return _read(list(tokens(text, sql_mode)))


def _read(found: list[Token]) -> Statement:
    words = [token.keyword for token in found[:6]]
    opening = _opening(found)
    word = words[0] if words else ""
    if word in _BOUNDS or words[:2] == ["START", "TRANSACTION"]:
        return Statement(_BOUNDS[word].kind if word in _BOUNDS else Kind.BEGIN, opening=opening)
    if words[:2] == ["SET", "STATEMENT"]:
        # MariaDB's SET STATEMENT variable = value FOR statement.
        after = next((number for number, token in enumerate(found) if token.keyword == "FOR"), None)
        return Statement(Kind.REFUSED, opening=opening) if after is None else _read(found[after + 1 :])
    tables = _emptied(found)
    if tables is not None:
        if not tables or any(_UNREADABLE in name for named in tables for name in named):
            return Statement(Kind.MOVES, opening=opening)
        return Statement(Kind.EMPTIES, tables, opening)
    if _moves(words, found):
        return Statement(Kind.MOVES, opening=_opening(found, several=words[:1] == ["RENAME"]))
    return Statement(Kind.HARMLESS if word in _HARMLESS else Kind.REFUSED, opening=opening)


def _opening(found: list[Token], *, several: bool = False) -> str:
    """Return a statement's first keywords and the name after them; of `several` names all, as in RENAME TABLE a TO b."""
    keywords = [token.keyword for token in takewhile(lambda token: token.keyword in _OPENING, found)]
    parts: list[str] = []
    for token in found[len(keywords) :]:
        # After a name comes what joins it to another one, or the end.
        named = bool(parts) and parts[-1] not in _JOINS
        joins = token.text if token.form is Form.SIGN else token.keyword
        if named and joins in _JOINS and (several or joins == "."):
            parts.append(joins)
        elif not named and token.form in {Form.WORD, Form.NAME}:
            parts.append(token.text)
        else:
            break
    names = "".join(f" {part} " if part == "TO" else f"{part} " if part == "," else part for part in parts)
    return " ".join([*keywords, *filter(None, [names.strip()])])


def _emptied(found: list[Token]) -> tuple[tuple[str, str], ...] | None:
    """Return the tables that a statement empties; None where it empties none."""
    words = [token.keyword for token in found[:4]]
    replaces = words[:3] == ["CREATE", "OR", "REPLACE"]
    head = (words[0], words[3]) if replaces and len(words) == 4 else tuple(words[:2])
    if head[:1] == ("CREATE",) and not replaces:
        return None
    if head in _EMPTYING:
        at = 4 if replaces else 2
    elif head[:1] == ("TRUNCATE",):
        at = 1
    else:
        return None
    if [token.keyword for token in found[at : at + 2]] == ["IF", "EXISTS"]:
        at += 2
    return tuple(_names(iter(found[at:]), several=head[0] == "DROP"))


def _names(rest: Iterator[Token], *, several: bool) -> Iterator[tuple[str, str]]:
    """Yield the tables that are named, as (database or "", table), up to what is no name."""
    token = next(rest, None)
    while token is not None and token.form in {Form.WORD, Form.NAME}:
        database, table = "", token.text
        token = next(rest, None)
        if token is not None and token.is_sign("."):
            second = next(rest, None)
            if second is None:
                return
            database, table = table, second.text
            token = next(rest, None)
        yield database, table
        if not several or token is None or not token.is_sign(","):
            return
        token = next(rest, None)


def _moves(words: list[str], found: list[Token]) -> bool:
    """Return whether rows move or vanish without row events."""
    if words[0:1] == ["RENAME"]:
        return words[1:2] != ["USER"]
    if words[0:1] == ["DROP"]:
        return words[1:2] in (["DATABASE"], ["SCHEMA"])
    if words[0:1] != ["ALTER"] or "TABLE" not in words[1:4]:
        return False
    pairs = [(first.keyword, second) for first, second in pairwise(found)]
    return any(
        (word, after.keyword) in _MOVING or (word == "RENAME" and after.keyword not in _RENAMED_WITHIN)
        for word, after in pairs
    )
