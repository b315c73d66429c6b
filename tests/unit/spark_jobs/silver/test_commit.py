"""Which tables a load may go on with, and which a replay builds again."""

import pytest

from headrace.errors import NeedsOperator, Retryable
from spark_jobs.silver import commit
from spark_jobs.silver.commit import Base

J = "jakarta/bank"


def base(**more):
    own = {"path": "/t", "name": "public.t", "stream": "bank", "kind": "silver"}
    return Base(**own, **{"exists": True, "positions": {J: "5"}, "version": 9, "number": 3, "current": 9} | more)


def test_table_that_somebody_else_changed_stops_a_load_and_no_step_of_a_replay():
    foreign = base(foreign=(8, "RESTORE"))
    with pytest.raises(NeedsOperator, match=r"public\.t: version 8 .* somebody else \(RESTORE\)") as stopped:
        commit.check_own(foreign)
    assert "headrace lake replay" in stopped.value.hint
    commit.check_own(base())


def test_table_that_another_load_brought_further_is_tried_again():
    with pytest.raises(Retryable):
        commit.check_order(base(), {J: "4"})
    commit.check_order(base(), {J: "5"})


def test_after_its_own_commit_a_load_goes_on_from_there():
    after = base(foreign=(8, "RESTORE")).after(12, {J: "7"})
    assert after == base(positions={J: "7"}, version=12, number=4, current=12)
