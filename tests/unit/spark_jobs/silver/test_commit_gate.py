"""Commits of a load wait for each other, and for nobody who does not come (spark_jobs/silver/commit_gate.py)."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_jobs.silver import commit_gate
from spark_jobs.silver.commit_gate import CommitGate, before_commit

DONE = 20


class Transaction:
    """A transaction that waits ahead of its commit, as Delta's do while they are held."""

    def __init__(self):
        self._prepared, self._released = threading.Event(), threading.Event()

    def ready(self):
        return self._prepared.is_set()

    def release(self):
        self._released.set()

    def end(self):
        pass

    def commit(self):
        self._prepared.set()
        assert self._released.wait(DONE), "released"


@pytest.fixture
def commit(monkeypatch):
    """Return a function that commits as a table's write does, and the held transactions of all threads."""
    of_thread = threading.local()

    def held(_spark):
        of_thread.held = Transaction()
        return of_thread.held

    monkeypatch.setattr(commit_gate, "_can_hold", lambda: True)
    monkeypatch.setattr(commit_gate, "_held", held)

    def do():
        of_thread.held = None
        with before_commit(None):
            if of_thread.held is not None:
                of_thread.held.commit()

    return do


def test_all_are_written_before_the_first_commits_however_few_work_at_a_time(commit):
    names, events = ["a", "b", "c"], []

    def table(name):
        with gate.participant(name):
            events.append("written")
            commit()
            events.append("committed")

    with CommitGate(names, 1) as gate, ThreadPoolExecutor(3) as pool:
        list(pool.map(table, names))
    assert events == ["written"] * 3 + ["committed"] * 3
    assert gate.opened_at is not None


def test_one_that_fails_or_never_comes_holds_up_nobody(commit):
    def fails():
        with gate.participant("fails"):
            raise ValueError("no such table")

    def table(name):
        with gate.participant(name):
            commit()
            # A further commit of the same thread does not wait again.
            commit()

    with CommitGate(["a", "b", "fails", "absent"], 2) as gate, ThreadPoolExecutor(3) as pool:
        others = [pool.submit(table, name) for name in ("a", "b")]
        with pytest.raises(ValueError, match="no such table"):
            pool.submit(fails).result(DONE)
        assert not any(one.done() for one in others)
        gate.absent("absent")
        for one in others:
            one.result(DONE)


def test_what_takes_part_in_no_load_and_a_single_table_wait_for_nobody(commit):
    commit()
    with CommitGate(["a"], 1) as gate, gate.participant("a"):
        commit()
    # and one that comes again after the gate opened, since its first attempt failed
    with CommitGate(["a", "b"], 1) as gate, ThreadPoolExecutor(1) as pool:
        gate.absent("b")

        def table():
            for _ in range(2):
                with gate.participant("a"):
                    commit()

        pool.submit(table).result(DONE)
