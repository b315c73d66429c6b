"""Functions that read rows, each generated for the columns of a schema: what rows.py does column by column, in one piece.

A record is text in Latin-1 on the way, a character for each byte, so that texts are slices of it, numbers are formatted where
they belong, and nothing is decoded in between. All texts of a row are checked for what JSON escapes at once. A null text is a
mark until the row is whole, a byte that UTF-8 does not have.

Schemas come from a registry, so nothing of them is ever in the code: it is made of the templates below and of numbers, and names
of columns, like all else, are variables of its scope.
"""

from collections.abc import Iterable
from json.encoder import encode_basestring
from math import isfinite
from struct import Struct
from typing import Any, Final, NamedTuple

from headrace.schemas.avro_json.values import Read, read_long, unusual

#: No text of one character, which would be the same object.
_MARK: Final = "\xff\xff"

# A `long` of any length. Branches of unions are 0 and 2 for the first and the second type.
_LONG: Final = """\
n = d[i]
i += 1
if n > 127:
    n &= 127
    h = 7
    while (m := d[i]) > 127:
        n |= (m & 127) << h
        h += 7
        i += 1
    n |= m << h
    i += 1
v{0} = n >> 1 ^ -(n & 1)
"""
# A text of up to 63 bytes has its length in an even byte below 128, and one of up to 8191 in two.
_TEXT: Final = """\
n = d[i]
if n & 129:
    j, i = longer(d, i)
else:
    j = i + 1
    i = j + (n >> 1)
v{0} = s[j:i]
"""
_DOUBLE: Final = """\
(x,) = double(d, i)
v{0} = x if isfinite(x) else unusual(x)
i += 8
"""
_BOOLEAN: Final = """\
v{0} = "true" if d[i] else "false"
i += 1
"""
_OTHER: Final = """\
x, i = read{0}(d, i)
v{0} = x if x.isascii() else x.encode().decode("latin-1")
"""
_OF_TYPE: Final = {"int": _LONG, "long": _LONG, "string": _TEXT, "double": _DOUBLE, "boolean": _BOOLEAN}
_NULLABLE: Final = """\
b = d[i]
i += 1
if b == {there}:
{read}
elif b == {null}:
    {nothing}
else:
    raise ValueError("a union has no such branch")
"""


class Column(NamedTuple):
    """A column: how its JSON begins, its type, the function that reads it, and the branch of its union that is null, if any."""

    start: str
    type: Any
    read: Read
    null: int | None

    @property
    def kind(self) -> str:
        """The type's name."""
        return str(self.type["type"] if isinstance(self.type, dict) and "headrace.json" not in self.type else self.type)


def compiled(columns: list[Column], *, sparse: bool = False) -> Read:
    """Return the function that reads a row as JSON.

    Of a `sparse` row that has nothing but its key it returns the key's columns. Raises what the functions of values.py raise.
    """
    numbers = range(len(columns))
    texts = [number for number in numbers if columns[number].kind == "string"]
    nullable = [number for number in numbers if columns[number].null is not None]
    required = [number for number in numbers if columns[number].null is None]
    scope: dict[str, Any] = {
        "join": "".join, "escaped": encode_basestring, "apart": _escaped, "longer": _longer, "isfinite": isfinite,
        "unusual": unusual, "double": Struct("<d").unpack_from, "mark": _MARK, "null": "null", "nulls": _nulls,
    }  # fmt: skip
    scope |= {f"read{number}": columns[number].read for number in numbers}
    body = ['s = d.decode("latin-1")', "z = 0"]
    for number in numbers:
        body += _statements(number, columns[number])
    sparse = sparse and bool(nullable) and bool(required)
    if sparse:
        body.append("e = " + " and ".join(f"v{number} is {_nothing(columns[number])}" for number in nullable))
    if texts:
        names = "".join(f"v{number}, " for number in texts)
        body += [f"t = join(({names}))", "if len(escaped(t)) != len(t) + 2:", f"    {names} = apart(({names}))"]
    body.append(f"r = {_joined(columns, numbers, 'c', scope)}")
    if sparse:
        body += ["if e:", f"    r = {_joined(columns, required, 'k', scope)}", "    z = 0"]
    body += ["if z:", "    r = nulls(r, z)", 'return r if r.isascii() else r.encode("latin-1").decode(), i']
    source = "def read(d, i):\n" + "".join(f"    {line}\n" for line in body)
    exec(compile(source, "<row>", "exec"), scope)  # noqa: S102 - made of templates and of numbers.
    read: Read = scope["read"]
    return read


def _statements(number: int, column: Column) -> list[str]:
    """Return the statements that read a column's JSON, a text's without quotes."""
    lines = _OF_TYPE.get(column.kind, _OTHER).format(number).splitlines()
    if column.null is None:
        return lines
    nothing = f"v{number} = {_nothing(column)}" + ("; z += 1" if column.kind == "string" else "")
    whole = _NULLABLE.format(
        there=2 - 2 * column.null,
        null=2 * column.null,
        read="\n".join(f"    {line}" for line in lines),
        nothing=nothing,
    )
    return whole.splitlines()


def _nothing(column: Column) -> str:
    return "mark" if column.kind == "string" else "null"


def _joined(columns: list[Column], numbers: Iterable[int], letter: str, scope: dict[str, Any]) -> str:
    """Return the expression for an object of some columns; what is between their values goes into the scope."""
    expression, before, after = "", "{", "{}"
    for number in numbers:
        quote = '"' if columns[number].kind == "string" else ""
        # In Latin-1, as all else.
        scope[f"{letter}{number}"] = before + columns[number].start.encode().decode("latin-1") + quote
        expression += f"{{{letter}{number}}}{{v{number}}}"
        before, after = f"{quote},", f"{quote}}}"
    scope[f"{letter}_end"] = after
    return f'f"{expression}{{{letter}_end}}"'


def _longer(data: bytes, at: int) -> tuple[int, int]:
    """Return where a text begins and ends whose length has several bytes."""
    length, at = read_long(data, at)
    if length < 0:
        raise ValueError("a value ends behind the record")
    return at, at + length


def _escaped(texts: tuple[str, ...]) -> list[str]:
    """Return texts as they are between the quotes of JSON."""
    return [encode_basestring(text)[1:-1] for text in texts]


def _nulls(row: str, count: int) -> str:
    """Put nulls in the place of their marks."""
    if row.count(_MARK) != count:
        raise ValueError("a text is no UTF-8")
    return row.replace(f'"{_MARK}"', "null")
