"""Which tables are compared."""

from spark_jobs.verify import tables


def test_several_tables_are_compared_where_several_are_named():
    """T11: of `verify --table a --table b` only the last was compared."""
    known = {"public.a", "public.b", "other.b", "public.c"}
    assert tables.to_compare([], known, ["a", "other.b"]) == ["other.b", "public.a"]
    assert tables.to_compare([], known, ["b"]) == ["other.b", "public.b"]
    assert tables.to_compare([], known) == sorted(known)
