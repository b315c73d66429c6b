"""One canonical text per type, as an expression in PostgreSQL's SQL and one in Spark's that give the same text.

Both engines hash these texts, so both must write a value the same way. Fixed forms are made of characters that never
include the separator; free text carries its length. Floats and times are compared by their bits, in hexadecimal, because
the engines print them differently. The pair of types decides: what the source declares and what silver holds.
"""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

#: No name of a table, column or type is longer, in characters.
LONGEST_NAME = 256
#: Silver's types with a fixed form, and the source's types that each may come from.
_FIXED = {
    "boolean": {"bool"},
    "short": {"int2"},
    "integer": {"int2", "int4"},
    "long": {"int2", "int4", "int8", "oid"},
    "decimal": {"numeric"},
    "float": {"float4"},
    "double": {"float4", "float8"},
    "date": {"date"},
    "timestamp": {"timestamptz"},
    "timestamp_ntz": {"timestamp"},
    "binary": {"bytea"},
}
#: Silver holds infinite times as the extremes of Spark's types; PostgreSQL sends them as the extremes of its own.
_DAYS = (
    "CASE unix_date({value}) WHEN 2147483647 THEN '7fffffff' WHEN -2147483647 THEN '80000000'"
    " ELSE right(lpad(lower(hex(unix_date({value}) - 10957)), 16, '0'), 8) END"
)
_MICROSECONDS = (
    "CASE unix_micros(cast({value} AS timestamp))"
    " WHEN 9223372036854775807 THEN '7fffffffffffffff' WHEN -9223372036854775807 THEN '8000000000000000'"
    " ELSE lpad(lower(hex(unix_micros(cast({value} AS timestamp)) - 946684800000000)), 16, '0') END"
)
#: A NaN that was computed can have other bits than one that was written.
_FLOAT = "encode({type}send(CASE WHEN {value} = 'NaN' THEN 'NaN' ELSE {value} END), 'hex')"
#: Types that print names of the database, with their schemas unless the search path has those. The edge reads by its role's path,
#: and verify by one that has the server's own alone, so names are compared without their schemas.
_NAMES = frozenset({"regclass", "regcollation", "regconfig", "regdictionary", "regproc", "regtype"})
_UNQUALIFIED = ("regexp_replace({text}, '^.*[.]', '')",) * 2
#: Those that print several names, and an operator's; and arrays of all of them, whose quotes are taken out first.
_NAMES_WITHIN = frozenset({"regoper", "regoperator", "regprocedure"})
_ARRAYS = frozenset(f"_{name}" for name in _NAMES | _NAMES_WITHIN)
_PREFIX = '\'(("[^"]*")+|[^(),{{}}" ]+)[.]\''
_UNQUALIFIED_WITHIN = f"regexp_replace({{text}}, {_PREFIX}, '', 'g')", f"regexp_replace({{text}}, {_PREFIX}, '')"
_UNQUALIFIED_ARRAY = tuple(
    form.replace("{text}", text)
    for form, text in zip(
        _UNQUALIFIED_WITHIN, ("translate({text}, E'\"\\\\', '')", "translate({text}, '\"\\\\', '')"), strict=True
    )
)
#: How a value that both engines print alike becomes text: at the source, in silver.
_PRINTED = ("{value}::text", "cast({value} as string)")
#: The same for those that they do not: PostgreSQL's own binary form, in hexadecimal.
_FORMS = {
    "float": (_FLOAT, ""),
    "double": (_FLOAT, ""),
    # Days since 2000-01-01.
    "date": ("encode({type}_send({value}), 'hex')", _DAYS),
    # Microseconds since 2000-01-01.
    "timestamp": ("encode({type}_send({value}), 'hex')", _MICROSECONDS),
    "timestamp_ntz": ("encode({type}_send({value}), 'hex')", _MICROSECONDS),
    "binary": ("encode({value}, 'hex')", "lower(hex({value}))"),
}


@dataclass(frozen=True, kw_only=True)
class SourceType:
    """A column's type as the source's catalog has it, domains resolved."""

    #: `int4`, `numeric`, `timestamptz`; of MariaDB and MySQL `int unsigned`, `decimal`, `longtext`.
    name: Annotated[str, Meta(max_length=LONGEST_NAME)]
    #: Digits after the point, of a numeric that declares them.
    scale: Annotated[int, Meta(ge=-1000, le=1000)] | None = None
    #: Binary digits of a `bit`.
    bits: Annotated[int, Meta(ge=0, le=64)] = 0


@dataclass(frozen=True, kw_only=True)
class SilverType:
    """A column's type in silver: Spark's type name, and the scale of a decimal."""

    name: Annotated[str, Meta(max_length=LONGEST_NAME)]
    scale: Annotated[int, Meta(ge=0, le=38)] = 0


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column that both sides have, with the expressions of its text."""

    name: str
    #: Its name in silver.
    stored: str
    #: In the source's SQL; null for null.
    source: str
    #: In Spark's SQL; null for null.
    silver: str
    #: Whether the text may hold any character, and so needs its length with it.
    free: bool
    #: What silver holds, of which both expressions follow with the source's type; None for a column that it does not have.
    in_silver: SilverType | None = None
    #: Whether silver lists in a column of the row which of its decimals are NaN.
    nan: bool = False


def column(
    name: str, at_source: SourceType, in_silver: SilverType, *, stored: str | None = None, nan: bool = False
) -> Column | None:
    """Return how a column is compared; None when its types cannot hold the same values.

    `stored` is its name in silver where that is another one. `nan`: silver lists in a column of the row which of its decimals
    are NaN.
    """
    stored = name if stored is None else stored
    here, there = source_name(name), silver_name(stored)
    if in_silver.name == "string":
        # The type's own output function: a cast to text differs from it, for inet and char(n).
        here = f"format('%s', {here})"
        unqualified = _unqualified(at_source.name)
        if unqualified is not None:
            here, there = (form.format(text=text) for form, text in zip(unqualified, (here, there), strict=True))
        return Column(name=name, stored=stored, source=here, silver=there, free=True, in_silver=in_silver)
    if at_source.name not in _FIXED.get(in_silver.name, set()):
        return None
    if at_source.name == "numeric" and at_source.scale is None:
        # It prints as many digits as each value was given, which no decimal type keeps.
        return None
    shown = _silver_form(there, at_source, in_silver)
    return Column(
        name=name,
        stored=stored,
        source=_source_form(here, at_source, in_silver),
        silver=_or_nan(stored, shown) if nan and in_silver.name == "decimal" else shown,
        free=False,
        in_silver=in_silver,
        nan=nan,
    )


def _unqualified(type_name: str) -> tuple[str, ...] | None:
    """Return the forms that take schemas out of a type's texts, at the source and in silver; None where there are none."""
    if type_name in _NAMES:
        return _UNQUALIFIED
    if type_name in _NAMES_WITHIN:
        return _UNQUALIFIED_WITHIN
    return _UNQUALIFIED_ARRAY if type_name in _ARRAYS else None


def absent(name: str) -> Column:
    """Return how a column that silver does not have is compared: as null on that side."""
    source = f"format('%s', {source_name(name)})"
    return Column(name=name, stored=name, source=source, silver="cast(null as string)", free=True)


def _source_form(value: str, at_source: SourceType, in_silver: SilverType) -> str:
    if in_silver.name == "decimal":
        printed = _pad(f"{value}::text", at_source.scale or 0, in_silver.scale)
        return f"case when {value} = 'NaN' then 'NaN' else {printed} end"
    template, _ = _FORMS.get(in_silver.name, _PRINTED)
    return template.format(value=value, type=at_source.name)


def _or_nan(name: str, shown: str) -> str:
    quoted = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"if(coalesce(array_contains(`_nan`, '{quoted}'), false), 'NaN', {shown})"


def _silver_form(value: str, at_source: SourceType, in_silver: SilverType) -> str:
    if in_silver.name == "decimal":
        return _pad(f"cast({value} as string)", in_silver.scale, at_source.scale or 0)
    if in_silver.name in {"float", "double"}:
        return _bits(value, at_source.name)
    _, template = _FORMS.get(in_silver.name, _PRINTED)
    return template.format(value=value)


def _pad(printed: str, scale: int, other: int) -> str:
    """Return a printed decimal with as many digits after the point as the other side has."""
    # A negative scale rounds left of the point, and prints no digits after it.
    scale, other = max(scale, 0), max(other, 0)
    if scale >= other:
        return printed
    return f"{printed} || '{'' if scale else '.'}{'0' * (other - scale)}'"


def _bits(value: str, source_type: str) -> str:
    """Return the IEEE 754 bits in hexadecimal, every NaN as one."""
    # The Java method takes no null, and evaluates its argument even where the result is not used.
    if source_type == "float4":
        bits = f"cast(java_method('java.lang.Float', 'floatToIntBits', cast(coalesce({value}, 0) as float)) as int)"
        shown = f"right(lpad(lower(hex({bits})), 16, '0'), 8)"
    else:
        bits = f"cast(java_method('java.lang.Double', 'doubleToLongBits', coalesce({value}, 0D)) as bigint)"
        shown = f"lpad(lower(hex({bits})), 16, '0')"
    return f"if({value} is null, null, {shown})"


def source_row(columns: list[Column]) -> str:
    """Return the text of a row in PostgreSQL's SQL."""
    return " || ".join(_source_part(column) for column in columns) or "''"


def silver_hash(text: str) -> str:
    """Return the MD5 of a text in Spark's SQL."""
    return f"md5(cast({text} as binary))"


def silver_row(columns: list[Column]) -> str:
    """Return the text of a row in Spark's SQL."""
    parts = (_silver_part(column) for column in columns)
    return f"concat({', '.join(parts)})" if columns else "''"


def _source_part(column: Column) -> str:
    text = column.source
    # format() turns null into an empty text, so the column itself is tested. IS NULL is true of a composite of nulls as well.
    if column.free:
        null = f"{source_name(column.name)} is not distinct from null"
        return f"case when {null} then '~|' else length({text}) || ':' || {text} || '|' end"
    return f"coalesce({text}, '~') || '|'"


def _silver_part(column: Column) -> str:
    text = column.silver
    shown = f"concat(cast(length({text}) as string), ':', {text})" if column.free else text
    return f"coalesce({shown}, '~'), '|'"


def source_name(name: str) -> str:
    """Return a column's name quoted for PostgreSQL."""
    return '"' + name.replace('"', '""') + '"'


def source_table(schema: str, name: str) -> str:
    """Return a table's name quoted for PostgreSQL."""
    return f"{source_name(schema)}.{source_name(name)}"


def silver_name(name: str) -> str:
    """Return a column's name quoted for Spark."""
    return "`" + name.replace("`", "``") + "`"
