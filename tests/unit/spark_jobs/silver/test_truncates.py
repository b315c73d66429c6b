"""Which rows a truncate concerns, as the SQL that loads and live rows share."""

from spark_jobs.silver import truncates
from spark_jobs.silver.truncates import Truncate, first_of_each, last_of_each

CLEARED = [Truncate(source=s, position=p, at=1) for s, p in (("b", "5"), ("a", "4"), ("b", "3"))]


def test_first_and_last_truncate_of_each_source():
    assert sorted((each.source, each.position) for each in first_of_each(CLEARED)) == [("a", "4"), ("b", "3")]
    assert last_of_each(CLEARED) == {"a": "4", "b": "5"}


def test_rows_before_the_last_truncate_of_their_source_are_removed():
    assert truncates.where_removed(CLEARED, "t.") == (
        "(t._source = 'a' AND t._position < '4') OR (t._source = 'b' AND t._position < '5')"
    )
    assert truncates.where_removed([]) == "false"


def test_a_row_ends_by_the_first_truncate_of_its_source():
    one = [Truncate(source="it's", position="4", at=7)]

    assert truncates.where_ended(one, "_deleted_at IS NULL", "_position") == (
        "(_deleted_at IS NULL AND _source = 'it\\'s' AND _position < '4')"
    )
    assert truncates.ending_position(one) == "CASE _source WHEN 'it\\'s' THEN '4' END"
    assert truncates.ending_time(CLEARED, "t.") == (
        "CASE t._source WHEN 'b' THEN timestamp_micros(1L) WHEN 'a' THEN timestamp_micros(1L) END"
    )
