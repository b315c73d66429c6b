"""The signs of columns beside a YEAR, which has one in the logs of MariaDB and of MySQL from 8.0.2x on, and none before (N1)."""

import pytest

from edge.mysql import types
from edge.mysql.table_map import parse
from headrace.errors import NeedsOperator


def table_map(codes, signs):
    """Return the body of a table map event, from the table's id on, whose columns have these types and signs."""
    count = len(codes)
    return (
        bytes(8)
        + b"\x04bank\0\x01t\0"
        + bytes([count, *codes, 0])
        + bytes((count + 7) // 8)
        + bytes([1, len(signs)])
        + bytes(signs)
    )


def unsigned(codes, signs, year_has_sign):
    fields = parse(table_map(codes, signs), mariadb=False, year_has_sign=year_has_sign).fields
    return [field.unsigned for field in fields if field.type != types.YEAR]


LONG, YEAR = types.LONG, types.YEAR


@pytest.mark.parametrize(
    ("has_sign", "signs", "expected"),
    # id int, y year, a int unsigned, b int
    [(True, [0b0110_0000], [False, True, False]), (False, [0b0100_0000], [False, True, False])],
)
def test_n1_a_year_takes_no_sign_of_another_column(has_sign, signs, expected):
    """At MySQL 8.0.15 a column behind a YEAR had the sign of the one before it: 4294967295 became -1."""
    assert unsigned([LONG, YEAR, LONG, LONG], signs, has_sign) == expected


@pytest.mark.parametrize(
    ("codes", "signs", "expected"),
    [
        # Behind numbers a YEAR changes nothing.
        ([LONG, LONG, YEAR], [0b0100_0000], [False, True]),
        ([LONG, LONG, YEAR], [0b0110_0000], [False, True]),
        # A YEAR that is said to be signed has none; so it is with one bit more than there are columns.
        ([YEAR, LONG, LONG], [0b0100_0000], [False, True]),
        ([YEAR, LONG, LONG], [0b1010_0000], [False, True]),
        # Nor is a byte for eight columns the one for nine.
        ([YEAR, *[LONG] * 8], [0b1000_0000], [True] + [False] * 7),
        ([YEAR, *[LONG] * 8], [0b1100_0000, 0], [True] + [False] * 7),
    ],
)
def test_n1_where_it_is_not_known_the_log_itself_shows_it(codes, signs, expected):
    assert unsigned(codes, signs, None) == expected


def test_n1_where_it_is_not_known_and_the_log_shows_it_not_nothing_is_decoded():
    with pytest.raises(NeedsOperator, match=r"does not tell which columns behind a YEAR of table bank\.t have a sign"):
        unsigned([LONG, YEAR, LONG, LONG], [0b0100_0000], None)


@pytest.mark.parametrize("signs", [[], [0, 0], [0b0001_1111]])
def test_signs_of_other_columns_than_there_are_are_refused(signs):
    with pytest.raises(ValueError, match="signedness is stated"):
        unsigned([LONG, YEAR, LONG], signs, None)
