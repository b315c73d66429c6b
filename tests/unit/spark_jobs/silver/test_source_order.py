"""A source whose order is not known stays where it is until a replay, whatever comes of it (plan_model.py has no partitions)."""

from dataclasses import replace

from spark_jobs.bronze.increment import Since
from spark_jobs.silver import batch_profile, held_back, source_order
from spark_jobs.silver.profiles import Beyond
from spark_jobs.state.published import Published, without_versions
from spark_jobs.state.published_rows import Unfinished

J, L = "jakarta/bank", "london/bank"
HELD = Unfinished(after=3, changes=1, upto="7", problem=source_order.PROBLEM)
STATE = Published(stream="bank", bronze_done=9, unfinished={J: HELD, L: Unfinished(after=5, changes=2, upto="8")})


def test_it_is_read_again_by_a_replay_alone():
    assert STATE.disordered == {J}
    assert held_back.unpublished_since(STATE) == Since(9, ((L, 5),))
    assert held_back.unpublished_since(STATE, {J}) == Since(9)


def test_what_comes_of_it_waits_with_it():
    nothing = batch_profile.nothing({J: "5", L: "8"})
    new = replace(nothing, beyond={J: Beyond(changes=4, upto="9", problem=source_order.PROBLEM)})
    assert held_back.unfinished_after(STATE, Since(9, ((L, 5),)), nothing)[J] == HELD
    # Also where all of bronze is read.
    for read in (Since(9, ((L, 5),)), None):
        left = held_back.unfinished_after(STATE, read, new)[J]
        assert (left.after, left.upto, left.problem) == (3, "9", source_order.PROBLEM)


def test_it_stays_so_where_bronze_is_another_one_and_whatever_else_holds_it():
    assert without_versions(STATE).unfinished == {J: Unfinished(after=-1, changes=1, upto="7", problem=HELD.problem)}
    new = replace(batch_profile.nothing({J: "5"}), beyond={J: Beyond(changes=1, upto="9", problem="x")})
    assert new.holding({J: "a topic", L: "a topic"}).beyond[J].problem == "x"


def test_of_a_partition_of_which_nothing_was_noted_what_is_published_was_applied():
    groups = [{"source": J, "partition": 0}, {"source": J, "partition": 7}, {"source": L, "partition": 1}]
    assert source_order.fill({J: {"0": "5"}}, groups, {J: "9", L: "3"}) == {J: {"0": "5", "7": "9"}}
