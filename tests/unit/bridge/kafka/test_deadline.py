"""A call that never returns holds nobody up."""

import gc
import threading
import weakref

import pytest

from bridge.kafka.deadline import Errands
from headrace.errors import NotConnected
from tests.waiting import eventually


@pytest.fixture
def errands():
    made = Errands()
    yield made
    made.end()


def test_answer_and_error_come_through(errands):
    assert errands.within(5, "add", lambda one, two: one + two, 1, 2) == 3
    with pytest.raises(TimeoutError, match="its own"):
        errands.within(5, "fail", _fail)


def _fail():
    raise TimeoutError("its own")


def test_call_that_never_returns_is_left_behind(errands):
    released = threading.Event()
    with pytest.raises(NotConnected, match="commit jakarta/bank"):
        errands.within(0.05, "commit jakarta/bank", released.wait)
    # The next one is made by another thread.
    assert errands.within(5, "go on", lambda: 1) == 1
    released.set()


def test_calls_share_one_thread_which_ends_when_nobody_needs_it_any_more(errands):
    first, second = (errands.within(5, "who", threading.current_thread) for _ in range(2))
    assert first is second
    errands.end()
    eventually(lambda: not first.is_alive(), 5)

    forgotten = Errands()
    third = forgotten.within(5, "who", threading.current_thread)
    del forgotten
    gc.collect()
    eventually(lambda: not third.is_alive(), 5)


class _Thing:
    def use(self):
        return 1


def test_what_was_called_lives_no_longer_for_it(errands):
    thing = _Thing()
    known = weakref.ref(thing)
    errands.within(5, "use", thing.use)
    del thing
    eventually(lambda: known() is None, 5)
