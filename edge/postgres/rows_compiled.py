"""Change decoders, generated for tables that change often: from a message to key and value with nothing made for a column but
its bytes.

The columns of a tuple are laid out almost as in MessagePack: `t`, four bytes of length, the text; `n` for null. With three bytes
of each header replaced, msgspec takes a tuple apart in one call, at a fraction of what a walk in Python costs. Texts hold no zero
bytes, so what is replaced can only be the header of a text shorter than 64 KiB; `n` and `u` are numbers in MessagePack, and
anything else in a header's place is no bytes afterwards. A generated function joins the texts with the constants between
them, once. It gives the same bytes as edge/postgres/rows.py, to which it hands every message that holds something unusual: a
column that is unchanged or larger, NaN, a date before year 1, and all that is no tuple. All texts of a message are checked at
once: encoding them together makes them longer when one of them holds something to escape, and fails when one is no UTF-8; only
then they are encoded one by one.
"""

from binascii import b2a_base64, unhexlify
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import MsgspecError, json, msgpack

from edge.postgres import rows, values
from edge.postgres.rows import PAD, Change, Table

#: Null between quotes. A text that holds the same bytes is another object, and is escaped.
_MARK = b"\0\0"
_MARK_GROWS_BY = len(json.encode(_MARK.decode())) - len(b'""') - len(_MARK)
_AROUND = "committed, place, ordinal, read, number"
_EXACT = f"return exact(m, {_AROUND})"
#: The columns in a padded message.
_COLUMNS = f"m[8:-{len(PAD)}]"
#: How the header of a text shorter than 64 KiB begins, and what MessagePack has in its place: bin 16, array 16.
_HEADER, _SHORT_HEADER, _ARRAY = b"t\0\0", b"\xc5", b"\xdc"
_MARKED, _NULLED = {ord("n"): _MARK}, {ord("n"): values.NULL}
#: What a message holds that is no tuple, or no ordinary one: the exact function determines what it is.
_UNUSUAL = (MsgspecError, TypeError, LookupError, ValueError)
_BOOLEANS = {b"t": b"true", b"f": b"false"}
_decode = msgpack.Decoder().decode

#: Null as COPY prints it.
ABSENT = b"\\N"
TAB = b"\t"

#: A piece of a joined record: a constant, or the name of a variable.
Piece = bytes | str


#: So many changes of one kind are decoded by the exact functions before a function is made for them. Making one takes as long as
#: it saves on 200 to 700 changes, whatever the table's width; a table of 700 columns would stop the log for a third of a second.
WORTH_MAKING = 256
_Make = Callable[[Table], Change]


class Changes(dict[bytes, Change]):
    """A table's functions by the first eight bytes of the messages that they decode; it holds those that last.

    One in C takes the place of the exact one and of the generated one, where there is one.
    """

    def __init__(self, table: Table) -> None:
        oid, width = table.relation.oid.to_bytes(4, "big"), table.new[1:]
        super().__init__({b"U" + oid + b"K" + width: table.update})
        self._table = table
        self._ways: dict[bytes, tuple[Change, Callable[[Table], Change | None], _Make]] = {
            b"I" + oid + b"N" + width: (table.insert, rows.plan_insert, insert),
            b"U" + oid + b"N" + width: (table.update, rows.plan_update, _update),
            b"U" + oid + b"O" + width: (table.update, rows.plan_whole_update, _whole_update),
            b"D" + oid + b"O" + width: (table.delete, rows.plan_delete, _delete),
            b"D" + oid + b"K" + width: (table.delete, rows.plan_key_delete, _key_delete),
        }
        self._first: dict[bytes, Change] = {}
        self._seen = dict.fromkeys(self._ways, 0)

    def __missing__(self, prefix: bytes) -> Change:
        """Return the function for first changes, or make one that lasts; KeyError for what is no change of this table."""
        exact, make_in_c, make = self._ways[prefix]
        if prefix not in self._first:
            self._first[prefix] = make_in_c(self._table) or exact
        first = self._first[prefix]
        if self._seen[prefix] < WORTH_MAKING:
            self._seen[prefix] += 1
            return first
        change = self[prefix] = make(self._table) if first is exact else first
        return change


def insert(table: Table) -> Change:
    """Return the function for a table's Insert messages."""
    new = _Tuple(table, "n")
    return _compiled(
        table,
        "insert",
        [f"s = {_COLUMNS}", *new.take("s")],
        [new],
        [b'{"before":null,"after":{', *new.row(), b"},", *_rest(table, table.envelope.created)],
        new.key(),
    )


def copied(table: Table, exact: Change) -> Change:
    """Return the function for a table's rows as COPY prints them; it hands what is unusual to `exact`."""
    new = _Tuple(table, "n")
    value = [b'{"before":null,"after":{', *new.row(), b"},", *_rest(table, table.envelope.created)]
    return _compiled(table, "copied", new.split(), [new], value, new.key(), exact)


def _update(table: Table, *, whole_old: bool = False) -> Change:
    new, old = _Tuple(table, "n"), _Tuple(table, "o")
    lines = [f"s = {_COLUMNS}", *new.take("s")]
    before: list[Piece] = [b"null"]
    if whole_old:
        # Where these bytes are found in a column, neither part is a tuple.
        lines = [f"r, _, s = {_COLUMNS}.partition({table.new!r})", *old.take("r"), *new.take("s")]
        before = [b"{", *old.row(), b"}"]
    return _compiled(
        table,
        "update",
        lines,
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
        [f"s = {_COLUMNS}", *old.take("s")],
        [old],
        [b'{"before":{', *old.row(), b'},"after":null,', *_rest(table, b"d")],
        old.key(),
    )


def _key_delete(table: Table) -> Change:
    return table.delete


def _rest(table: Table, op: bytes) -> list[Piece]:
    shared = table.envelope
    middle = b'"},"op":"%b","ts_ms":' % op
    return [shared.head, "committed", shared.middle, "place", "ordinal", middle, "read", "number", b"}}"]


def _compiled(
    table: Table,
    name: str,
    lines: list[str],
    tuples: "list[_Tuple]",
    value: list[Piece],
    key: list[Piece],
    exact: Change | None = None,
) -> Change:
    texts = [text for part in tuples for text in part.texts]
    body = ["z = False", *lines]
    if texts:
        names = ", ".join(texts) + ","
        body += [
            f"t = {texts[0] if len(texts) == 1 else f'comma({_gathered(tuples)})'}",
            "g = len(encode(t.decode())) - len(t)",
            f"if g != 2 and (not z or g != 2 + {_MARK_GROWS_BY} * marked(({names}))):",
            f"    {names} = escape(({names}))",
        ]
    body.append(f"value = {_joined(value)}")
    key_code = _joined(key) if key else "None"
    if any(part.marks for part in tuples):
        put_right = ".replace(quoted_mark, null)"
        body += ["if z:", f"    return {key_code}{put_right if key else ''}, value{put_right}"]
    body.append(f"return {key_code}, value")
    body = ["try:", *(f"    {line}" for line in body), "except unusual:", f"    {_EXACT}"]
    source = f"def {name}(m, {_AROUND}):\n" + "".join(f"    {line}\n" for line in body)
    scope: dict[str, Any] = {
        "decode": _decode, "unusual": _UNUSUAL, "exact": exact or getattr(table, name), "join": b"".join, "comma": b",".join,
        "placed": _placed, "encode": json.encode, "escape": _escaped, "marked": _marked, "mark": _MARK,
        "quoted_mark": b'"%b"' % _MARK, "null": values.NULL, "booleans": _BOOLEANS, "hexadecimal": b"\\x",
        "iso": values.TO_ISO, "base64": b2a_base64, "unhexlify": unhexlify, "absent": ABSENT,
    }  # fmt: skip
    for part in tuples:
        scope |= part.scope
    scope |= {
        f"form{number}": table.converters[number] for number, kind in enumerate(table.kinds) if kind == values.FORMED
    }
    exec(compile(source, f"<{name} of {table.relation.oid}>", "exec"), scope)  # noqa: S102 - made of numbers and of constants.
    change: Change = scope[name]
    return change


def _escaped(texts: tuple[bytes, ...]) -> list[bytes]:
    """Return texts as they are between the quotes of JSON; marks as they are."""
    return [text if text is _MARK else json.encode(text.decode())[1:-1] for text in texts]


def _gathered(tuples: "list[_Tuple]") -> str:
    """Return the expression for the texts of tuples, neighbours as a slice."""
    runs = [(part.letter, first, end) for part in tuples for first, end in part.text_runs()]
    if len(runs) == 1:
        return "{}[{}:{}]".format(*runs[0])
    parts = (f"{name}[{first}]" if end == first + 1 else f"*{name}[{first}:{end}]" for name, first, end in runs)
    return f"({', '.join(parts)})"


def _marked(texts: tuple[bytes, ...]) -> int:
    """Return how many of them are marks."""
    return sum(text is _MARK for text in texts)


def _joined(pieces: Iterable[Piece]) -> str:
    """Return the expression that joins the pieces, neighbouring constants made one."""
    return "join((" + ", ".join(piece if isinstance(piece, str) else repr(piece) for piece in _merged(pieces)) + ",))"


def _merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the pieces with neighbouring constants made one."""
    merged: list[Piece] = []
    for piece in pieces:
        if merged and isinstance(piece, bytes) and isinstance(merged[-1], bytes):
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged


def _placed(constants: list[bytes], columns: list[bytes]) -> bytes:
    """Return the JSON of a row: each column between two constants."""
    constants[1::2] = columns
    return b"".join(constants)


class _Tuple:
    """The code for one tuple of a message, its variables distinguished from others by a letter."""

    def __init__(self, table: Table, letter: str) -> None:
        self._table = table
        self.letter = letter
        #: Variables that are checked for escapes.
        self.texts = [self._name(number) for number, kind in enumerate(table.kinds) if _is_text(kind)]
        #: Whether a null is marked, to be put right afterwards.
        self.marks = any(map(_is_quoted, table.kinds))
        #: What its code refers to.
        self.scope: dict[str, Any] = {
            f"nulls_{letter}": tuple(_MARKED if _is_quoted(kind) else _NULLED for kind in table.kinds)
        }

    def _name(self, number: int) -> str:
        return f"{self.letter}[{number}]"

    def take(self, columns: str) -> list[str]:
        """Return the statements that take the columns out of bytes that are in a variable."""
        width = len(self._table.kinds)
        lines = [
            f"d = {columns}.replace({_HEADER!r}, {_SHORT_HEADER!r})",
            f"{self.letter} = decode({b'%b%b' % (_ARRAY, width.to_bytes(2, 'big'))!r} + d)",
            f"q = {2 * width} - len({columns}) + len(d)",
            "if q:",
            # Without a byte above 127 nothing but what was replaced is bytes now.
            f"    if not {columns}.isascii() and 2 * {self.letter}.count({ord('n')}) != q: {_EXACT}",
            f"    {self.letter} = [x if x.__class__ is bytes else y[x] for x, y in zip({self.letter}, nulls_{self.letter})]",
            "    z = True",
        ]
        return [*lines, *self._convert()]

    def split(self) -> list[str]:
        """Return the statements that take the columns out of a row as COPY prints it."""
        self.scope["nulls"] = tuple(_MARK if _is_quoted(kind) else values.NULL for kind in self._table.kinds)
        lines = [
            *split_lines(self.letter, len(self._table.kinds)),
            f"    {self.letter} = [x if x != absent else y for x, y in zip({self.letter}, nulls)]",
            "    z = True",
        ]
        return [*lines, *self._convert()]

    def _convert(self) -> list[str]:
        return [
            line for number, kind in enumerate(self._table.kinds) for line in _convert(kind, number, self._name(number))
        ]

    def text_runs(self) -> list[list[int]]:
        """Return the first and the end of each run of columns that are checked for escapes."""
        runs: list[list[int]] = []
        for number, kind in enumerate(self._table.kinds):
            if _is_text(kind):
                if runs and runs[-1][1] == number:
                    runs[-1][1] += 1
                else:
                    runs.append([number, number + 1])
        return runs

    def row(self) -> list[Piece]:
        """Return the pieces of the row's JSON, without braces."""
        pieces = self._fields(self._table.held)
        if len(self._table.held) < len(self._table.kinds) or len(pieces) < 40:
            return pieces
        # A list of the constants in which the columns take their places at once.
        merged = _merged(pieces)
        if isinstance(merged[-1], str):
            merged.append(b"")
        self.scope[f"constants_{self.letter}"] = [piece if isinstance(piece, bytes) else b"" for piece in merged]
        return [f"placed(constants_{self.letter}.copy(), {self.letter})"]

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


def split_lines(letter: str, width: int) -> list[str]:
    """Return the statements that split a row as COPY prints it, up to the beginning of a block for one with nulls.

    One with anything else that is escaped is unusual.
    """
    return [
        f"{letter} = m.split({TAB!r})",
        f"if len({letter}) != {width}: {_EXACT}",
        f"if {ABSENT[:1]!r} in m:",
        f"    if m.count({ABSENT[:1]!r}) != {letter}.count(absent): {_EXACT}",
    ]


def _is_quoted(kind: int) -> bool:
    return kind not in values.INTEGERS | values.FLOATS | values.ESCAPED | {values.BOOL, values.FORMED, values.LEFT_OUT}


def _is_text(kind: int) -> bool:
    return _is_quoted(kind) and kind not in values.PLAIN | {values.TIMESTAMP, values.TIMESTAMPTZ, values.BYTEA}


def _convert(kind: int, number: int, name: str) -> list[str]:
    """Return the statements that make of a column's text, unless it is null, what is in JSON."""
    if kind == values.LEFT_OUT:
        return [f"if {name}.__class__ is not bytes: {_EXACT}"]
    if kind in values.FLOATS:
        other = f"{name}[-1] > {values.NINE} or {name} == {values.NEGATIVE_ZERO!r}"
        return [f"if {name} is not null and ({other}): {_EXACT}"]
    if kind == values.TIMESTAMP:
        text = [f"if {name}[-1] > {values.NINE}: {_EXACT}", f"{name} = {name}.translate(iso)"]
    elif kind == values.TIMESTAMPTZ:
        text = [f"if {name}[-3] != {ord('+')}: {_EXACT}", f"{name} = {name}[:-2].translate(iso)"]
    elif kind == values.BYTEA:
        text = [
            f"if {name}[:2] != hexadecimal: {_EXACT}",
            f"{name} = base64(unhexlify({name}[2:]), newline=False)",
        ]
    elif kind == values.BOOL:
        text = [f"{name} = booleans[{name}]"]
    elif kind == values.FORMED:
        text = [f"{name} = form{number}({name})"]
    elif kind in values.ESCAPED:
        text = [f"{name} = encode({name}.decode())"]
    else:
        return []
    null = "mark" if _is_quoted(kind) else "null"
    return [f"if {name} is not {null}:", *(f"    {line}" for line in text)]
