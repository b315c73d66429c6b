"""A wake-up is seen by a poll, once for all who notified, and costs nothing when it is closed."""

import os
import select

import pytest

from headrace.waiting import Wakeup


def is_readable(wakeup):
    poll = select.poll()
    poll.register(wakeup.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def test_it_is_readable_from_the_first_notify_until_clear():
    wakeup = Wakeup()
    assert not is_readable(wakeup)
    for _ in range(100_000):
        wakeup.notify()
    assert is_readable(wakeup)
    # A pipe's worth at most is there, whoever notified how often.
    wakeup.clear()
    assert not is_readable(wakeup)


def test_a_closed_one_has_no_descriptors_and_may_be_closed_again():
    wakeup = Wakeup()
    descriptor = wakeup.fileno()
    wakeup.close()
    wakeup.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
