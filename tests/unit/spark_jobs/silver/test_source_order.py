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
    assert new.holding({J: "a topic", L: "a topic"}).beyond[J].problem == "x. Also, a topic"


def test_partitions_that_a_source_had_before_any_was_noted_were_applied():
    def group(partition, first, final, source=J):
        return {"source": source, "partition": partition, "changes": 1, "first": first, "final": final}

    groups = [group(0, "1", "3"), group(7, "4", "6"), group(7, "8", "9"), group(1, "1", "2", L)]
    assert source_order.fill_unnoted({J: {"7": "6"}}, groups, {J: "6", L: "3"}) == {J: {"7": "6", "0": "3"}}
    # But what came late in another one was not.
    late = [group(7, "4", "6"), group(8, "5", "5")]
    assert source_order.fill_unnoted({J: {"7": "6"}}, late, {J: "6"}) == {J: {"7": "6"}}
