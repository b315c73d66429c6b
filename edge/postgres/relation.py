"""Relations as pgoutput announces them, and what they are called in a schema record."""

import struct
from dataclasses import dataclass
from typing import NamedTuple, Self

from headrace.schema import Column, TableSchema

_NAMES = {
    16: "bool", 17: "bytea", 18: "char", 19: "name", 20: "int8", 21: "int2", 23: "int4", 25: "text", 26: "oid",
    114: "json", 142: "xml", 600: "point", 601: "lseg", 602: "path", 603: "box", 604: "polygon", 628: "line",
    650: "cidr", 700: "float4", 701: "float8", 718: "circle", 774: "macaddr8", 790: "money", 829: "macaddr",
    869: "inet", 1042: "bpchar", 1043: "varchar", 1082: "date", 1083: "time", 1114: "timestamp",
    1184: "timestamptz", 1186: "interval", 1266: "timetz", 1560: "bit", 1562: "varbit", 1700: "numeric",
    2950: "uuid", 3220: "pg_lsn", 3614: "tsvector", 3615: "tsquery", 3802: "jsonb", 3904: "int4range",
    3906: "numrange", 3908: "tsrange", 3910: "tstzrange", 3912: "daterange", 3926: "int8range", 4072: "jsonpath",
    4451: "int4multirange", 4532: "nummultirange", 4533: "tsmultirange", 4534: "tstzmultirange",
    4535: "datemultirange", 4536: "int8multirange",
}  # fmt: skip
_ARRAYS = {
    1000: "bool", 1001: "bytea", 1002: "char", 1003: "name", 1005: "int2", 1007: "int4", 1009: "text", 1014: "bpchar",
    1015: "varchar", 1016: "int8", 1017: "point", 1021: "float4", 1022: "float8", 1028: "oid", 1040: "macaddr",
    1041: "inet", 1115: "timestamp", 1182: "date", 1183: "time", 1185: "timestamptz", 1187: "interval",
    1231: "numeric", 1270: "timetz", 1561: "bit", 1563: "varbit", 2951: "uuid", 199: "json", 3807: "jsonb",
    143: "xml", 651: "cidr", 791: "money",
}  # fmt: skip

_INT32 = struct.Struct(">I").unpack_from
_IDENTITY_AND_COUNT = struct.Struct(">BH").unpack_from
_TYPE = struct.Struct(">Ii").unpack_from


class RelationColumn(NamedTuple):
    """A column of a Relation message."""

    #: Whether it is part of the replica identity.
    identity: bool
    name: str
    type_oid: int
    #: The type's modifier, -1 when it has none.
    modifier: int


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A table, as a Relation message announces it."""

    oid: int
    schema: str
    table: str
    #: `d` default, `n` nothing, `f` full, `i` an index.
    identity: str
    columns: tuple[RelationColumn, ...]

    @classmethod
    def parse(cls, message: bytes) -> Self:
        """Return the relation of a message; raise ValueError, IndexError or struct.error when it is none.

        Byte1('R') Int32(oid) String(namespace) String(name) Int8(identity) Int16(columns), then for each column
        Int8(flags) String(name) Int32(type) Int32(modifier).
        """
        (oid,) = _INT32(message, 1)
        schema, offset = string(message, 5)
        name, offset = string(message, offset)
        identity, count = _IDENTITY_AND_COUNT(message, offset)
        offset += 3
        columns = []
        for _ in range(count):
            flags = message[offset]
            column, offset = string(message, offset + 1)
            columns.append(RelationColumn(bool(flags & 1), column, *_TYPE(message, offset)))
            offset += 8
        if offset != len(message) or identity not in b"dnfi" or len({column.name for column in columns}) != count:
            raise ValueError("a relation does not end where its columns do, or is none")
        # The server leaves the name of its own catalog out.
        return cls(oid=oid, schema=schema or "pg_catalog", table=name, identity=chr(identity), columns=tuple(columns))


def string(message: bytes, offset: int) -> tuple[str, int]:
    """Return a zero-terminated string and the offset behind it."""
    end = message.index(0, offset)
    return message[offset:end].decode(), end + 1


def table_schema(relation: Relation, key: list[str], types: dict[int, str]) -> TableSchema:
    """Return the relation as the schema record tells it; `types` names types that Type messages announced."""
    return TableSchema(
        schema=relation.schema,
        table=relation.table,
        key=key,
        columns=[_column(column, position, key, types) for position, column in enumerate(relation.columns, start=1)],
    )


def _column(column: RelationColumn, position: int, key: list[str], types: dict[int, str]) -> Column:
    oid = column.type_oid
    name = _NAMES.get(oid) or (f"_{_ARRAYS[oid]}" if oid in _ARRAYS else types.get(oid, f"oid:{oid}"))
    length, scale = _modifier(name.removeprefix("_"), column.modifier)
    return Column(
        name=column.name,
        type_name=name,
        length=length,
        scale=scale,
        position=position,
        optional=column.name not in key,
    )


def _modifier(name: str, modifier: int) -> tuple[int | None, int | None]:
    """Return length or precision, and scale, of a type modifier as PostgreSQL packs it."""
    if modifier < 0:
        return None, None
    if name in {"varchar", "bpchar"}:
        return modifier - 4, None
    if name == "numeric":
        packed = modifier - 4
        # The scale is a signed number of 11 bits since PostgreSQL 15.
        return packed >> 16 & 0xFFFF, (packed & 0x7FF ^ 0x400) - 0x400
    if name in {"bit", "varbit", "time", "timetz", "timestamp", "timestamptz"}:
        return modifier, None
    return None, None
