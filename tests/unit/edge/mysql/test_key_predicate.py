"""Keys of records as literals: nothing in them ends a literal, and what cannot be a key's value is refused."""

import pytest

from edge.mysql.snapshot_rows import Catalogued
from edge.mysql.snapshot_table import _literal
from headrace.errors import NeedsOperator


def column(kind, charset=None):
    return Catalogued("k", kind, kind, "NO", 40, 9, 2, 0, charset, None)


@pytest.mark.parametrize(
    ("kind", "charset", "value", "literal"),
    [
        ("bigint", None, 18446744073709551615, "18446744073709551615"),
        ("double", None, 1.5, "1.5e0"),
        ("double", None, 1e300, "1e+300"),
        ("float", None, 0.1, "0.10000000149011612e0"),
        ("float", None, 7, "7.0e0"),
        ("decimal", None, "-1.50", "-1.50"),
        ("varchar", "utf8mb4", "'; --", "_utf8mb4 x'273b202d2d'"),
        ("varchar", "latin1", "ü€", "_latin1 x'fc80'"),
        ("varbinary", None, "AP8=", "x'00ff'"),
        ("enum", "latin1", "mañana", "_utf8mb4 x'6d61c3b1616e61'"),
        ("bit", None, "00101", "b'00101'"),
        ("timestamp", None, "2026-01-31T09:15:00.25Z", "'2026-01-31 09:15:00.25'"),
        ("uuid", None, "00000000-0000-0000-0000-0000000000ff", "'00000000-0000-0000-0000-0000000000ff'"),
    ],
)
def test_a_value_is_a_literal_of_its_column(kind, charset, value, literal):
    assert _literal(column(kind, charset), value, "d.t") == literal


@pytest.mark.parametrize(
    ("kind", "charset", "value"),
    [
        ("int", None, "7"), ("int", None, True), ("int", None, 7.5), ("decimal", None, "1 or 1"), ("bit", None, "1'"),
        ("date", None, "'; --"), ("varbinary", None, "?"), ("varchar", "latin1", "日"), ("varchar", "utf8mb4", None),
        ("float", None, 1e300), ("json", None, "{}"),
    ],
)  # fmt: skip
def test_what_no_key_holds_is_refused_without_showing_it(kind, charset, value):
    with pytest.raises(NeedsOperator, match=r"the rows of d\.t: a value cannot be one of 'k'"):
        _literal(column(kind, charset), value, "d.t")
