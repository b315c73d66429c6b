"""Change decoders for records in Avro, generated for tables that change often, as rows_compiled.py next to it has them for JSON.

A function makes key and value of a message without JSON in between, and the same bytes as edge/records/avro_records.py makes of
the JSON: it hands every message that holds something unusual to the function for JSON. There is code for a row without nulls
and code for one with some. A schema has the envelope ahead of the rows, and `last` at the end.
"""

import re
import struct
from binascii import unhexlify
from collections.abc import Iterable
from typing import Any

from msgspec import MsgspecError, json, msgpack

from edge.postgres import values
from edge.postgres.envelope import CONNECTOR
from edge.postgres.rows import PAD, Change, Table
from edge.postgres.rows_compiled import ABSENT, split_lines
from edge.records import avro_encoding as avro
from edge.records.avro_encoding import NULL, THERE
from edge.records.avro_records import AvroRecords, AvroTable
from edge.records.envelope import AVRO_END

_AROUND = "committed, place, ordinal, read, number"
_EXACT = f"return exact(m, {_AROUND})"
#: A null column, until it is encoded: no text holds a zero byte.
_NONE = b"\0\0"
_NULLED = {ord("n"): _NONE}
_HEADER, _SHORT_HEADER, _ARRAY = b"t\0\0", b"\xc5", b"\xdc"
_UNUSUAL = (MsgspecError, TypeError, LookupError, ValueError, OverflowError)
_PLACE = re.compile(rb'(\d+),"lsn":(\d+),"position":"([0-9a-f]{8}/[0-9a-f]{16}/)')
_READ = re.compile(rb'(\d+),"transaction":\{"id":"([^"\\]*)","total_order":')
_decode = msgpack.Decoder().decode
#: The place of a record has so many characters, the ordinal's included.
_POSITION_LENGTH = 34
#: A longer message is left to the function for JSON, which replaces a record that is too large.
_LARGEST = 400_000

#: Smaller whole numbers are looked up.
_SMALL = 1 << 13
_PART = (1 << 14) - 1
_FIRSTS, _LATER, _LASTS = avro.long_parts(THERE)
#: A number behind the branch of a nullable value.
_FLOAT, _DOUBLE = struct.Struct("<Bf"), struct.Struct("<Bd")

#: A piece of a joined record: a constant, or an expression.
Piece = bytes | str


#: What is ahead of the rows, in the schema's order (headrace/schemas/avro.py).
_ENVELOPE: list[Piece] = ["around.before", "orders[number]", "around.between", "ordinal", "around.behind"]


class Around:
    """What a table's records of one kind take from their transaction, with the constants around it.

    `before` is ahead of the record's number in its transaction, `between` ahead of its ordinal, `behind` after that.
    """

    __slots__ = ("_constants", "before", "behind", "between", "place", "read")

    def __init__(self, *constants: bytes) -> None:
        self._constants = constants
        self.before = self.between = self.behind = self.place = self.read = b""

    def take(self, committed: bytes, place: bytes, read: bytes) -> None:
        """Take another transaction, as records in JSON hold it; raise ValueError for what is of another form."""
        placed, read_match = _PLACE.fullmatch(place), _READ.fullmatch(read)
        if placed is None or read_match is None:
            raise ValueError("the place of a change is of another form")
        xid, lsn, position = placed.groups()
        head, origin, names = self._constants
        # `ts_ms`, no `ts_us` and `ts_ns`, the transaction's id.
        self.before = head + THERE + avro.long(int(read_match[1])) + NULL + NULL + THERE + avro.data(read_match[2])
        # No `data_collection_order`, `unchanged` and `too_large`; the source block up to the position.
        self.between = b"".join((
            NULL * 3, origin, avro.long(int(committed)), names, avro.long(_POSITION_LENGTH), position,
        ))  # fmt: skip
        # No `sequence`, `txId`, `lsn`, no `xmin`, `origin` and `origin_lsn`.
        self.behind = NULL + THERE + avro.long(int(xid)) + THERE + avro.long(int(lsn)) + NULL * 3
        self.place, self.read = place, read


class AvroChanges:
    """The functions of a session's tables."""

    def __init__(self) -> None:
        self._made: dict[bytes, tuple[Table, Change]] = {}

    def change(self, table: Table, prefix: bytes, exact: Change, records: AvroRecords) -> Change:
        """Return the function for messages that begin with eight bytes; `exact` makes JSON of any of them."""
        change_of = self._made.get(prefix)
        if change_of is not None and change_of[0] is table:
            return change_of[1]
        kind = prefix[:1] + prefix[5:6]
        if kind not in _KINDS:
            return exact
        written = records.table(table.schema, CONNECTOR)
        function = _Function(table, exact, written).compiled(kind)
        self._made[prefix] = table, function
        return function


def copied(table: Table, exact: Change, records: AvroRecords) -> Change:
    """Return the function for a table's rows as COPY prints them; `exact` makes JSON of any of them."""
    return _Function(table, exact, records.table(table.schema, CONNECTOR)).compiled(b"IN", is_copied=True)


#: Kinds of messages that are decoded here: the operation, whether the old row and whether the new one is in it.
_KINDS = {b"IN": (b"c", False, True), b"UN": (b"u", False, True), b"UO": (b"u", True, True), b"DO": (b"d", True, False)}


class _Function:
    """The code for messages of one table."""

    def __init__(self, table: Table, exact: Change, written: AvroTable) -> None:
        self._table, self._written = table, written
        self._kinds = table.kinds
        self._required = set(table.key_columns)
        self._scope: dict[str, Any] = {
            "decode": _decode, "unusual": _UNUSUAL, "exact": exact, "join": b"".join, "comma": b",".join, "none": _NONE,
            "nulled": _NULLED, "orders": avro.Longs(), "longs": avro.Longs(THERE), "key_longs": avro.Longs(),
            "lengths": avro.lengths(THERE), "key_lengths": avro.lengths(), "iso": values.TO_ISO, "hexadecimal": b"\\x",
            "unhexlify": unhexlify,
            "booleans": {b"t": THERE + avro.TRUE, b"f": THERE + avro.FALSE}, "key_booleans": {b"t": avro.TRUE, b"f": avro.FALSE},
            "float4": _FLOAT.pack, "float8": _DOUBLE.pack, "key_float4": avro.FLOAT.pack, "key_float8": avro.DOUBLE.pack,
            "firsts": _FIRSTS, "key_firsts": _LATER, "later": _LATER, "lasts": _LASTS, "absent": ABSENT, "backslash": ABSENT[:1],
        }  # fmt: skip

    def compiled(self, kind: bytes, *, is_copied: bool = False) -> Change:
        """Return the function for a kind of message, or for rows as COPY prints them."""
        op, has_old, has_new = _KINDS[kind]
        if op == b"c":
            op = self._table.envelope.created
        self._scope["around"] = Around(self._written.header + avro.data(op), *self._source())
        body = [f"if len(m) > {_LARGEST}: {_EXACT}"]
        if has_old and has_new:
            body += [
                f"r, _, s = m[8:-{len(PAD)}].partition({self._table.new!r})",
                *self._take("o", "r"),
                *self._take("n", "s"),
            ]
        elif is_copied:
            body += [*split_lines("n", len(self._kinds)), "    n = [x if x != absent else none for x in n]"]
            body.insert(1, "zn = backslash in m")
        else:
            body += self._take("n" if has_new else "o", f"m[8:-{len(PAD)}]")
        letters = "o" * has_old + "n" * has_new
        body += [
            "if around.read is not read or around.place is not place:",
            "    around.take(committed, place, read)",
            f"if {' or '.join(f'z{letter}' for letter in letters)}:",
            *(f"    {line}" for line in self._ending(letters, nulls=True)),
            *self._ending(letters, nulls=False),
        ]
        source = f"def change(m, {_AROUND}):\n    try:\n" + "".join(f"        {line}\n" for line in body)
        source += f"    except unusual:\n        {_EXACT}\n"
        exec(compile(source, f"<avro of {self._table.relation.oid}>", "exec"), self._scope)  # noqa: S102 - made of numbers and of constants.
        change: Change = self._scope["change"]
        return change

    def _take(self, letter: str, columns: str) -> list[str]:
        """Return the statements that take a tuple's columns out of bytes, as edge/postgres/rows_compiled.py does."""
        width = len(self._kinds)
        return [
            f"s{letter} = {columns}",
            f"d = s{letter}.replace({_HEADER!r}, {_SHORT_HEADER!r})",
            f"{letter} = decode({b'%b%b' % (_ARRAY, width.to_bytes(2, 'big'))!r} + d)",
            f"q = z{letter} = {2 * width} - len(s{letter}) + len(d)",
            "if q:",
            f"    if not s{letter}.isascii() and 2 * {letter}.count({ord('n')}) != q: {_EXACT}",
            f"    {letter} = [x if x.__class__ is bytes else nulled[x] for x in {letter}]",
        ]

    def _ending(self, letters: str, *, nulls: bool) -> list[str]:
        """Return the statements from the columns to the record."""
        lines: list[str] = []
        rows: list[Piece] = []
        checked: list[str] = []
        for letter in letters:
            for number in range(len(self._kinds)):
                lines += self._convert(letter, number, nulls=nulls)
            checked += [f"{letter}[{number}]" for number, kind in enumerate(self._kinds) if _is_unchecked(kind)]
        if checked:
            lines.append(f"comma(({', '.join(checked)},)).decode()")
        if nulls:
            lines += [line for letter in letters for line in self._whole(letter)]
        for letter in "on":
            rows += [THERE, *self._row(letter, nulls=nulls)] if letter in letters else [NULL]
        former = [NULL] if self._table.key_columns else []
        value = _joined([*_ENVELOPE, *former, *rows, AVRO_END])
        key = self._key(letters[-1], nulls=nulls)
        return [*lines, f"return {_joined([self._written.header, *key]) if key else 'None'}, {value}"]

    def _source(self) -> tuple[bytes, bytes]:
        """Return what the source block has ahead of the time of the commit, and between that and the position."""
        envelope = self._table.envelope
        named = json.decode(b"{%b0%b0}}" % (envelope.head, envelope.middle))["source"]
        head = b"".join(avro.text(named[name]) for name in ("version", "connector", "name"))
        times, snapshot = NULL + NULL, NULL + avro.text(named["snapshot"])
        names = (avro.text(named["db"]), THERE + avro.text(named["schema"]), THERE + avro.text(named["table"]))
        return head, times + snapshot + b"".join(names)

    def _convert(self, letter: str, number: int, *, nulls: bool) -> list[str]:
        """Return the statements that make of a column's text what is encoded; text stays as it is, without its length."""
        kind, name, required = self._kinds[number], f"{letter}[{number}]", number in self._required
        lines = self._converted(kind, number, name, prefix="key_" if required else "")
        if not nulls or not lines or kind == values.LEFT_OUT:
            return lines
        lines = [f"if {name} is not none:", *(f"    {line}" for line in lines)]
        if _is_text(kind):
            return lines
        return [*lines, "else:", f"    {_EXACT}" if required else f"    {name} = {NULL!r}"]

    def _converted(self, kind: int, number: int, name: str, *, prefix: str) -> list[str]:
        if kind in values.INTEGERS:
            return _of_integer(name, prefix)
        if kind in values.FLOATS:
            pack = "float4" if kind == values.FLOAT4 else "float8"
            return [f"{name} = {prefix}{pack}({'' if prefix else f'{THERE[0]}, '}float({name}))"]
        if kind == values.FORMED:
            self._scope[f"form{number}"] = self._formed(number)
            return [f"{name} = form{number}({name})"]
        return {
            values.LEFT_OUT: [f"if {name}.__class__ is not bytes: {_EXACT}"],
            values.BOOL: [f"{name} = {prefix}booleans[{name}]"],
            values.BYTEA: [
                f"if {name}[:2] != hexadecimal: {_EXACT}",
                f"x = unhexlify({name}[2:])",
                f"{name} = {prefix}lengths[len(x)] + x",
            ],
            values.TIMESTAMP: [f"if {name}[-1] > {values.NINE}: {_EXACT}", f"{name} = {name}.translate(iso)"],
            values.TIMESTAMPTZ: [f"if {name}[-3] != {ord('+')}: {_EXACT}", f"{name} = {name}[:-2].translate(iso)"],
        }.get(kind, [])

    def _whole(self, letter: str) -> Iterable[str]:
        """Return the statements that put the lengths ahead of a row's texts, and encode the nulls among them."""
        for number, kind in enumerate(self._kinds):
            if not _is_text(kind):
                continue
            name = f"{letter}[{number}]"
            if number in self._required:
                yield f"if {name} is none: {_EXACT}"
                yield f"{name} = key_lengths[len({name})] + {name}"
            else:
                yield f"{name} = {NULL!r} if {name} is none else lengths[len({name})] + {name}"

    def _row(self, letter: str, *, nulls: bool) -> list[Piece]:
        return [piece for number in self._table.held for piece in self._column(letter, number, nulls=nulls)]

    def _key(self, letter: str, *, nulls: bool) -> list[Piece]:
        return [piece for number in self._table.key_columns for piece in self._column(letter, number, nulls=nulls)]

    def _column(self, letter: str, number: int, *, nulls: bool) -> list[Piece]:
        name = f"{letter}[{number}]"
        if nulls or not _is_text(self._kinds[number]):
            return [name]
        return [f"{'key_' if number in self._required else ''}lengths[len({name})]", name]

    def _formed(self, number: int) -> Any:
        """Return the function from a column's text to Avro, by way of its form in JSON."""
        form, encode = (
            self._table.converters[number],
            self._written.encoder_of(self._table.relation.columns[number].name),
        )
        return lambda text: encode(json.decode(form(text)))


def _of_integer(name: str, prefix: str) -> list[str]:
    """Return the statements that encode a whole number: small and negative ones come again, and are looked up."""
    return [
        f"x = int({name})",
        f"if {_SMALL} <= x < {1 << 27}:",
        f"    {name} = {prefix}firsts[x << 1 & {_PART}] + lasts[x >> 13]",
        f"elif {1 << 27} <= x < {1 << 41}:",
        f"    {name} = {prefix}firsts[x << 1 & {_PART}] + later[x >> 13 & {_PART}] + lasts[x >> 27]",
        "else:",
        f"    {name} = {prefix}longs[{name}]",
    ]


def _is_text(kind: int) -> bool:
    """Whether a column is encoded as its length and its text."""
    return kind not in values.INTEGERS | values.FLOATS | {values.BOOL, values.BYTEA, values.FORMED, values.LEFT_OUT}


def _is_unchecked(kind: int) -> bool:
    """Whether a column's text may be no UTF-8."""
    return _is_text(kind) and kind not in values.PLAIN | {values.TIMESTAMP, values.TIMESTAMPTZ}


def _joined(pieces: Iterable[Piece]) -> str:
    """Return the expression that joins the pieces, neighbouring constants made one."""
    merged: list[Piece] = []
    for piece in pieces:
        if merged and isinstance(piece, bytes) and isinstance(merged[-1], bytes):
            merged[-1] += piece
        else:
            merged.append(piece)
    return "join((" + ", ".join(piece if isinstance(piece, str) else repr(piece) for piece in merged) + ",))"
