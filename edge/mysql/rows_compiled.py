"""Row image decoders made for each table, from the image's bytes to the JSON of row and key: in Python, or in C.

In Python a table has a generated function for each pattern of nulls that its rows show: nulls are constants in it, fixed columns
are read in runs by one struct, and one `%` makes the row. A table with more patterns than are worth a function each gets one that
looks at every null. All UTF-8 texts of a row are checked for escapes and encoding at once.

In C, where edge/compiled/row_images.c was compiled, a table has a plan. It gives the bytes of edge/mysql/rows.py, or None for an
event that holds something unusual, which is decoded there. A table with a column that C does not know (JSON of MySQL's,
compressed ones, several bytes a character), or with a form of its own (`[records]`, `[policy]`), has no plan.
"""

import struct
from binascii import b2a_base64
from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import json

from edge import compiled
from edge.mysql.column_codec import SHARED, ColumnCodec

#: From an event's bytes and the place after an image's nulls to the place after the image, the key, and the row.
Image = Callable[[bytes, int], tuple[int, bytes | None, bytes]]

#: More patterns of nulls than this are met by one function for all of them.
_MOST_PATTERNS = 64
#: The module in C, or None.
module: Any = compiled.module

INSERT, UPDATE, DELETE = range(3)
_LEFT_OUT: Final = b"-"
_COLUMN: Final = struct.Struct("<cBHHH")


class Images(dict[bytes, Image]):
    """A table's functions by the bytes that mark an image's nulls.

    Where values are `taken` from a row already, `m` is the tuple of them.
    """

    def __init__(self, names: list[bytes], codes: list[ColumnCodec], key: list[int], *, taken: bool = False) -> None:
        super().__init__()
        self._names, self._codes, self._key, self._taken = names, codes, key, taken
        self._any: Callable[[bytes, int, bytes], tuple[int, bytes | None, bytes]] | None = None

    def __missing__(self, nulls: bytes) -> Image:
        """Make the function for a pattern that was not met before."""
        if len(self) < _MOST_PATTERNS:
            image: Image = _compile(self._names, self._codes, self._key, nulls, taken=self._taken)
            self[nulls] = image
            return image
        if self._any is None:
            self._any = _compile(self._names, self._codes, self._key, None, taken=self._taken)
        for_any = self._any
        return lambda m, p: for_any(m, p, nulls)


def _compile(names: list[bytes], codes: list[ColumnCodec], key: list[int], nulls: bytes | None, *, taken: bool) -> Any:
    """Return a function for one pattern of nulls, or for all of them."""
    scope: dict[str, Any] = {
        **SHARED, "encode": json.encode, "base64": b2a_base64, "comma": b",".join, "escape": _escape,
    }  # fmt: skip
    body = [f"{', '.join(f'c{number}' for number in range(len(codes)))}, = m"] if taken else []
    texts: list[str] = []
    run: list[tuple[str, ColumnCodec]] = []

    def flush() -> None:
        if not run:
            return
        layout = struct.Struct("<" + "".join(code.fixed for _, code in run))
        scope[f"read_{run[0][0]}"] = layout.unpack_from
        body.append(f"{', '.join(name for name, _ in run)}, = read_{run[0][0]}(m, p)")
        body.append(f"p += {layout.size}")
        for name, code in run:
            body.extend(line.replace("{v}", name) for line in code.lines)
        run.clear()

    forms: list[tuple[str, list[str]]] = []
    for number, code in enumerate(codes):
        name = f"c{number}"
        scope |= {key_.replace("{v}", name): value for key_, value in code.scope.items()}
        if nulls is not None and nulls[number >> 3] >> (number & 7) & 1:
            forms.append(("null", []))
        elif nulls is None:
            body += _either(number, name, code, scope)
            forms.append(("%b", [name]))
        else:
            if code.fixed:
                run.append((name, code))
            else:
                flush()
                body += [line.replace("{v}", name) for line in (*code.read, *code.lines)]
            if code.is_text:
                texts.append(name)
            forms.append((code.form, [argument.replace("{v}", name) for argument in code.arguments]))
    flush()
    body += _escaping(texts, [name for name in texts if f"text_{name}" in scope])
    row_code = _object(names, forms, (number for number, code in enumerate(codes) if code.policy != "exclude"))
    body.append(f"return p, {_object(names, forms, key) if key else None}, {row_code}")
    parameters = "m, p" if nulls is not None else "m, p, nulls"
    source = f"def image({parameters}):\n" + "".join(f"    {line}\n" for line in body)
    exec(compile(source, "<row image>", "exec"), scope)  # noqa: S102 - made of numbers and of constants.
    return scope["image"]


def _either(number: int, name: str, code: ColumnCodec, scope: dict[str, Any]) -> list[str]:
    """Return the statements that leave a column's JSON in its variable, null or not."""
    lines = [line.replace("{v}", name) for line in (*code.read, *code.lines)]
    if code.fixed:
        layout = struct.Struct("<" + code.fixed)
        scope[f"read_{name}"] = layout.unpack_from
        lines = [f"{name}, = read_{name}(m, p)", f"p += {layout.size}", *lines]
    if code.is_text:
        lines += ["try:", f"    {name} = encode(str({name}, 'utf-8'))"]
        lines += ["except UnicodeDecodeError:", f"    {name} = encode(text_{name}({name}))"]
    else:
        arguments = ", ".join(argument.replace("{v}", name) for argument in code.arguments)
        lines.append(f"{name} = {code.form.encode()!r} % ({arguments},)")
    return [
        f"if nulls[{number >> 3}] & {1 << (number & 7)}:",
        f"    {name} = b'null'",
        "else:",
        *(f"    {line}" for line in lines),
    ]


def _escaping(texts: list[str], given: list[str]) -> list[str]:
    """Return the statements that make texts fit between quotes: all at once where nothing is to escape.

    Of those `given` as they are stored, bytes may be no text.
    """
    if not texts:
        return []
    listed = ", ".join(texts) + ","
    return [
        "try:",
        f"    t = comma(({listed}))" if len(texts) > 1 else f"    t = {texts[0]}",
        "    if len(encode(str(t, 'utf-8'))) - len(t) != 2:",
        f"        {listed} = escape(({listed}))",
        "except UnicodeDecodeError:",
        *(f"    {name} = text_{name}({name}).encode()" for name in given),
        f"    {listed} = escape(({listed}))",
    ]


def _object(names: list[bytes], forms: list[tuple[str, list[str]]], which: Iterable[int]) -> str:
    """Return the expression for the JSON object of these columns."""
    fields, arguments = [], []
    for number in which:
        form, filled = forms[number]
        fields.append(names[number].replace(b"%", b"%%") + b":" + form.encode())
        arguments += filled
    template = b"{%b}" % b",".join(fields)
    return f"{template!r} % ({', '.join(arguments)},)" if arguments else repr(template.replace(b"%%", b"%"))


def _escape(texts: tuple[bytes, ...]) -> list[bytes]:
    """Return texts as they are between the quotes of JSON."""
    return [json.encode(str(text, "utf-8"))[1:-1] for text in texts]


def images(names: list[bytes], codes: list[ColumnCodec], key: list[int]) -> Any:
    """Return what decodes a table's rows events; None where that is Python alone."""
    if module is None or not codes:
        return None
    columns, members = [], []
    for codec in codes:
        wire, is_left_out = codec.wire, codec.policy == "exclude"
        form = _LEFT_OUT if is_left_out else wire.form.encode()
        if not form or not wire.size:
            return None
        columns.append(_COLUMN.pack(form, wire.is_sized, wire.size, wire.length, wire.scale))
        members.append(() if is_left_out else wire.members)
    try:
        return module.Images(b"".join(columns), tuple(name + b":" for name in names), tuple(members), tuple(key))
    except ValueError:
        # A description that no server writes.
        return None
