"""A call that never returns holds nobody up."""

import threading

import pytest

from bridge.patience import within
from headrace.errors import NotConnected


def test_answer_and_error_come_through():
    assert within(5, "add", lambda one, two: one + two, 1, 2) == 3
    with pytest.raises(TimeoutError, match="its own"):
        within(5, "fail", _fail)


def _fail():
    raise TimeoutError("its own")


def test_call_that_never_returns_is_left_behind():
    released = threading.Event()
    with pytest.raises(NotConnected, match="commit jakarta/bank"):
        within(0.05, "commit jakarta/bank", released.wait)
    released.set()
