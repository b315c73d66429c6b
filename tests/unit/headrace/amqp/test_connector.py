"""One connection after another: which address is next, when it pauses, and what ends it."""

import threading

import pytest

from headrace.amqp import connection
from headrace.errors import ConfigurationError, NeedsOperator, NotConnected


class Connection:
    """Ends at once, as it was made to."""

    def __init__(self, url, problem, *, worked=False):
        self.url, self._problem, self.worked = url, problem, worked

    def run(self, _stopping):
        return self._problem

    def close(self):
        pass


class Pauses:
    """A back-off that counts instead of pausing."""

    made = []

    def __init__(self, **_options):
        self.log = []
        Pauses.made.append(self)

    def pause(self):
        self.log.append("pause")
        return 0.0

    def reset(self):
        self.log.append("reset")


@pytest.fixture
def run(monkeypatch):
    """Return what runs a connector over connections made in turn, the last of which is closed on request."""
    monkeypatch.setattr(connection, "Backoff", Pauses)
    monkeypatch.setattr(connection, "_NEXT_SECONDS", 0.0)

    def start(urls, steps, **options):
        seen, failures, over = [], [], threading.Event()
        left = iter(steps)

        def make(url):
            seen.append(url)
            step = next(left, None)
            if isinstance(step, Exception) and not isinstance(step, NotConnected | NeedsOperator):
                raise step
            if isinstance(step, ConfigurationError):
                raise step
            if step is None:
                over.set()
                made._stopping.set()
            return step if isinstance(step, Connection) else Connection(url, step)

        def failed(error):
            failures.append(error)
            over.set()

        made = connection.Connector(urls, make, failed, name="test", **options)
        made.start()
        assert over.wait(60)
        made.stop(60)
        return seen, failures

    return start


def test_addresses_take_turns_and_it_pauses_after_each_round(run):
    lost = NotConnected("lost")
    seen, failures = run(["a", "b"], [lost, lost, lost, lost])

    assert seen == ["a", "b", "a", "b", "a"]
    assert failures == []
    assert Pauses.made[-1].log == ["pause", "pause"]


def test_a_connection_that_worked_begins_the_rounds_again(run):
    lost = NotConnected("lost")
    run(["a", "b"], [lost, Connection("b", lost, worked=True), lost])

    # Without it, the second failure would have ended a round.
    assert Pauses.made[-1].log == ["reset", "pause"]


@pytest.mark.parametrize("tolerant", [False, True])
def test_what_an_operator_has_to_fix_ends_it_unless_it_is_tolerant(run, tolerant):
    refused = NeedsOperator("refused")
    seen, failures = run(["a"], [refused], tolerant=tolerant)

    assert failures == ([] if tolerant else [refused])
    assert seen == (["a", "a"] if tolerant else ["a"])


def test_files_that_cannot_be_used_end_it_before_a_connection_has_worked_and_not_afterwards(run):
    wrong = ConfigurationError("wrong key")
    assert run(["a"], [wrong])[1] == [wrong]
    assert run(["a"], [Connection("a", NotConnected("lost"), worked=True), wrong])[1] == []


def test_what_nobody_expected_ends_it(run):
    broken = RuntimeError("broken")
    assert run(["a"], [broken])[1] == [broken]
