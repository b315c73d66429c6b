"""Relations as pgoutput announces them, and what they are called in a schema record."""

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from edge.postgres.debezium_types import DebeziumType
from edge.postgres.values import NAMES as TYPE_NAMES
from edge.records.alterations import KnownColumn
from headrace.schema import Column, TableSchema

_INT32 = struct.Struct(">I").unpack_from
_IDENTITY_AND_COUNT = struct.Struct(">BH").unpack_from
_TYPE = struct.Struct(">Ii").unpack_from
#: The first OID that does not belong to a built-in type: from here on the log names types in Type messages.
FIRST_NAMED_TYPE = 10_000


class RelationColumn(NamedTuple):
    """A column of a Relation message."""

    #: Whether it is part of the replica identity.
    identity: bool
    name: str
    #: Of a domain over a built-in type, that type's.
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
    def parse(cls, message: bytes, domains: Mapping[int, int] | None = None) -> Self:
        """Return the relation of a message; raise ValueError, IndexError or struct.error when it is none.

        `domains` has the built-in types beneath domains, both by OID.

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
            type_oid, modifier = _TYPE(message, offset)
            columns.append(RelationColumn(bool(flags & 1), column, (domains or {}).get(type_oid, type_oid), modifier))
            offset += 8
        if offset != len(message) or identity not in b"dnfi" or len({column.name for column in columns}) != count:
            raise ValueError("a relation does not end where its columns do, or is none")
        # The server leaves the name of its own catalog out.
        return cls(oid=oid, schema=schema or "pg_catalog", table=name, identity=chr(identity), columns=tuple(columns))


def string(message: bytes, offset: int) -> tuple[str, int]:
    """Return a zero-terminated string and the offset behind it."""
    end = message.index(0, offset)
    return message[offset:end].decode(), end + 1


def table_schema(
    relation: Relation,
    key: list[str],
    types: Mapping[int, str],
    debezium_types: Sequence[DebeziumType | None] = (),
    policy: Sequence[str | None] = (),
    required: Collection[str] = (),
) -> TableSchema:
    """Return the relation as it is in the schema record.

    `types` names types that Type messages announced; `debezium_types` are those of the columns, where they are not the
    ordinary ones; `policy` is what the edge's policy does to them. A column that it excludes is left out. `required` are columns
    that are NOT NULL, in addition to the key's.
    """
    ordinary = [None] * len(relation.columns)
    filled = {*key, *required}
    columns = list(zip(relation.columns, debezium_types or ordinary, policy or ordinary, strict=True))
    return TableSchema(
        schema=relation.schema,
        table=relation.table,
        key=key,
        columns=[
            _column(column, position, filled, types, form)
            if action is None
            else _treated(column, position, filled, action)
            for position, (column, form, action) in enumerate(columns, start=1)
            if action != "exclude"
        ],
        excluded=[column.name for column, _, action in columns if action == "exclude"],
    )


def known_columns(
    relation: Relation, types: Mapping[int, str], policy: Sequence[str | None]
) -> tuple[KnownColumn, ...]:
    """Return the relation's columns as the source has them, but for those that the edge's policy excludes."""
    plain = (
        (column.type_oid, _column(column, 0, (), types, None))
        for column, action in zip(relation.columns, policy, strict=True)
        if action != "exclude"
    )
    return tuple(
        KnownColumn(it.name, it.type_name, it.length, it.scale, type_number=oid if oid >= FIRST_NAMED_TYPE else None)
        for oid, it in plain
    )


def _treated(column: RelationColumn, position: int, filled: Collection[str], action: str) -> Column:
    """Return a column whose values the policy turns into text."""
    return Column(
        name=column.name, type_name="text", position=position, optional=column.name not in filled, policy=action
    )


def _column(
    column: RelationColumn, position: int, filled: Collection[str], types: Mapping[int, str], form: DebeziumType | None
) -> Column:
    oid = column.type_oid
    name = TYPE_NAMES.get(oid) or types.get(oid, f"oid:{oid}")
    length, scale = _modifier(name.removeprefix("_"), column.modifier)
    return Column(
        name=column.name,
        type_name=name,
        length=length,
        scale=scale,
        position=position,
        optional=column.name not in filled,
        form=form.name if form else None,
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
