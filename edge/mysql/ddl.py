"""Statements in the log, as far as they bear on rows: where a transaction ends, which tables are emptied, what no log can hold.

Assumes that servers write what they were sent, comments and all, or `DROP TABLE` with names in backticks. What is not recognised
as harmless is refused: a change that came as a statement would be lost. Where a statement empties tables and their names cannot
be read, it counts as one that moves rows, which is reported.
"""

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

from edge.mysql.sql_tokens import Form, Token, tokens


class Kind(Enum):
    """What a statement means for the stream."""

    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    #: Tables lose all their rows: TRUNCATE, DROP, CREATE OR REPLACE.
    EMPTIES = "empties"
    #: Rows move or vanish without a row event: RENAME TABLE, DROP DATABASE, a partition dropped or exchanged, rows by a query.
    MOVES = "moves"
    #: An XA transaction's rows begin, and end; one that was prepared is decided upon.
    XA_START = "xa start"
    XA_END = "xa end"
    XA_COMMIT = "xa commit"
    XA_ROLLBACK = "xa rollback"
    HARMLESS = "harmless"
    #: Rows changed by statement.
    REFUSED = "refused"


#: Database, empty where the statement leaves it out and none is given, and table.
Name = tuple[str, str]


class Statement(NamedTuple):
    """A statement's kind, and the tables that it bears on."""

    kind: Kind
    #: The tables that it empties; of one that changed rows by statement those that it changed, none where they cannot be read.
    tables: tuple[Name, ...] = ()
    #: Of the statement, its first keywords and the name after them as it is written, for messages: never a value.
    opening: str = ""
    #: Of the XA transaction, as the server writes it.
    xid: str = ""
    #: Tables whose rows are others now, and the reason.
    moved: tuple[tuple[Name, str], ...] = ()
    #: The database that it drops.
    dropped: str | None = None


#: Most of a log's statements are these, as the server writes them.
_BOUNDS: Final = {
    bound: Statement(kind, opening=bound)
    for bound, kind in (("BEGIN", Kind.BEGIN), ("COMMIT", Kind.COMMIT), ("ROLLBACK", Kind.ROLLBACK))
}
_XA = re.compile(r"XA\s+(START|END|COMMIT|ROLLBACK)\s+(X'[0-9A-F]*',X'[0-9A-F]*',\d+)", re.IGNORECASE)
_XA_KINDS: Final = {"START": Kind.XA_START, "END": Kind.XA_END, "COMMIT": Kind.XA_COMMIT, "ROLLBACK": Kind.XA_ROLLBACK}
#: What begins a statement that empties tables, without the words that may be between.
_EMPTYING: Final = (("TRUNCATE", "TABLE"), ("TRUNCATE",), ("DROP", "TABLE"), ("DROP", "TABLES"), ("CREATE", "TABLE"))
#: What ALTER TABLE does to rows by two words, and the reason.
_MOVING: Final = {
    ("DROP", "PARTITION"): "a partition was dropped",
    ("TRUNCATE", "PARTITION"): "a partition was truncated",
    ("EXCHANGE", "PARTITION"): "a partition was exchanged with a table",
    ("CONVERT", "PARTITION"): "a partition became a table",
    ("CONVERT", "TABLE"): "a table became a partition",
    ("DISCARD", "TABLESPACE"): "its tablespace was discarded",
    ("IMPORT", "TABLESPACE"): "its tablespace was imported",
    ("DISCARD", "PARTITION"): "a partition's tablespace was discarded",
    ("IMPORT", "PARTITION"): "a partition's tablespace was imported",
}
#: First words of statements that change rows of tables that follow.
_CHANGING: Final = frozenset({"INSERT", "REPLACE", "UPDATE", "DELETE"})
#: What may be between the first word of a statement that changes rows and the table.
_MODIFIERS: Final = frozenset(
    {"LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE", "INTO", "FROM", "HISTORY"}
)
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


def read_statement(text: str, sql_mode: int = 0, database: str = "", *, lower_case: bool = False) -> Statement:
    """Return what a statement means that was executed under an `sql_mode`, in a database.

    `lower_case`: the server keeps names of tables in lower case, however statements write them.
    """
    if bound := _BOUNDS.get(text):
        return bound
    if match := _XA.fullmatch(text.strip("; \n\t")):
        return Statement(
            _XA_KINDS[match[1].upper()], opening=f"XA {match[1].upper()}", xid=match[2].lower().replace("x'", "X'")
        )
    return _Reader(list(tokens(text, sql_mode)), database, lower_case=lower_case).statement()


class _Reader:
    """Reads one statement."""

    def __init__(self, tokens: list[Token], database: str, *, lower_case: bool) -> None:
        self._tokens, self._database, self._lower_case = tokens, database, lower_case
        self._words = [token.keyword for token in tokens]

    def statement(self) -> Statement:
        """Return what it means."""
        words = self._words
        word = words[0] if words else ""
        if word in _BOUNDS or words[:2] == ["START", "TRANSACTION"]:
            kind = _BOUNDS[word].kind if word in _BOUNDS else Kind.BEGIN
            return Statement(kind, opening=_opening(self._tokens))
        if words[:2] == ["SET", "STATEMENT"]:
            # MariaDB's SET STATEMENT variable = value FOR statement.
            return self._rest(words.index("FOR") + 1).statement() if "FOR" in words else self._read_refused()
        if word == "ANALYZE" and (inner := [at for at, of in enumerate(words[:5]) if of in _CHANGING]):
            # MariaDB's, which executes what it analyses.
            return self._rest(inner[0]).statement()
        moving = self._moving()
        if moving is not None:
            return moving
        return Statement(Kind.HARMLESS, opening=_opening(self._tokens)) if word in _HARMLESS else self._read_refused()

    def _moving(self) -> Statement | None:
        """Return a statement that empties tables, or moves rows without row events; None for any other one."""
        words = self._words
        if self._is("CREATE", "TABLE") and self._has_query():
            return self._read_create()
        tables = self._read_emptied()
        if tables is not None:
            return self._moves(tables=tables) if tables else Statement(Kind.MOVES, opening=_opening(self._tokens))
        if words[:1] == ["RENAME"] and words[1:2] != ["USER"]:
            return self._rename(list(self._pairs()))
        if words[:1] == ["DROP"] and words[1:2] in (["DATABASE"], ["SCHEMA"]):
            return self._read_drop()
        return self._read_alter() if words[:1] == ["ALTER"] and "TABLE" in words[1:4] else None

    def _rest(self, at: int) -> "_Reader":
        return _Reader(self._tokens[at:], self._database, lower_case=self._lower_case)

    def _is(self, *words: str) -> bool:
        """Whether the statement begins with these words, with OR REPLACE behind the first one or without."""
        rest = self._words[3:] if self._words[1:3] == ["OR", "REPLACE"] else self._words[1:]
        return self._words[:1] == [words[0]] and rest[: len(words) - 1] == list(words[1:])

    def _name(self, at: int) -> tuple[Name | None, int]:
        """Return the table that is named at a place, None where no name is, and the place after it."""
        words = self._tokens[at : at + 3]
        if not words or words[0].form not in {Form.WORD, Form.NAME}:
            return None, at
        if len(words) < 2 or not words[1].is_sign("."):
            return self._resolve(self._database, words[0].text), at + 1
        if len(words) < 3:
            return None, at
        return self._resolve(words[0].text, words[2].text), at + 3

    def _resolve(self, database: str, table: str) -> Name:
        return (database.lower(), table.lower()) if self._lower_case else (database, table)

    def _after(self, at: int, *words: str) -> int:
        """Return the place after words that may be there, in this order."""
        return at + len(words) if self._words[at : at + len(words)] == list(words) else at

    def _moves(
        self,
        *,
        tables: Iterable[Name] = (),
        moved: Iterable[tuple[Name, str]] = (),
        dropped: str | None = None,
        several: bool = False,
    ) -> Statement:
        """Return a statement that empties tables, or moves rows; one whose names cannot be read names none."""
        tables, moved = tuple(tables), tuple(moved)
        opening = _opening(self._tokens, several=several)
        names = [*tables, *(name for name, _ in moved), ("", dropped or "")]
        if any(_UNREADABLE in part for name in names for part in name):
            return Statement(Kind.MOVES, opening=opening)
        kind = Kind.EMPTIES if tables and not moved else Kind.MOVES
        return Statement(kind, tables, opening, moved=moved, dropped=dropped)

    def _read_refused(self) -> Statement:
        """Return a statement that changed rows, with the table that it changed where it is only one."""
        words, opening = self._words, _opening(self._tokens)
        name: Name | None = None
        at = 1
        if words[:1] == ["LOAD"] and "INTO" in words:
            at = words.index("INTO") + 1
            name, at = self._name(self._after(at, "TABLE"))
        elif words[:1] and words[0] in _CHANGING:
            while words[at : at + 1] and words[at] in _MODIFIERS:
                at += 1
            name, at = self._name(at)
            if words[0] == "DELETE" and name is not None and at == len(words) and "FROM" in words:
                # All rows: so servers log what empties a table in memory when they start.
                return self._moves(tables=[name])
            head = words[at : words.index("SET")] if words[0] == "UPDATE" and "SET" in words else words[at:]
            signs = self._tokens[at : at + len(head)] if words[0] == "UPDATE" else self._tokens[at : at + 1]
            joins = words[0] == "UPDATE" and {"JOIN", "STRAIGHT_JOIN"} & set(head)
            if joins or any(token.is_sign(",") for token in signs) or (words[0] == "DELETE" and "USING" in head):
                name = None
            elif words[0] == "DELETE" and "FROM" not in words[1:at]:
                # DELETE a FROM b AS a …
                name = None
        readable = name is not None and not any(_UNREADABLE in part for part in name)
        return Statement(Kind.REFUSED, (name,) if readable and name is not None else (), opening)

    def _has_query(self) -> bool:
        """Whether a CREATE TABLE takes its rows from a query."""
        rest = self._words[2:]
        is_other = any(first == "VALUES" and second == "ROW" for first, second in pairwise(rest))
        return "SELECT" in rest or is_other

    def _read_create(self) -> Statement:
        replaces = self._words[1:3] == ["OR", "REPLACE"]
        name, _ = self._name(self._after(4 if replaces else 2, "IF", "NOT", "EXISTS"))
        if name is None:
            return Statement(Kind.MOVES, opening=_opening(self._tokens))
        reason = "rows came with CREATE TABLE … SELECT, which was logged as a statement"
        return self._moves(tables=[name] if replaces else [], moved=[(name, reason)])

    def _read_emptied(self) -> tuple[Name, ...] | None:
        """Return the tables that a statement empties; None where it empties none."""
        words = self._words
        replaces = words[:3] == ["CREATE", "OR", "REPLACE"]
        head = (words[0], words[3]) if replaces and len(words) > 3 else tuple(words[:2])
        if head[:1] == ("CREATE",) and not replaces:
            return None
        if head in _EMPTYING:
            at = 4 if replaces else 2
        elif head[:1] == ("TRUNCATE",):
            at = 1
        else:
            return None
        at = self._after(at, "IF", "EXISTS")
        names = []
        while True:
            name, at = self._name(at)
            if name is not None:
                names.append(name)
            if name is None or head[0] != "DROP" or not self._tokens[at : at + 1] or not self._tokens[at].is_sign(","):
                return tuple(names)
            at += 1

    def _pairs(self) -> Iterator[tuple[Name, Name]]:
        """Yield former and new name of RENAME TABLE."""
        at = self._after(2, "IF", "EXISTS")
        while True:
            former, at = self._name(at)
            while at < len(self._words) and self._words[at] != "TO":
                # MariaDB's WAIT n and NOWAIT.
                at += 1
            name, at = self._name(at + 1)
            if former is None or name is None:
                return
            yield former, name
            if not self._tokens[at : at + 1] or not self._tokens[at].is_sign(","):
                return
            at += 1

    def _rename(self, pairs: list[tuple[Name, Name]]) -> Statement:
        """Return what renames do one after another: who has no table any more is emptied, who has another one needs a copy."""
        present: dict[Name, Name | None] = {}
        existed: list[Name] = []
        for former, name in pairs:
            if former not in present:
                existed.append(former)
            present[name] = present.get(former, former)
            present[former] = None
        emptied = [name for name in existed if present[name] is None]
        moved = [
            (name, f"table {'.'.join(filter(None, former))} was renamed to it")
            for name, former in present.items()
            if former not in {None, name} and former is not None
        ]
        return self._moves(tables=emptied, moved=moved, several=True)

    def _read_drop(self) -> Statement:
        at = self._after(2, "IF", "EXISTS")
        name = self._tokens[at].text if at < len(self._tokens) else _UNREADABLE
        return self._moves(dropped=name.lower() if self._lower_case else name)

    def _read_alter(self) -> Statement | None:
        """Return what ALTER TABLE does to rows without row events; None where it does nothing."""
        words = self._words
        start = words.index("TABLE") + 1
        table, at = self._name(self._after(start, "IF", "EXISTS"))
        if table is None:
            return Statement(Kind.MOVES, opening=_opening(self._tokens))
        emptied: list[Name] = []
        moved = [(table, "ALTER IGNORE may have changed and deleted rows")] if "IGNORE" in words[1:start] else []
        for place in range(at, len(words) - 1):
            pair = words[place], words[place + 1]
            if pair in _MOVING:
                moved.append((table, _MOVING[pair]))
                other = self._other(pair, place)
                if other is not None and pair == ("CONVERT", "TABLE"):
                    emptied.append(other)
                elif other is not None:
                    moved.append((other, f"{_MOVING[pair]}: of {table[1]}"))
            elif pair[0] == "RENAME" and pair[1] not in _RENAMED_WITHIN:
                at = place + 1
                if words[at] in {"TO", "AS"} or self._tokens[at].is_sign("="):
                    at += 1
                name, _ = self._name(at)
                return self._rename([(table, name)]) if name else Statement(Kind.MOVES, opening=_opening(self._tokens))
        return self._moves(tables=emptied, moved=moved) if emptied or moved else None

    def _other(self, pair: tuple[str, str], place: int) -> Name | None:
        """Return the table that takes part in what an ALTER TABLE does with a partition."""
        if pair == ("CONVERT", "TABLE"):
            return self._name(place + 2)[0]
        if pair in {("EXCHANGE", "PARTITION"), ("CONVERT", "PARTITION")} and "TABLE" in self._words[place:]:
            return self._name(self._words.index("TABLE", place) + 1)[0]
        return None


def _opening(statement: list[Token], *, several: bool = False) -> str:
    """Return a statement's first keywords and the name after them; of `several` names all, as in RENAME TABLE a TO b."""
    keywords = [token.keyword for token in takewhile(lambda token: token.keyword in _OPENING, statement)]
    parts: list[str] = []
    for token in statement[len(keywords) :]:
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
