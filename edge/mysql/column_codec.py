"""How a column's bytes become JSON: for each type the code that edge/mysql/rows_compiled.py puts into a table's functions.

A fixed column is read by a struct code together with its neighbours; any other one reads itself at `p` and moves `p` behind
it. Either leaves its value in a variable, of which its lines make what a form of `%` places into the record. Row images are in
the order and with the lengths of the table map (MySQL manual, "Rows_event").
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from edge.mysql import column_text, values
from edge.mysql.column_text import Shown, Wire, json_text, wire_of
from edge.mysql.table_map import Field
from edge.records.column_policy import NoForm, Treatment


class ColumnCodec(NamedTuple):
    """How one column becomes JSON. In `read`, `lines`, `form` and `arguments` the variable is `{v}`."""

    type_name: str
    #: The struct code of a fixed column, empty for others.
    fixed: str = ""
    #: What takes any other column from the image; and what makes of either what the form takes.
    read: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    form: str = "%d"
    arguments: tuple[str, ...] = ("{v}",)
    #: Whether the value is UTF-8 in which something may be to escape.
    is_text: bool = False
    #: What the lines use, by names that are the column's own.
    scope: dict[str, Any] = {}
    length: int | None = None
    scale: int | None = None
    #: Of an ENUM or a SET.
    members: tuple[str, ...] = ()
    #: What the edge's policy does to the values; `exclude` for a column that is read and not sent.
    policy: str | None = None
    #: Debezium's name for a form that is not the ordinary one.
    form_name: str | None = None
    #: How many bytes ahead of the value have its length, of a binary value or UTF-8 as long as a record may be, as it is stored.
    length_bytes: int = 0
    #: The same for the functions in C.
    wire: Wire = Wire()


#: What every generated function may use.
SHARED: dict[str, Any] = {
    "number": int.from_bytes, "dates": values.DATES, "days": values.DAYS, "times": values.TIMES,
    "timestamp": values.timestamp, "old_timestamp": values.old_timestamp, "moment": values.moment,
    "old_moment": values.old_moment, "server_moment": values.server_moment,
    "duration": values.duration, "old_duration": values.old_duration,
    "float_json": values.float_json, "double_json": values.double_json, "vector": values.vector,
    "inflated": values.inflated, "plain": values.plain, "dated": values.dated, "json_text": json_text,
    "seconds": values.SECONDS,
}  # fmt: skip
_INTEGERS = {values.TINY: "bB", values.SHORT: "hH", values.LONG: "iI", values.LONGLONG: "qQ"}
_QUOTED = '"%b"'
_BLOBS = {values.BLOB, values.TINY_BLOB, values.MEDIUM_BLOB, values.LONG_BLOB}
_BLOB_NAMES = {
    1: ("TINYBLOB", "TINYTEXT"),
    2: ("BLOB", "TEXT"),
    3: ("MEDIUMBLOB", "MEDIUMTEXT"),
    4: ("LONGBLOB", "LONGTEXT"),
}


class Place(NamedTuple):
    """A column, and who is told of bytes in it that are no text."""

    name: str
    report: Callable[[str], None] = lambda _column: None

    def text(self, codec: str) -> column_text.Text:
        """Return what makes text of its bytes."""
        return column_text.Text(codec, self.name, self.report)


def code(field: Field, charset_of: Callable[[int], str], kind: str, where: Place) -> ColumnCodec:
    """Return a column's codec; `kind` is the server's name for what the log shows as bytes.

    Raises NoForm for a type that is not read, and for members in a character set that is not.
    """
    codec = _python(field, charset_of, kind, where)
    shown = Shown(codec.fixed, codec.length, codec.scale, codec.members)
    return codec._replace(wire=wire_of(field, lambda: charset_of(field.collation), kind, shown))


def _python(field: Field, charset_of: Callable[[int], str], kind: str, where: Place) -> ColumnCodec:
    number = field.type
    if number in {values.STRING, values.VARCHAR, values.VAR_STRING, values.VARCHAR_COMPRESSED}:
        return _string(field, charset_of, kind, where)
    if number in _INTEGERS or number == values.INT24:
        return _integer(field)
    if number in _BLOBS or number == values.BLOB_COMPRESSED:
        blob, text = _BLOB_NAMES.get(field.meta, _BLOB_NAMES[4])
        size = field.meta
        read = (f"n = number(m[p:p + {size}], 'little')", f"p += {size}", "{v} = m[p:(p := p + n)]")
        codec = _characters(field, charset_of, where, read, (blob, text), compressed=number == values.BLOB_COMPRESSED)
        plain = number != values.BLOB_COMPRESSED and (codec.is_text or codec.type_name == blob)
        return codec._replace(length_bytes=size) if plain else codec
    if number in {values.ENUM, values.SET}:
        return _with_members(field, charset_of, where)
    if (simple := _SIMPLE.get(number)) is not None:
        return simple(field)
    raise NoForm(
        f"column {where.name} is of a type that this release does not read ({number})",
        hint="Alter the column, or leave its table out of the source's tables.",
    )


def blank(codec: ColumnCodec) -> ColumnCodec:
    """Return the codec of a column that is passed over, whatever it is: null in its row."""
    return codec._replace(lines=(), form="null", arguments=(), is_text=False)


def for_key(codec: ColumnCodec) -> ColumnCodec:
    """Return the codec of a column of a key: it refuses a wrong value of an ENUM with an empty member, which looks the same."""
    if codec.type_name != "ENUM" or "" not in codec.members:
        return codec
    wire = codec.wire._replace(members=(b"", *codec.wire.members[1:]))
    return codec._replace(scope=codec.scope | {"members_{v}": values.key_members(codec.members)}, wire=wire)


def without_zero_dates(codec: ColumnCodec) -> ColumnCodec:
    """Return the codec of a column whose zero dates are null."""
    if codec.type_name not in {"DATE", "DATETIME", "TIMESTAMP"}:
        return codec
    line = f"{{v}} = dated({codec.form.encode()!r} % ({', '.join(codec.arguments)},))"
    return codec._replace(lines=(*codec.lines, line), form="%b", arguments=("{v}",), wire=codec.wire._replace(form=""))


def treated(codec: ColumnCodec, treatment: Treatment) -> ColumnCodec:
    """Return the codec of a column that the edge's policy hides."""
    if treatment.hide is None:
        return blank(codec)._replace(policy=treatment.action)
    if codec.is_text:
        hidden: tuple[str, ...] = (
            "try:", "    {v} = hide_{v}({v})", "except UnicodeDecodeError:", "    {v} = hide_{v}(text_{v}({v}).encode())",
        )  # fmt: skip
    else:
        hidden = (f"{{v}} = hide_{{v}}(plain({codec.form.encode()!r} % ({', '.join(codec.arguments)},)))",)
    return ColumnCodec(
        "TEXT",
        codec.fixed,
        codec.read,
        (*codec.lines, *hidden),
        _QUOTED,
        is_text=True,
        scope=codec.scope | {"hide_{v}": treatment.hide},
        policy=treatment.action,
    )


def _string(field: Field, charset_of: Callable[[int], str], kind: str, where: Place) -> ColumnCodec:
    if kind in values.ADDRESSES and field.type == values.STRING:
        scope = {"address_{v}": values.ADDRESSES[kind]}
        return ColumnCodec(
            kind.upper(), read=_short(field.meta), lines=("{v} = address_{v}({v})",), form=_QUOTED, scope=scope
        )
    names = ("BINARY", "CHAR") if field.type == values.STRING else ("VARBINARY", "VARCHAR")
    compressed = field.type == values.VARCHAR_COMPRESSED
    return _characters(field, charset_of, where, _short(field.meta), names, compressed=compressed)


def _integer(field: Field) -> ColumnCodec:
    name = values.INTEGER_NAMES[field.type] + (" UNSIGNED" if field.unsigned else "")
    if field.type == values.INT24:
        return ColumnCodec(name, "3s", lines=(f"{{v}} = number({{v}}, 'little', signed={not field.unsigned})",))
    return ColumnCodec(name, _INTEGERS[field.type][field.unsigned])


def _short(length: int) -> tuple[str, ...]:
    if length < 256:
        return ("n = m[p] + 1", "{v} = m[p + 1:(p := p + n)]")
    return ("n = (m[p] | m[p + 1] << 8) + 2", "{v} = m[p + 2:(p := p + n)]")


def _characters(
    field: Field,
    charset_of: Callable[[int], str],
    where: Place,
    read: tuple[str, ...],
    names: tuple[str, str],
    *,
    compressed: bool,
) -> ColumnCodec:
    inflate = ("{v} = inflated({v})",) if compressed else ()
    binary, text = names
    of = column_text.BINARY if field.collation == values.BINARY else charset_of(field.collation)
    # As declared, in characters.
    length = field.meta // column_text.width(of) if binary not in {name for name, _ in _BLOB_NAMES.values()} else None
    if of == column_text.BINARY:
        # The log leaves zeros at the end of a BINARY out.
        padded = f".ljust({field.meta}, b'\\0')" if field.type == values.STRING else ""
        encode = f"{{v}} = base64({{v}}{padded}, newline=False)"
        return ColumnCodec(binary, read=read, lines=(*inflate, encode), form=_QUOTED, length=length)
    if of in column_text.UTF8:
        scope: dict[str, Any] = {"text_{v}": where.text("utf-8")}
        return ColumnCodec(text, read=read, lines=inflate, form=_QUOTED, is_text=True, length=length, scope=scope)
    try:
        codec = column_text.decoder(of, where.name)
    except NoForm as problem:
        # Each value is what cannot be decoded; whether there is one is in the row.
        scope = {"refuse_{v}": partial(_refuse, problem)}
        return ColumnCodec(text, read=read, lines=("refuse_{v}()",), form="%b", length=length, scope=scope)
    lines = (
        *inflate, "try:",
        f"    {{v}} = encode(str({{v}}, {codec!r}))", "except UnicodeDecodeError:", "    {v} = encode(text_{v}({v}))",
    )  # fmt: skip
    return ColumnCodec(text, read=read, lines=lines, form="%b", length=length, scope={"text_{v}": where.text(codec)})


def _refuse(problem: NoForm) -> None:
    raise problem


def _with_members(field: Field, charset_of: Callable[[int], str], where: Place) -> ColumnCodec:
    of = "utf8mb4" if not field.collation else charset_of(field.collation)
    # Members of binary columns are names all the same.
    codec = (
        "utf-8"
        if of in column_text.UTF8
        else "latin1"
        if of == column_text.BINARY
        else column_text.decoder(of, where.name)
    )
    texts = tuple(map(where.text(codec), field.members))
    scope: dict[str, Any]
    if field.type == values.ENUM:
        scope = {"members_{v}": values.members(texts)}
        line, fixed = "{v} = members_{v}[{v}]", "BH"[field.meta - 1]
        return ColumnCodec("ENUM", fixed, lines=(line,), form="%b", scope=scope, members=texts)
    line, scope = "{v} = sets_{v}[number({v}, 'little')]", {"sets_{v}": values.Sets(texts)}
    return ColumnCodec("SET", f"{field.meta}s", lines=(line,), form="%b", scope=scope, members=texts)


def _decimal(field: Field) -> ColumnCodec:
    """Groups of nine digits in four bytes, big-endian, the odd digits outermost; the first bit is the sign."""
    precision, scale = field.meta >> 8, field.meta & 0xFF
    size, whole, parts = values.decimal_layout(precision, scale)
    top = 8 * size - 1
    lines = (
        "{v} = number({v}, 'big')",
        f"s_{{v}} = b'' if {{v}} >> {top} else b'-'",
        f"{{v}} ^= {(1 << top) - 1} if s_{{v}} else {1 << top}",
    )
    integer = " + ".join(
        f"({{v}} >> {shift} & {mask}) * {10 ** (9 * place)}" for place, (shift, mask) in enumerate(whole)
    )
    arguments = ("s_{v}", integer or "0", *(f"{{v}} >> {shift} & {mask}" for shift, mask, _ in parts))
    form = "".join(f"%0{digits}d" for _, _, digits in parts)
    form = f'"%b%d.{form}"' if scale else '"%b%d"'
    return ColumnCodec("DECIMAL", f"{size}s", (), lines, form, arguments, length=precision, scale=scale)


def _fraction_bytes(field: Field) -> int:
    if not 0 <= field.meta <= 6:
        raise ValueError("a time has an impossible precision")
    return (field.meta + 1) // 2


def _moment(field: Field) -> ColumnCodec:
    extra = _fraction_bytes(field)
    if extra:
        line = f"{{v}} = moment({{v}}, {field.meta})"
        return ColumnCodec("DATETIME", f"{5 + extra}s", (), (line,), _QUOTED, length=field.meta)
    lines = (f"{{v}} = number({{v}}, 'big') - {0x8000000000}",)
    return ColumnCodec("DATETIME", "5s", (), lines, '"%b%b"', ("days[{v} >> 17]", "times[{v} & 131071]"), length=0)


def _timestamp(field: Field) -> ColumnCodec:
    extra = _fraction_bytes(field)
    if field.meta != 6:
        line = f"{{v}} = timestamp({{v}}, {field.meta})"
        return ColumnCodec("TIMESTAMP", f"{4 + extra}s", (), (line,), _QUOTED, length=field.meta)
    # The usual one, without a call.
    lines = ("{v} = number({v}, 'big')", "z_{v} = b'Z' if {v} >> 24 else b''")
    arguments = ("seconds[{v} >> 24]", "{v} & 16777215", "z_{v}")
    return ColumnCodec("TIMESTAMP", "7s", (), lines, '"%b.%06d%b"', arguments, length=6)


def _time(field: Field) -> ColumnCodec:
    extra = _fraction_bytes(field)
    line = f"{{v}} = duration({{v}}, {field.meta})"
    return ColumnCodec("TIME", f"{3 + extra}s", (), (line,), _QUOTED, length=field.meta)


def _bit(field: Field) -> ColumnCodec:
    bits, whole = field.meta & 0xFF, field.meta >> 8
    length = 8 * whole + bits
    if not 1 <= length <= 64:
        raise ValueError("a column of bits has an impossible length")
    line = f"{{v}} = format(number({{v}}, 'big'), '0{length}b').encode()"
    return ColumnCodec("BIT", f"{whole + bool(bits)}s", (), (line,), _QUOTED, length=length)


def _with_size(type_name: str, line: str, form: str) -> Callable[[Field], ColumnCodec]:
    """Return the codec of a column whose metadata has the number of bytes of its length."""

    def codec(field: Field) -> ColumnCodec:
        size = field.meta
        read = (f"n = number(m[p:p + {size}], 'little')", f"p += {size}", "{v} = m[p:(p := p + n)]")
        return ColumnCodec(type_name, read=read, lines=(line,), form=form)

    return codec


_SIMPLE: dict[int, Callable[[Field], ColumnCodec]] = {
    values.FLOAT: lambda _: ColumnCodec("FLOAT", "f", (), ("{v} = float_json({v})",), "%b"),
    values.DOUBLE: lambda _: ColumnCodec("DOUBLE", "d", (), ("{v} = double_json({v})",), "%b"),
    values.YEAR: lambda _: ColumnCodec("YEAR", "B", (), ("{v} = {v} + 1900 if {v} else 0",)),
    values.NEWDECIMAL: _decimal,
    values.BIT: _bit,
    values.DATE: lambda _: ColumnCodec("DATE", "3s", (), ("{v} = dates[number({v}, 'little')]",), _QUOTED),
    values.NEWDATE: lambda _: ColumnCodec("DATE", "3s", (), ("{v} = dates[number({v}, 'little')]",), _QUOTED),
    values.DATETIME2: _moment,
    values.TIMESTAMP2: _timestamp,
    values.TIME2: _time,
    values.DATETIME: lambda _: ColumnCodec("DATETIME", "Q", (), ("{v} = old_moment({v})",), _QUOTED, length=0),
    values.TIMESTAMP: lambda _: ColumnCodec("TIMESTAMP", "I", (), ("{v} = old_timestamp({v})",), _QUOTED, length=0),
    values.TIME: lambda _: ColumnCodec("TIME", "3s", (), ("{v} = old_duration({v})",), _QUOTED, length=0),
    values.GEOMETRY: _with_size("GEOMETRY", "{v} = base64({v}, newline=False)", _QUOTED),
    values.VECTOR: _with_size("VECTOR", "{v} = vector({v})", _QUOTED),
    values.JSON: _with_size("JSON", "{v} = encode(json_text({v}))", "%b"),
}
