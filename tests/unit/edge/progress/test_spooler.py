"""Spooling: when it begins and ends, and what may be confirmed."""

import dataclasses
import time

from headrace.errors import NoSpace
from tests.unit.edge.delivery.test_window import START, batch, position
from tests.unit.edge.progress.spooling import SIZE, SOURCE


def idle(tail):
    """Return an empty batch."""
    properties = {"first": str(tail)}
    return dataclasses.replace(batch(1, confirm=0), properties=properties, follows=tail, last=tail, count=0, body=b"")


def test_nothing_is_spooled_while_batches_are_accepted_in_time(processes, tmp_path):
    edge = processes(after_seconds=60)
    edge.put(1, 2, 3)
    edge.spool_all()

    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.json"]
    assert edge.outbox.progress() == (START, 1)
    assert list(edge.send()) == [1, 2, 3]


def test_what_waits_too_long_is_confirmable_once_it_is_spooled_and_not_before(processes):
    edge = processes()
    edge.put(1, 2)
    assert edge.outbox.progress() == (START, 1)

    edge.spool_all()

    assert edge.outbox.progress() == (START, 200)
    edge.progress.save_now()
    assert edge.progress.confirmed == 200
    assert edge.state.read(SOURCE).promised == position(2)
    assert list(edge.send()) == [1, 2]


def test_full_window_with_acceptances_is_no_outage(processes):
    edge = processes(after_seconds=60)
    edge.put(*range(1, 9))
    assert edge.outbox.full
    edge.outbox.moved_at = time.monotonic()

    edge.spool_all()

    assert len(edge.spool) == 0
    assert edge.outbox.full


def test_full_window_without_acceptances_is_spooled_and_frees_memory(processes):
    edge = processes(after_seconds=60)
    edge.put(*range(1, 9))
    edge.outbox.moved_at -= 60
    for entry in edge.window._flight.entries:
        entry.put_at -= 10

    edge.spool_all()

    assert len(edge.spool) == 8
    assert not edge.outbox.full
    assert edge.window.bytes == 4 * SIZE


def test_memory_stays_bounded_however_much_is_spooled(processes):
    edge = processes()
    for number in range(1, 200):
        edge.put(number)
        edge.spool_all()
        assert edge.window.bytes <= 8 * SIZE
    assert edge.outbox.batches == 199
    assert edge.outbox.progress()[1] == 19900


def test_spooled_batches_are_sent_in_order_then_those_of_memory_and_then_the_file_is_gone(processes, tmp_path):
    edge = processes()
    for number in range(1, 41):
        edge.put(number)
        edge.spool_all()
    order = []
    added = 40
    while not edge.outbox.empty:
        for commit, delivery in edge.send().items():
            order.append(commit)
            edge.outbox.accepted(delivery)
        if added < 45:
            added += 1
            edge.put(added)
        edge.progress.save_now()
        edge.spool_all()

    assert order == list(range(1, 46))
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.json"]
    assert edge.state.read(SOURCE).spooled == ""


def test_idle_log_that_passes_is_confirmable_at_once_when_all_is_spooled(processes):
    edge = processes()
    edge.put(1)
    edge.spool_all()

    edge.note(950)

    assert edge.outbox.progress() == (START, 950)


def test_source_that_says_only_that_it_is_idle_writes_nothing_and_its_log_is_confirmable(processes, tmp_path):
    edge = processes()
    edge.outbox.put([idle(START)])
    edge.spool_all()

    edge.note(950)

    assert edge.outbox.progress() == (START, 950)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.json"]
    edge.put(1)
    edge.spool_all()
    edge.outbox.put([idle(position(1))])
    assert len(edge.spool) == 1
    edge.spool_all()
    assert edge.outbox.batches == 2


def test_full_spool_makes_capture_wait_is_reported_and_ends_when_there_is_space(processes, monkeypatch):
    edge = processes()
    refusal = NoSpace("the spool is full")

    def refuse(_batches):
        raise refusal

    with monkeypatch.context() as patched:
        patched.setattr(edge.spool, "append", refuse)
        edge.put(*range(1, 9))
        edge.spool_all()
    assert edge.outbox.full
    assert edge.figures.warned == {"spool": "the spool is full"}
    assert edge.outbox.progress() == (START, 1)
    assert list(edge.send()) == list(range(1, 9))

    edge.spooler._full_until = time.monotonic()
    edge.outbox.lost()
    edge.spool_all()

    assert not edge.outbox.full
    assert edge.figures.warned == {}


def test_batches_behind_a_full_spool_are_sent_from_memory_when_the_link_is_back(processes):
    edge = processes(megabytes=0)
    edge.window.spooling = True
    edge.put(1, 2)

    edge.spool_all()

    assert list(edge.send()) == [1, 2]


def test_a_full_spool_is_not_reported_any_more_once_everything_was_accepted_from_memory(processes, monkeypatch):
    # given a batch that the empty spool has no space for
    edge = processes()

    def refuse(_batches):
        raise NoSpace("the spool is full")

    with monkeypatch.context() as patched:
        patched.setattr(edge.spool, "append", refuse)
        edge.put(1)
        edge.spool_all()
    assert edge.figures.warned == {"spool": "the spool is full"}
    # when the link is back, and nothing has to be spooled
    for delivery in edge.send().values():
        edge.outbox.accepted(delivery)
    edge.progress.save_now()
    edge.spool_all()
    # then
    assert edge.outbox.empty
    assert edge.figures.warned == {}
