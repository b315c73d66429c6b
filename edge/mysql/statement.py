"""Statements in the log, read only as far as they bear on rows: where a transaction ends, which tables are emptied, what a
row-based log cannot hold.

Assumes that servers write what they were sent, comments and all, or `DROP TABLE` with names in backticks. What is not
recognised as harmless is refused: a change that came as a statement would be lost.
"""

import re
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """What a statement means for the stream."""

    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    #: Tables lose all their rows: TRUNCATE, DROP, CREATE OR REPLACE.
    EMPTIES = "empties"
    #: Rows move or vanish in a way that no row event tells: RENAME TABLE, DROP DATABASE, a partition dropped or exchanged.
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
    #: Of the statement, at most three words, for messages: never a value.
    opening: str = ""
    #: Of the XA transaction, as the server writes it.
    xid: str = ""


_SPACE = r"(?:\s|/\*(?!!|M!).*?\*/|--[^\n]*\n|#[^\n]*\n)*"
_OPENING = re.compile(rf"{_SPACE}(?:/\*(?:!|M!)\d*\s*)?", re.DOTALL)
_WORDS = re.compile(r"[A-Za-z]+(?:\s+[A-Za-z]+){0,2}")
_NAME = r"(?:`((?:[^`]|``)+)`|\"((?:[^\"]|\"\")+)\"|([\w$\u0080-\uffff]+))"
_TABLE = re.compile(rf"{_SPACE}{_NAME}{_SPACE}(?:\.{_SPACE}{_NAME}{_SPACE})?", re.DOTALL)
_TRUNCATE = re.compile(r"TRUNCATE\s+(?:TABLE\s+)?", re.IGNORECASE)
_DROP = re.compile(r"DROP\s+TABLES?\s+(?:IF\s+EXISTS\s+)?", re.IGNORECASE)
_REPLACE = re.compile(r"CREATE\s+OR\s+REPLACE\s+TABLE\s+", re.IGNORECASE)
_PARTITION = re.compile(
    r"\b(?:DROP|TRUNCATE|EXCHANGE)\s+PARTITION\b|\bDISCARD\s+(?:PARTITION\b.*)?TABLESPACE\b", re.IGNORECASE
)
_BOUNDS = {
    "BEGIN": Kind.BEGIN, "START TRANSACTION": Kind.BEGIN, "COMMIT": Kind.COMMIT, "ROLLBACK": Kind.ROLLBACK,
}  # fmt: skip
_XA = re.compile(r"XA\s+(START|END|COMMIT|ROLLBACK)\s+(X'[0-9A-F]*',X'[0-9A-F]*',\d+)", re.IGNORECASE)
_XA_KINDS = {"START": Kind.XA_START, "END": Kind.XA_END, "COMMIT": Kind.XA_COMMIT, "ROLLBACK": Kind.XA_ROLLBACK}
_RENAME = re.compile(r"\bRENAME\s+(?!COLUMN|INDEX|KEY|CONSTRAINT)", re.IGNORECASE)

#: First words of statements that change no row, or whose rows come as row events.
_HARMLESS = frozenset({
    "ALTER", "ANALYZE", "CHECK", "CREATE", "DROP", "FLUSH", "GRANT", "INSTALL", "OPTIMIZE", "RELEASE", "REPAIR", "REVOKE",
    "SAVEPOINT", "SET", "UNINSTALL",
})  # fmt: skip


def read_statement(words: str) -> Statement:
    """Return what a statement means."""
    opening = _OPENING.match(words)
    text = words[opening.end() if opening else 0 :].rstrip("; \n\t")
    first = _WORDS.match(text)
    said = " ".join(first[0].split()).upper() if first else ""
    word = said.partition(" ")[0]
    if bound := _BOUNDS.get(said) or _BOUNDS.get(word):
        return Statement(bound, opening=said)
    if word == "XA" and (match := _XA.fullmatch(text)):
        return Statement(_XA_KINDS[match[1].upper()], opening=said, xid=match[2].lower().replace("x'", "X'"))
    for pattern, several in ((_TRUNCATE, False), (_DROP, True), (_REPLACE, False)):
        if match := pattern.match(text):
            return Statement(Kind.EMPTIES, _tables(text, match.end(), several=several), said)
    if (
        word == "RENAME"
        or said.startswith(("DROP DATABASE", "DROP SCHEMA"))
        or (word == "ALTER" and (_PARTITION.search(text) or _RENAME.search(text)))
    ):
        return Statement(Kind.MOVES, opening=said)
    return Statement(Kind.HARMLESS if word in _HARMLESS else Kind.REFUSED, opening=said)


def _tables(text: str, at: int, *, several: bool) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    while match := _TABLE.match(text, at):
        first, second = _named(match.groups()[:3]), _named(match.groups()[3:])
        found.append((first, second) if second else ("", first))
        at = match.end()
        if not several or text[at : at + 1] != ",":
            break
        at += 1
    return tuple(found)


def _named(parts: tuple[str | None, ...]) -> str:
    ticked, quoted, plain = parts
    return (ticked or "").replace("``", "`") or (quoted or "").replace('""', '"') or plain or ""
