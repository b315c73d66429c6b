"""Which rows a truncate concerns, as the SQL that loads and live rows share."""

from spark_jobs.silver import profiles
from spark_jobs.silver.profiles import Truncate, first_truncates, last_truncates

CLEARED = [Truncate(source=s, position=p, at=1) for s, p in (("b", "5"), ("a", "4"), ("b", "3"))]


def test_first_and_last_truncate_of_each_source():
    assert sorted((each.source, each.position) for each in first_truncates(CLEARED)) == [("a", "4"), ("b", "3")]
    assert last_truncates(CLEARED) == {"a": "4", "b": "5"}


def test_rows_before_the_last_truncate_of_their_source_are_removed():
    assert profiles.where_removed(CLEARED, "t.") == (
        "(t._source = 'a' AND t._position < '4') OR (t._source = 'b' AND t._position < '5')"
    )
    assert profiles.where_removed([]) == "false"


def test_a_row_ends_by_the_first_truncate_of_its_source():
    one = [Truncate(source="it's", position="4", at=7)]

    assert profiles.where_ended(one, "_deleted_at IS NULL", "_position") == (
        "(_deleted_at IS NULL AND _source = 'it\\'s' AND _position < '4')"
    )
    assert profiles.ending_position(one) == "CASE _source WHEN 'it\\'s' THEN '4' END"
    assert profiles.ending_time(CLEARED, "t.") == (
        "CASE t._source WHEN 'b' THEN timestamp_micros(1L) WHEN 'a' THEN timestamp_micros(1L) END"
    )
