"""What a schema record calls a column's type, length and scale."""

import pytest

from edge.postgres.relations import Relation, RelationColumn, table_schema


def described(oid, modifier=-1, types=None):
    relation = Relation(oid=1, schema="s", table="t", identity="d", columns=(RelationColumn(True, "c", oid, modifier),))
    (column,) = table_schema(relation, [], types or {}).columns
    return column.type_name, column.length, column.scale


@pytest.mark.parametrize(
    ("oid", "modifier", "expected"),
    [
        (16, -1, ("bool", None, None)),
        (17, -1, ("bytea", None, None)),
        (20, -1, ("int8", None, None)),
        (21, -1, ("int2", None, None)),
        (23, -1, ("int4", None, None)),
        (25, -1, ("text", None, None)),
        (26, -1, ("oid", None, None)),
        (700, -1, ("float4", None, None)),
        (701, -1, ("float8", None, None)),
        (790, -1, ("money", None, None)),
        (1042, 14, ("bpchar", 10, None)),
        (1043, 34, ("varchar", 30, None)),
        (1043, -1, ("varchar", None, None)),
        (1015, 34, ("_varchar", 30, None)),
        (1700, (12 << 16 | 2) + 4, ("numeric", 12, 2)),
        (1700, (5 << 16 | 0) + 4, ("numeric", 5, 0)),
        (1700, (2 << 16 | (-3 & 0x7FF)) + 4, ("numeric", 2, -3)),
        (1700, -1, ("numeric", None, None)),
        (1231, (12 << 16 | 2) + 4, ("_numeric", 12, 2)),
        (1560, 8, ("bit", 8, None)),
        (1562, 8, ("varbit", 8, None)),
        (1083, 3, ("time", 3, None)),
        (1266, 0, ("timetz", 0, None)),
        (1114, 3, ("timestamp", 3, None)),
        (1184, 6, ("timestamptz", 6, None)),
        (1082, -1, ("date", None, None)),
        (1186, -1, ("interval", None, None)),
        (2950, -1, ("uuid", None, None)),
        (3802, -1, ("jsonb", None, None)),
        (1007, -1, ("_int4", None, None)),
        (3904, -1, ("int4range", None, None)),
        (99999, -1, ("oid:99999", None, None)),
    ],
)
def test_a_type_has_its_name_length_and_scale(oid, modifier, expected):
    assert described(oid, modifier) == expected


def test_a_type_of_the_database_has_the_name_that_was_announced():
    assert described(50001, types={50001: "mood"}) == ("mood", None, None)
