"""What an alteration did to the rows that were there, found by comparing two descriptions of a table (L7, T14)."""

import pytest

from edge.records.alterations import Catalog, KnownColumn, alterations


@pytest.mark.parametrize(
    ("old", "new", "reasons"),
    [
        (("numeric", 10, 2), ("numeric", 12, 2), []),
        (("numeric", 10, 2), ("numeric", 10, 1), ["the type of column c was changed"]),
        (("numeric", None, None), ("numeric", 10, 2), ["the type of column c was changed"]),
        (("numeric", 10, 2), ("numeric", None, None), []),
        (("varchar", 10, None), ("varchar", 20, None), []),
        (("varchar", 20, None), ("varchar", 10, None), ["the type of column c was changed"]),
        (("varchar", 20, None), ("text", None, None), []),
        (("bit", 4, None), ("bit", 8, None), ["the type of column c was changed"]),
        (("float4", None, None), ("float8", None, None), []),
        (("int8", None, None), ("int4", None, None), ["the type of column c was changed"]),
        (("timestamp", None, None), ("timestamptz", None, None), ["the type of column c was changed"]),
    ],
)
def test_types_whose_values_stay_need_no_copy(old, new, reasons):
    before, after = (KnownColumn("c", *given, number=1) for given in (old, new))
    assert alterations([before], [after], Catalog({"c": 1}, {"c": False}), types=True) == reasons


def test_a_type_that_was_renamed_is_the_same_type():
    """G14: the end of the usual swap of an enum, which had the table copied for nothing."""
    old, new = (KnownColumn("c", name, number=1, type_number=16_500) for name in ("status_new", "status"))
    assert alterations([old], [new], Catalog({"c": 1}, {"c": False}), types=True) == []
    another = KnownColumn("c", "status", number=1, type_number=16_600)
    assert alterations([old], [another], Catalog({"c": 1}, {"c": False}), types=True) == [
        "the type of column c was changed"
    ]


OLD = [KnownColumn("a", "text", number=1), KnownColumn("c", "text", number=3)]


@pytest.mark.parametrize(
    ("column", "newest", "filled", "reasons"),
    [
        (KnownColumn("d", "text", number=4), 3, False, []),
        # The database had it already: it may have been outside the publication's column list.
        (KnownColumn("b", "text", number=2), 3, False, None),
        (KnownColumn("d", "text", number=4), 4, False, None),
        (KnownColumn("d", "text", number=4), 4, True, ["column d was added with a default"]),
        (KnownColumn("d", "text", number=4), 0, False, None),
        (KnownColumn("hidden", "text", number=4), 4, False, ["column hidden was left out before"]),
        (KnownColumn("hidden", "text"), 0, False, ["column hidden was left out before"]),
    ],
)
def test_a_column_that_records_did_not_have_is_not_taken_for_one_without_values(column, newest, filled, reasons):
    now = Catalog({}, {column.name: filled})
    new = [*OLD, column]

    assert alterations(OLD, new, now, types=True, newest=newest, left_out=["hidden"]) == reasons


def test_a_type_that_is_no_reason_leaves_open_whether_rows_changed():
    new = [KnownColumn("a", "text"), KnownColumn("c", "int")]
    assert alterations(OLD, new, Catalog({}, {"a": False, "c": False}), types=False) is None


def test_a_column_that_was_dropped_and_added_again_has_other_values():
    new = [KnownColumn("a", "text", number=1), KnownColumn("c", "text", number=4)]
    reasons = alterations(OLD, new, Catalog({"a": 1, "c": 4}, {"a": False, "c": False}), types=True, newest=3)
    assert reasons == ["column c was dropped and added again"]


def test_columns_that_swap_their_names_are_renamed():
    old = [KnownColumn("a", "text", number=1), KnownColumn("b", "text", number=2)]
    new = [KnownColumn("b", "text", number=1), KnownColumn("a", "text", number=2)]
    reasons = alterations(old, new, Catalog({"b": 1, "a": 2}, {"a": False, "b": False}), types=True)
    assert reasons == ["column a was renamed to b", "column b was renamed to a"]


@pytest.mark.parametrize(
    ("old", "new", "is_reason"),
    [
        (("DECIMAL", 10, 4), ("DECIMAL", 10, 2), True),
        (("DECIMAL", 10, 2), ("DECIMAL", 12, 4), False),
        (("DECIMAL", 10, 2), ("INT",), True),
        (("DATETIME", 6), ("DATETIME", 0), True),
        (("TIME", 0), ("TIME", 3), False),
        (("DATETIME", 6), ("TIMESTAMP", 0), True),
        (("TIMESTAMP", 0), ("DATETIME", 0), True),
        (("DATETIME", 0), ("DATE",), True),
        (("DOUBLE",), ("FLOAT",), True),
        (("VARCHAR", 9), ("INT",), True),
        (("VARCHAR", 9), ("CHAR", 9), True),
        (("CHAR", 9), ("LONGTEXT",), False),
        (("INT",), ("BIGINT UNSIGNED",), False),
        (("ENUM",), ("VARCHAR", 9), False),
        (("VARCHAR", 9), ("ENUM",), True),
    ],
)
def test_a_type_of_mysql_that_rounds_values_is_a_reason(old, new, is_reason):
    """M9: `MODIFY` to a smaller scale or fraction rounds in strict mode too, and was not noticed."""
    catalog = Catalog({}, {"c": False})
    reasons = alterations([KnownColumn("c", *old)], [KnownColumn("c", *new)], catalog, types=False)
    assert reasons == (["the type of column c was changed"] if is_reason else None)
