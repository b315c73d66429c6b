"""The texts by which MariaDB's values and silver's are compared, where they are not plainly the same."""

import pytest

from headrace.verify.canonical import SilverType, SourceType
from headrace.verify.mysql import canonical


def compared(kind, silver, **more):
    return canonical.column("v", SourceType(name=kind, **more), SilverType(name=silver))


@pytest.mark.parametrize(
    ("kind", "silver"),
    [("varchar", "integer"), ("bigint", "integer"), ("blob", "string"), ("double", "float"), ("vector", "string")],
)
def test_types_that_cannot_hold_the_same_values_are_not_compared(kind, silver):
    assert compared(kind, silver) is None


def test_a_decimal_has_as_many_digits_as_the_wider_side():
    kind = SourceType(name="decimal", scale=2)
    column = canonical.column("v", kind, SilverType(name="decimal", scale=4))
    assert (column.source, column.silver) == ("concat(concat(`v` + 0), '00')", "cast(`v` as string)")
    whole = canonical.column("v", SourceType(name="bigint unsigned"), SilverType(name="decimal", scale=2))
    assert whole.source == "concat(concat(`v` + 0), '.00')"


def test_what_can_be_large_is_told_by_its_hash():
    assert compared("longtext", "string").source == "sha2(convert(`v` using utf8mb4), 256)"
    assert compared("longblob", "binary").silver == "sha2(`v`, 256)"
    assert compared("varbinary", "binary").source == "lower(hex(`v`))"


def test_bits_are_as_many_as_the_column_has():
    assert compared("bit", "string", bits=10).source == "lpad(bin(`v`), 10, '0')"


def test_names_are_quoted():
    column = canonical.column("a`b", SourceType(name="int"), SilverType(name="integer"))
    assert (column.source, column.silver) == ("concat(`a``b` + 0)", "cast(`a``b` as string)")
