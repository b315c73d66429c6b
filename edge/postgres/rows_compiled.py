"""Change decoders, generated for tables that change often: from a message to key and value with nothing made for a column but
its bytes.

A generated function walks the columns in straight code and joins their bytes with the constants between them, once. It gives
the same bytes as edge/postgres/rows.py, to which it hands every message that holds something unusual: an unchanged column,
NaN, a date before year 1. All texts of a message are checked at once: encoding them together makes them longer when one of
them holds something to escape, and fails when one is no UTF-8; only then they are encoded one by one.
"""

from binascii import b2a_base64, unhexlify
from collections.abc import Callable, Iterable

from msgspec import json

from edge.postgres import values
from edge.postgres.rows import HEADER, PAD, Change, Table

#: Stands for null between quotes. A text that holds the same bytes is another object, and is escaped.
_MARK = b"\0\0"
_MARK_GROWS_BY = len(json.encode(_MARK.decode())) - len(b'""') - len(_MARK)
_AROUND = "committed, place, ordinal, read, number"

#: A piece of a joined record: a constant, or the name of a variable.
Piece = bytes | str


#: So many changes of one kind come the exact way before a function is made for them. Making one takes as long as it saves on
#: 200 to 700 changes, whatever the table's width; a table of 700 columns would stop the log for a third of a second.
WORTH_MAKING = 256


class Changes(dict[bytes, Change]):
    """A table's functions by the first eight bytes of the messages that they decode; it holds those that last."""

    def __init__(self, table: Table) -> None:
        oid, width = table.relation.oid.to_bytes(4, "big"), table.new[1:]
        super().__init__({b"U" + oid + b"K" + width: table.update, b"D" + oid + b"K" + width: table.delete})
        self._table = table
        self._ways: dict[bytes, tuple[Change, Callable[[Table], Change]]] = {
            b"I" + oid + b"N" + width: (table.insert, insert),
            b"U" + oid + b"N" + width: (table.update, _update),
            b"U" + oid + b"O" + width: (table.update, _whole_update),
            b"D" + oid + b"O" + width: (table.delete, _delete),
        }
        self._seen = dict.fromkeys(self._ways, 0)

    def __missing__(self, prefix: bytes) -> Change:
        """Return the exact function, or make one that lasts; KeyError for what is no change of this table."""
        exact, make = self._ways[prefix]
        if self._seen[prefix] < WORTH_MAKING:
            self._seen[prefix] += 1
            return exact
        made = self[prefix] = make(self._table)
        return made


def insert(table: Table) -> Change:
    """Return the function for a table's Insert messages."""
    new = _Tuple(table, "n")
    return _compiled(
        table,
        "insert",
        [*new.walk(8), "if p != e: return exact(m, " + _AROUND + ")"],
        [new],
        [b'{"before":null,"after":{', *new.row(), b"},", *_rest(table, table.envelope.created)],
        new.key(),
    )


def _update(table: Table, *, whole_old: bool = False) -> Change:
    new, old = _Tuple(table, "n"), _Tuple(table, "o")
    exact = "return exact(m, " + _AROUND + ")"
    lines: list[str] = []
    before: list[Piece] = [b"null"]
    if whole_old:
        lines += [*old.walk(8), f"if m[p:p + 3] != {table.new!r}: {exact}", *new.walk("p + 3")]
        before = [b"{", *old.row(), b"}"]
    else:
        lines += new.walk(8)
    return _compiled(
        table,
        "update",
        [*lines, f"if p != e: {exact}"],
        [old, new] if whole_old else [new],
        [b'{"before":', *before, b',"after":{', *new.row(), b"},", *_rest(table, b"u")],
        new.key(),
    )


def _whole_update(table: Table) -> Change:
    return _update(table, whole_old=True)


def _delete(table: Table) -> Change:
    old = _Tuple(table, "o")
    return _compiled(
        table,
        "delete",
        [*old.walk(8), "if p != e: return exact(m, " + _AROUND + ")"],
        [old],
        [b'{"before":{', *old.row(), b'},"after":null,', *_rest(table, b"d")],
        old.key(),
    )


def _rest(table: Table, op: bytes) -> list[Piece]:
    shared = table.envelope
    middle = b'"},"op":"%b","ts_ms":' % op
    return [shared.head, "committed", shared.middle, "place", "ordinal", middle, "read", "number", b"}}"]


def _compiled(
    table: Table, name: str, lines: list[str], tuples: "list[_Tuple]", value: list[Piece], key: list[Piece]
) -> Change:
    texts = [text for part in tuples for text in part.texts]
    body = ["e = len(m) - " + str(len(PAD)), "z = 0", *lines]
    if texts:
        joined = texts[0] if len(texts) == 1 else f"comma(({', '.join(texts)}))"
        names = ", ".join(texts) + ","
        body += [
            f"t = {joined}",
            f"if len(encode(t.decode())) - len(t) != 2 + (z & {_TEXT_NULLS}):",
            f"    {names} = escape(({names}))",
        ]
    body.append(f"value = {_joined(value)}")
    key_code = _joined(key) if key else "None"
    if any(part.marks for part in tuples):
        put_right = ".replace(quoted_mark, null)"
        body += ["if z:", f"    return {key_code}{put_right if key else ''}, value{put_right}"]
    body.append(f"return {key_code}, value")
    source = f"def {name}(m, {_AROUND}):\n" + "".join(f"    {line}\n" for line in body)
    scope = {
        "header": HEADER, "join": b"".join, "comma": b",".join, "encode": json.encode, "escape": _escaped,
        "exact": getattr(table, name), "mark": _MARK, "quoted_mark": b'"%b"' % _MARK, "null": values.NULL, "true": b"true",
        "false": b"false", "hexadecimal": b"\\x", "iso": values.TO_ISO, "base64": b2a_base64, "unhexlify": unhexlify,
    }  # fmt: skip
    scope |= {
        f"form{number}": table.converters[number] for number, kind in enumerate(table.kinds) if kind == values.FORMED
    }
    exec(compile(source, f"<{name} of {table.relation.oid}>", "exec"), scope)  # noqa: S102 - made of numbers and of constants.
    change: Change = scope[name]
    return change


def _escaped(texts: tuple[bytes, ...]) -> list[bytes]:
    """Return texts as they stand between the quotes of JSON; marks as they are."""
    return [text if text is _MARK else json.encode(text.decode())[1:-1] for text in texts]


#: How the counter of nulls is split: by how much marks make the checked texts longer, and whether there are others.
_TEXT_NULLS, _OTHER_NULL = 0xFFFFF, 1 << 20


def _joined(pieces: Iterable[Piece]) -> str:
    """Return the expression that joins the pieces, neighbouring constants made one."""
    merged: list[Piece] = []
    for piece in pieces:
        if merged and isinstance(piece, bytes) and isinstance(merged[-1], bytes):
            merged[-1] += piece
        else:
            merged.append(piece)
    return "join((" + ", ".join(piece if isinstance(piece, str) else repr(piece) for piece in merged) + ",))"


class _Tuple:
    """The code for one tuple of a message, its variables told from others by a letter."""

    def __init__(self, table: Table, letter: str) -> None:
        self._table = table
        self._letter = letter
        #: Variables that are checked for escapes.
        self.texts = [self._name(number) for number, kind in enumerate(table.kinds) if _is_text(kind)]
        #: Whether a null is marked, to be put right afterwards.
        self.marks = any(map(_is_quoted, table.kinds))

    def _name(self, number: int) -> str:
        return f"{self._letter}{number}"

    def walk(self, start: int | str) -> list[str]:
        """Return the statements that take the columns from an offset on; they leave the end of the tuple in `p`."""
        lines = [f"p = {start}"]
        for number, kind in enumerate(self._table.kinds):
            lines += _take(kind, number, self._name(number))
        return lines

    def row(self) -> list[Piece]:
        """Return the pieces of the row's JSON, without braces."""
        return self._fields(self._table.held)

    def key(self) -> list[Piece]:
        """Return the pieces of the key's JSON; none for a table without a key."""
        numbers = self._table.key_columns
        return [b"{", *self._fields(numbers), b"}"] if numbers else []

    def _fields(self, numbers: Iterable[int]) -> list[Piece]:
        pieces: list[Piece] = []
        for number in numbers:
            quote = b'"' if _is_quoted(self._table.kinds[number]) else b""
            comma = b"," if pieces else b""
            pieces += [comma + self._table.names[number] + b":" + quote, self._name(number), quote]
        return pieces


def _is_quoted(kind: int) -> bool:
    return kind not in values.INTEGERS | values.FLOATS | values.ESCAPED | {values.BOOL, values.FORMED, values.LEFT_OUT}


def _is_text(kind: int) -> bool:
    return _is_quoted(kind) and kind not in values.PLAIN | {values.TIMESTAMP, values.TIMESTAMPTZ, values.BYTEA}


def _take(kind: int, number: int, name: str) -> list[str]:
    """Return the statements that take one column at `p` and move `p` behind it."""
    exact = "return exact(m, " + _AROUND + ")"
    if kind == values.LEFT_OUT:
        text = ["p += n"]
    elif kind in values.FLOATS:
        other = f"m[p - 1] > {values.NINE} or {name} == {values.NEGATIVE_ZERO!r}"
        text = [f"{name} = m[p:(p := p + n)]", f"if {other}: {exact}"]
    elif kind == values.BOOL:
        text = [f"{name} = true if m[p] == {ord('t')} else false", "p += n"]
    elif kind == values.TIMESTAMP:
        text = [f"{name} = m[p:(p := p + n)].translate(iso)", f"if m[p - 1] > {values.NINE}: {exact}"]
    elif kind == values.TIMESTAMPTZ:
        text = [f"{name} = m[p:(p := p + n) - 2].translate(iso)", f"if m[p - 3] != {ord('+')}: {exact}"]
    elif kind == values.BYTEA:
        text = [
            f"if m[p:p + 2] != hexadecimal: {exact}",
            f"{name} = base64(unhexlify(m[p + 2:(p := p + n)]), newline=False)",
        ]
    elif kind == values.FORMED:
        text = [f"{name} = form{number}(m[p:(p := p + n)])"]
    elif kind in values.ESCAPED:
        text = [f"{name} = encode(m[p:(p := p + n)].decode())"]
    else:
        text = [f"{name} = m[p:(p := p + n)]"]
    if _is_quoted(kind):
        null = [
            f"{name} = mark",
            f"z {'+' if _is_text(kind) else '|'}= {_MARK_GROWS_BY if _is_text(kind) else _OTHER_NULL}",
        ]
    else:
        null = [f"{name} = null"]
    return [
        "k, n = header(m, p)",
        "if k == 116:",
        "    p += 5",
        *(f"    {line}" for line in text),
        "elif k == 110:",
        "    p += 1",
        *(f"    {line}" for line in null),
        "else:",
        f"    {exact}",
    ]
