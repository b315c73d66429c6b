"""When bronze's permanent load begins a round: every so many seconds, when it is asked to, and never once it is ended."""

import threading
import time

import pytest

from spark_jobs.bronze import load
from spark_jobs.errors import Conflict
from tests.rules.waiting import eventually


class Rounds:
    """What a follower does in a round, here: nothing, as long as it may end."""

    def __init__(self):
        self.begun, self.failure, self.may_end = 0, None, threading.Event()
        self.may_end.set()

    def __call__(self):
        self.begun += 1
        assert self.may_end.wait(60)
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def rounds():
    return Rounds()


@pytest.fixture
def follow(monkeypatch, rounds):
    """Return a function that starts a follower with so many seconds between two rounds."""
    started = []
    monkeypatch.setattr(load, "for_appending", lambda spark, **_: spark)
    monkeypatch.setattr(load, "carry", lambda _spark: lambda: None)

    class Spark:
        sparkContext = property(lambda self: self)  # noqa: N815 - PySpark's name.

        def setLocalProperty(self, *_):  # noqa: N802 - as above.
            pass

    def start(every):
        follower = load.Follower(Spark(), None, "bank", every)
        follower._round = rounds
        follower.start()
        started.append(follower)
        eventually(lambda: rounds.begun, 20)
        return follower

    yield start
    rounds.may_end.set()
    for follower in started:
        follower.end()
        assert not follower.is_alive()


def test_a_round_is_begun_when_it_is_asked_for_and_waited_for(follow, rounds):
    follower = follow(3600)
    for wanted in (2, 3):
        follower.catch_up(60)
        assert rounds.begun == wanted


def test_one_that_runs_may_have_looked_before_so_another_one_is_waited_for(follow, rounds):
    rounds.may_end.clear()
    follower = follow(3600)
    asking = threading.Thread(target=follower.catch_up, args=(60,))
    asking.start()
    eventually(lambda: follower._is_wanted, 20)
    rounds.may_end.set()
    asking.join(60)
    assert rounds.begun == 2


def test_of_a_backlog_only_so_much_is_waited_for(follow, rounds):
    rounds.may_end.clear()
    follower = follow(3600)
    follower.catch_up(0.05)
    assert rounds.begun == 1


def test_what_stops_it_is_raised_at_once_to_who_asks(follow, rounds):
    follower = follow(3600)
    rounds.failure = ValueError("what no load can pass")
    for _ in range(2):
        with pytest.raises(ValueError, match="what no load can pass"):
            follower.catch_up(60)


def test_one_that_waits_for_its_next_round_ends_at_once(follow, rounds):
    follower = follow(3600)
    began = time.monotonic()
    follower.end()
    assert time.monotonic() - began < 60
    assert rounds.begun == 1


def test_a_round_that_another_load_was_ahead_of_is_done_again_at_once(follow):
    """The load of silver that waits for it would go without what came."""
    follower, loaded = follow(3600), []
    follower.prepare = lambda: "a new sink"

    def load_once(sink):
        loaded.append(sink)
        if len(loaded) == 1:
            raise Conflict("another load of the stream ran at the same time", hint="Run this one again.")

    follower._load, follower._sink = load_once, "the former sink"
    load.Follower._round(follower)
    assert loaded == ["the former sink", "a new sink"]


def test_rounds_follow_each_other_without_being_asked_for(follow, rounds):
    follow(0.01)
    eventually(lambda: rounds.begun > 3, 20)
