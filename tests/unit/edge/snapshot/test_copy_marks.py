"""Marks of a whole table's copy: consumers that wait for its end get it, whatever becomes of the copy (L34)."""

import pytest

from edge.snapshot.plan import Plan
from headrace.schema import COPY_BEGINS, COPY_ENDS
from tests.unit.edge.snapshot.test_coordinator import Run

READS = 10


class Quiet(Run):
    """A copy of ten rows in four chunks, while nobody writes."""

    def __init__(self, number=1, *, crashes=False):
        super().__init__(number, crashes=crashes)
        self.quiet, self.now = not crashes, 0

    def until(self, condition):
        """Let everything go on until something is so."""
        for _ in range(100):
            self.now += 1
            self.edge.copying.run_due(float(self.now))
            self.edge.work()
            while self.edge.decoded < len(self.database.log):
                self.edge.decode()
            self.edge.acknowledged = max(self.edge.acknowledged, self.edge.decoded)
            if condition():
                return
        raise AssertionError(f"it does not come to that: {self.plan}, {self.consumer.of_copy()}")

    def restart(self):
        self.begin(self.edge.acknowledged, self.edge.acknowledged)

    def is_ended(self):
        return not self.folder.plan().tables[0].marks_open

    def cancel(self):
        self.edge.control.plan.cancel([], 1)
        self.edge.control.save()


def begun():
    """Return a copy of which a part is acknowledged."""
    run = Quiet()
    run.until(lambda: run.plan.chunks == 2)
    assert run.folder.plan().tables[0].marks_open
    return run


def test_a_mark_is_ahead_of_the_first_row_and_one_behind_the_last():
    run = Quiet()
    run.until(lambda: run.plan.state == "done")

    assert run.consumer.of_copy() == [COPY_BEGINS, *["read"] * READS, COPY_ENDS]
    assert run.plan.chunks == 4


def test_a_copy_that_goes_on_in_another_session_has_the_beginning_once():
    run = begun()
    run.restart()
    run.until(lambda: run.plan.state == "done")

    kinds = run.consumer.of_copy()
    assert (kinds[0], kinds[-1], len(set(kinds))) == (COPY_BEGINS, COPY_ENDS, 3)
    assert [kinds.count(mark) for mark in (COPY_BEGINS, COPY_ENDS)] == [1, 1]


def test_an_empty_table_has_both_marks():
    run = Quiet()
    run.database.now.clear()
    run.database.states = [{}]
    run.until(lambda: run.plan.state == "done")

    assert run.consumer.of_copy() == [COPY_BEGINS, COPY_ENDS]


def test_chunks_of_which_the_stream_has_every_row_already_are_followed_by_the_end():
    class Busy(Quiet):
        def meanwhile(self):
            for key in range(READS):
                self.database.write("update", key, 0, whole=True, hidden=False)

    run = Busy()
    run.until(lambda: run.plan.state == "done")

    assert run.consumer.of_copy() == [COPY_BEGINS, COPY_ENDS]


def test_a_part_of_a_table_has_no_marks():
    run = Quiet()
    run.folder.save(Plan(source="a/b", epoch=1))
    run.begin(0, 0)
    run.edge.control.plan.add_all(["public.t"], where="x", replace=False, now_ms=1)
    run.until(lambda: run.plan.state == "done")

    assert run.consumer.of_copy() == ["read"] * READS


def test_a_copy_that_a_former_release_began_is_not_marked():
    run = begun()
    plan = run.folder.plan()
    plan.tables[0].marks_open = False
    run.folder.save(plan)
    before = len(run.consumer.of_copy())
    run.restart()
    run.until(lambda: run.plan.state == "done")

    assert set(run.consumer.of_copy()[before:]) == {"read"}


@pytest.mark.parametrize("how", ["cancelled", "failed"])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("paused", [False, True])
def test_the_end_of_a_copy_that_was_given_up_is_marked_by_this_session_or_the_next(how, restarts, paused):
    run = begun()
    if how == "cancelled":
        run.cancel()
    else:
        run.edge.refuse = True
        run.until(lambda: run.plan.state == "failed")
    run.edge.control.plan.paused = paused
    run.edge.control.save()
    run.edge.refuse = False
    if how == "failed" or restarts:
        run.restart()
    run.until(run.is_ended)

    assert run.plan.state == how
    kinds = run.consumer.of_copy()
    assert (kinds[0], kinds[-1]) == (COPY_BEGINS, COPY_ENDS)
    assert kinds.count(COPY_ENDS) == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_the_end_of_a_copy_is_marked_although_the_table_is_gone(restarts):
    """L34: consumers would wait for the rest of it for ever."""
    run = begun()
    run.database.is_dropped = True
    if restarts:
        run.restart()
    else:
        run.cancel()
    run.until(run.is_ended)

    assert run.plan.state == ("failed" if restarts else "cancelled")
    assert run.consumer.of_copy()[-1] == COPY_ENDS


def test_of_a_table_that_is_gone_and_whose_schema_is_not_noted_the_session_gives_up_and_the_next_one_tries_again():
    run = begun()
    run.edge.control.plan.tables[0].marked_schema = None
    run.edge.refuse = True
    run.cancel()
    run.until(lambda: not run.edge.jobs and run.now > 50)
    run.edge.control.plan.add_all(["public.other"], where=None, replace=False, now_ms=1)
    run.edge.refuse = False
    run.until(lambda: run.edge.control.plan.tables[1].state == "done")
    assert not run.is_ended()

    run.restart()
    run.until(run.is_ended)


def begun_without_a_key(until):
    """Return a copy of a table without a key, which is emptied when something is so."""
    run = Quiet()
    run.database.is_keyless = True
    run.until(lambda: until(run))
    run.database.write("truncate", 0, 0, whole=True, hidden=False)
    return run


def test_a_copy_without_a_key_that_is_emptied_when_all_of_it_is_read_does_not_begin_again():
    """Q3: the truncate is behind all of its rows."""
    run = begun_without_a_key(lambda run: run.consumer.of_copy().count("read") == READS)
    run.until(lambda: run.plan.state == "done")

    assert run.consumer.of_copy() == [COPY_BEGINS, *["read"] * READS, COPY_ENDS]
    assert run.consumer.rows() == run.database.now == {}


def test_one_that_is_emptied_before_that_begins_again():
    run = begun_without_a_key(lambda run: 0 < run.consumer.of_copy().count("read") < READS)
    run.until(lambda: run.plan.state == "done")

    kinds = run.consumer.of_copy()
    assert (kinds.count(COPY_BEGINS), kinds[-2:]) == (2, [COPY_BEGINS, COPY_ENDS])
    assert run.consumer.rows() == run.database.now == {}


def test_one_that_was_cancelled_stays_so_where_its_table_is_emptied():
    class Emptied(Quiet):
        def meanwhile(self):
            super().meanwhile()
            if self.plan.state == "cancelled":
                for kind in ("truncate", "insert"):
                    self.database.write(kind, 0, 0, whole=True, hidden=False)

    run = Emptied()
    run.database.is_keyless = True
    run.until(lambda: run.plan.chunks == 2)
    run.cancel()
    run.until(run.is_ended)

    assert run.plan.state == "cancelled"
    assert run.consumer.of_copy()[-1] == COPY_ENDS


@pytest.mark.parametrize("where", [None, "x"])
def test_the_next_copy_of_the_table_ends_what_a_former_one_left_open(where):
    run = begun()
    run.restart()
    plan = run.edge.control.plan
    plan.cancel([], 1)
    plan.add_all(["public.t"], where=where, replace=False, now_ms=1)
    assert [(it.state, it.marks_open) for it in plan.tables] == [("waiting", True)]
    run.until(lambda: run.plan.state == "done")

    assert run.consumer.of_copy()[-1] == COPY_ENDS
    assert run.is_ended()


def test_whatever_happens_a_cancelled_copy_is_ended():
    for number in range(500):
        run = Quiet(number, crashes=True)
        for now in range(run.chance.randrange(40)):
            run.step(float(now))
        run.cancel()
        for now in range(100, 100 + run.chance.randrange(20)):
            run.step(float(now))
        run.quiet, run.now, run.edge.fail_next = True, 1_000_000, False
        run.until(run.is_ended)

        kinds = run.consumer.of_copy()
        assert not kinds or kinds[-1] == COPY_ENDS, f"run {number}"
        assert run.plan.state in {"cancelled", "done"}, f"run {number}"
