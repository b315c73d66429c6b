"""Which tables a load may go on with, and which a replay builds again."""

import pytest

from headrace.errors import NeedsOperator, Retryable
from spark_jobs.silver import commit
from spark_jobs.silver.commit import Base

J = "jakarta/bank"


def base(**more):
    return Base(exists=True, positions={J: "5"}, version=9, number=3, current=9, **more)


def test_table_that_somebody_else_changed_stops_a_load_and_no_step_of_a_replay():
    foreign = base(foreign=(8, "RESTORE"))
    with pytest.raises(NeedsOperator, match=r"public\.t: version 8 .* somebody else \(RESTORE\)") as stopped:
        commit.check_own(foreign, "public.t")
    assert "headrace lake replay" in stopped.value.hint
    commit.check_own(base(), "public.t")
    # A replay of a table whose key changed replaces its rows, and then changes them.
    for how in ("replace", "change"):
        commit.check_unmoved(foreign, {J: "5"}, {J: "5"}, "public.t", how)


def test_table_that_another_load_made_or_brought_further_is_tried_again():
    with pytest.raises(Retryable):
        commit.check_unmoved(base(), {J: "5"}, {J: "9"}, "public.t", "create")
    with pytest.raises(Retryable):
        commit.check_unmoved(base(), {J: "4"}, {J: "9"}, "public.t", "change")
