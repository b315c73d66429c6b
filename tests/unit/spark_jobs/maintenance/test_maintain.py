"""Which records of bronze are needed, whatever their age."""

from dataclasses import replace

import pytest

from headrace.errors import NeedsOperator
from spark_jobs.maintenance.maintain import removable_positions
from spark_jobs.state import published
from spark_jobs.state.published import Published, Table
from spark_jobs.state.published_rows import Unfinished


def test_records_are_needed_from_the_positions_of_the_table_that_is_the_furthest_behind():
    state = Published(
        stream="bank",
        positions={"a": "9", "b": "5"},
        tables={
            "current": Table(table="current", positions={"a": "9", "b": "5"}),
            "stopped": Table(table="stopped", positions={"a": "4", "b": "5"}, problem="why"),
        },
    )
    assert removable_positions(state) == {"a": "4", "b": "5"}
    # of a source that is held some came late, and is before its position
    held = {"b": Unfinished(after=1, changes=1, upto="9", problem="why")}
    assert removable_positions(replace(state, unfinished=held)) == {"a": "4"}
    # of a table that stopped in the first load nothing is known: it may need all
    first = Published(stream="bank", positions={"a": "9"}, tables={"one": Table(table="one", problem="why")})
    assert removable_positions(first) == {"a": ""}


def test_what_needs_removed_records_is_refused_with_where_bronze_begins():
    published.refuse_removed({"a": "4"}, {"a": "4"}, "it")
    with pytest.raises(NeedsOperator, match=r"it has those of b after 5$"):
        published.refuse_removed({"a": "4"}, {"a": "4", "b": "5"}, "it")
