"""One canonical text per type of MariaDB and MySQL, as an expression in their SQL and one in Spark's that give the same text.

As canonical.py does it for PostgreSQL. These servers have no function that shows a float's bits, so a float is written as sign,
53 digits as a whole number, and exponent, all of which both engines compute exactly. A date with a year, month or day of
zero is null here: it is in the lake, or its table's load stops. What can be large is replaced by its SHA-256: texts are small.
Hashes are SHA-256, since MySQL 9.6 and newer have no MD5() of their own.
"""

from headrace.verify.canonical import Column, SilverType, SourceType, silver_name

_LARGE_TEXT = {"text", "mediumtext", "longtext", "json"}
_LARGE_BYTES = {
    "blob", "mediumblob", "longblob", "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring",
    "multipolygon", "geometrycollection", "geomcollection",
    # MariaDB's; MySQL's is text in the lake, with numbers that it prints otherwise.
    "vector",
}  # fmt: skip
_BYTES = {"binary", "varbinary", "tinyblob"} | _LARGE_BYTES
_SHORT = {"tinyint", "tinyint unsigned", "smallint", "year"}
_INTEGER = _SHORT | {"smallint unsigned", "mediumint", "mediumint unsigned", "int"}
#: Integers whose numbers can make ranges: a year compares in its own way.
INTEGERS = _INTEGER - {"year"} | {"int unsigned", "bigint"}
#: Silver's types with a fixed form, and the source's types that each may come from.
_FIXED = {
    "short": _SHORT,
    "integer": _INTEGER,
    "long": _INTEGER | {"int unsigned", "bigint"},
    "decimal": {"decimal", "bigint unsigned"},
    "float": {"float"},
    "double": {"float", "double"},
    "date": {"date"},
    "timestamp": {"timestamp"},
    "timestamp_ntz": {"datetime"},
    "binary": _BYTES,
}
#: Not text, whatever their JSON is: bytes, and numbers that both engines print otherwise.
_NO_TEXT = _BYTES | {"float", "double"}
_DATES = {"date", "datetime", "timestamp"}
_MOMENT = "date_format({value}, '%Y-%m-%d %H:%i:%s.%f')", "date_format({value}, 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
_FORMS = {
    "date": ("date_format({value}, '%Y-%m-%d')", "date_format({value}, 'yyyy-MM-dd')"),
    "timestamp": _MOMENT,
    "timestamp_ntz": _MOMENT,
}
#: Digits of a double's whole number, its hidden first one included: 2 to the power of 52.
_HIDDEN = 1 << 52


def column(
    name: str,
    at_source: SourceType,
    in_silver: SilverType,
    *,
    stored: str | None = None,
    nan: bool = False,  # noqa: ARG001
) -> Column | None:
    """Return how a column is compared; None when its types cannot hold the same values."""
    stored = name if stored is None else stored
    here, there = source_name(name), silver_name(stored)
    kind = at_source.name
    if in_silver.name == "string":
        if kind in _NO_TEXT:
            return None
        if kind in _LARGE_TEXT:
            return Column(
                name=name,
                stored=stored,
                source=f"sha2({_utf8(here)}, 256)",
                silver=f"sha2(cast({there} as binary), 256)",
                free=False,
                in_silver=in_silver,
            )
        return Column(
            name=name, stored=stored, source=_print(here, at_source), silver=there, free=True, in_silver=in_silver
        )
    if kind not in _FIXED.get(in_silver.name, set()):
        return None
    if in_silver.name == "decimal":
        scale = at_source.scale or 0
        source = _pad(_print(here, at_source), scale, in_silver.scale)
        silver = _pad(f"cast({there} as string)", in_silver.scale, scale)
    elif in_silver.name in {"float", "double"}:
        source, silver = _source_float(here), _silver_float(there)
    elif kind in _LARGE_BYTES:
        source, silver = f"sha2({here}, 256)", f"sha2({there}, 256)"
    elif kind in _BYTES:
        source, silver = f"lower(hex({here}))", f"lower(hex({there}))"
    elif kind in _DATES:
        source, silver = (
            form.format(value=value) for form, value in zip(_FORMS[in_silver.name], (here, there), strict=True)
        )
        source = f"if({_is_zero(here)}, null, {source})"
    else:
        source, silver = _print(here, at_source), f"cast({there} as string)"
    return Column(name=name, stored=stored, source=source, silver=silver, free=False, in_silver=in_silver)


def absent(name: str) -> Column:
    """Return how a column that silver does not have is compared: as null on that side."""
    source = f"hex({source_name(name)})"
    return Column(name=name, stored=name, source=source, silver="cast(null as string)", free=False)


def source_hash(text: str) -> str:
    """Return the hash of a text, 32 digits of its SHA-256, in the server's SQL."""
    return f"left(sha2({text}, 256), 32)"


def silver_hash(text: str) -> str:
    """Return the same in Spark's SQL."""
    return f"substring(sha2(cast({text} as binary), 256), 1, 32)"


def source_row(columns: list[Column]) -> str:
    """Return the text of a row in the server's SQL."""
    return f"concat({', '.join(_source_part(column) for column in columns)})" if columns else "''"


def source_name(name: str) -> str:
    """Return a name quoted for the server."""
    return "`" + name.replace("`", "``") + "`"


def key_text(column: Column) -> str:
    """Return a key column as a person reads it, in the server's SQL."""
    return f"convert({source_name(column.name)} using utf8mb4)"


def _source_part(column: Column) -> str:
    text = column.source
    shown = f"concat(char_length({text}), ':', {text})" if column.free else text
    return f"coalesce({shown}, '~'), '|'"


def _print(value: str, kind: SourceType) -> str:
    if kind.name == "bit":
        return f"lpad(bin({value}), {kind.bits}, '0')"
    if kind.name in _FIXED["long"] | _FIXED["decimal"]:
        # Without the zeros that ZEROFILL shows.
        return f"concat({value} + 0)"
    return _utf8(f"concat({value})" if kind.name in {"enum", "set"} else f"cast({value} as char)")


def _utf8(value: str) -> str:
    return f"convert({value} using utf8mb4)"


def _is_zero(value: str) -> str:
    return f"year({value}) = 0 or month({value}) = 0 or dayofmonth({value}) = 0"


def _pad(printed: str, scale: int, other: int) -> str:
    """Return a printed decimal with as many digits after the point as the other side has."""
    if scale >= other:
        return printed
    return f"concat({printed}, '{'' if scale else '.'}{'0' * (other - scale)}')"


def _source_float(value: str) -> str:
    size = f"abs({value})"
    # A logarithm is not exact: next to a power of two it may be on the other side of it.
    about = f"least(floor(log2({size})), 1023)"
    exponent = f"({about} + ({size} / 2 >= pow(2, {about})) - ({size} < pow(2, {about})))"
    digits = f"cast({size} / pow(2, {exponent}) * {_HIDDEN} as unsigned)"
    return (
        f"case when {value} = 0 then concat({value}) "
        f"else concat(if({value} < 0, '-', ''), {digits}, 'p', {exponent}) end"
    )


def _silver_float(value: str) -> str:
    # The Java method takes no null, and evaluates its argument even where the result is not used.
    bits = f"cast(java_method('java.lang.Double', 'doubleToLongBits', coalesce(cast({value} as double), 0D)) as bigint)"
    fraction, exponent = f"(b & {_HIDDEN - 1}L)", "(shiftright(b, 52) & 2047)"
    # Below the least exponent the first digit is not hidden, but further down.
    first = f"(length(bin({fraction})) - 1)"
    digits = f"if({exponent} = 0, shiftleft({fraction}, 52 - {first}), {fraction} | {_HIDDEN}L)"
    power = f"if({exponent} = 0, {first} - 1074, {exponent} - 1023)"
    sign = "if(b < 0, '-', '')"
    text = f"if(b & {(1 << 63) - 1}L = 0, concat({sign}, '0'), concat({sign}, {digits}, 'p', {power}))"
    return f"if({value} is null, null, transform(array({bits}), b -> {text})[0])"
