"""Marks of copies: what is under way, and what a table waits for (L34)."""

from headrace.schema import COPY_BEGINS, COPY_ENDS
from spark_jobs.silver import held_back
from spark_jobs.silver.schema_versions import SchemaRecord
from spark_jobs.state.published import Table

J, L = "jakarta/bank", "london/bank"


def mark(source, position, kind):
    return SchemaRecord(source=source, table="public.t", position=position, value="", schema=None, mark=kind)


def test_a_copy_is_under_way_from_its_first_mark_to_its_end():
    began = [mark(J, "1", COPY_BEGINS), mark(L, "1", None), mark(J, "3", COPY_BEGINS)]
    assert held_back.find_copying({}, began) == {J: "1"}
    assert held_back.find_copying({}, [*began, mark(J, "4", COPY_ENDS)]) == {}
    assert held_back.find_copying({J: "1"}, [mark(J, "4", COPY_ENDS), mark(J, "5", COPY_BEGINS)]) == {J: "5"}
    assert held_back.find_copying({J: "1"}, [mark(L, "4", COPY_ENDS)]) == {J: "1"}


def test_what_ended_is_what_was_under_way():
    assert held_back.has_copy_ended({J: "1"}, [mark(J, "4", COPY_ENDS)])
    assert not held_back.has_copy_ended({J: "1"}, [mark(L, "4", COPY_ENDS), mark(J, "5", COPY_BEGINS)])


def test_a_table_that_is_copied_goes_with_its_stream_but_for_that_source():
    table = Table(table="public.t", copying={J: "3"}, positions={J: "3", L: "7"})
    assert held_back.waits_for_sources(table, {J: "9", L: "7"})
    assert held_back.waiting_positions(table, {J: "9", L: "8"}) == {J: "3", L: "8"}
    assert not held_back.waits_for_sources(Table(table="public.t", positions={J: "3"}), {J: "9"})
