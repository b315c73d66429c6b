"""A spool and the process that comes after: what is sent from it, what is read again, and what is not there any more."""

import threading

import pytest

from headrace.errors import NeedsOperator
from tests.unit.edge.delivery.test_window import START, position
from tests.unit.edge.progress.spooling import SOURCE


def test_restarted_edge_sends_the_spool_first_and_reads_on_behind_it(processes):
    edge = processes()
    edge.put(1, 2, 3)
    edge.spool_all()
    edge.progress.save_now()

    edge = processes()

    assert edge.progress.checkpoint.confirmed == 300
    assert edge.outbox.tail == position(3)
    edge.put(4)
    edge.spool_all()
    assert list(edge.send()) == [1, 2, 3, 4]


def test_edge_killed_before_the_checkpoint_was_written_reads_again_what_was_spooled_since(processes):
    edge = processes()
    edge.put(1, confirm=2)
    edge.spool_all()
    edge.progress.save_now()
    edge.put(2)
    edge.spool_all()

    edge = processes()

    assert (edge.outbox.tail, edge.progress.checkpoint.confirmed) == (position(1), 2)
    edge.put(2)
    edge.spool_all()
    assert list(edge.send()) == [1, 2]


def test_new_session_keeps_the_spool_and_drops_what_is_read_again(processes):
    edge = processes()
    edge.put(1, 2)
    edge.spool_all()
    edge.put(3)
    edge.put(4, confirm=0)

    tail = edge.start()

    assert (tail, edge.progress.checkpoint.confirmed) == (position(2), 200)
    edge.put(3)
    edge.spool_all()
    assert list(edge.send()) == [1, 2, 3]


def test_nothing_is_spooled_while_the_capturing_thread_goes_back(processes):
    edge = processes()
    edge.put(1, 2)
    rewind, steps = edge.outbox.rewind_spool, []

    def meanwhile(place):
        row = rewind(place)
        steps.append(threading.Thread(target=edge.spooler.step))
        steps[0].start()
        steps[0].join(0.2)
        return row

    edge.outbox.rewind_spool = meanwhile
    edge.start()
    steps[0].join()
    edge.put(1, 2)
    edge.spool_all()

    assert len(edge.spool) == 2
    assert list(edge.send()) == [1, 2]


@pytest.mark.parametrize("order", ["spooled first", "noted first"])
def test_what_is_confirmed_only_because_log_passes_behind_it_stays_in_the_spool(order, processes):
    edge = processes()
    edge.put(1, confirm=0)
    if order == "spooled first":
        edge.spool_all()
    edge.note(950)
    edge.spool_all()
    edge.progress.save_now()
    assert edge.progress.confirmed == 950
    assert edge.state.read(SOURCE).promised == position(1)

    edge = processes()

    assert edge.outbox.tail == position(1)
    edge.spool_all()
    assert list(edge.send()) == [1]


def test_spool_that_was_turned_off_is_still_sent(processes):
    edge = processes()
    edge.put(1, 2)
    edge.spool_all()
    edge.progress.save_now()

    edge = processes(megabytes=0)
    edge.spool_all()
    edge.put(3)
    edge.spool_all()

    assert list(edge.send()) == [1, 2, 3]
    assert edge.outbox.progress()[1] == 200


def test_lost_spool_stops_the_edge_before_anything_is_read(processes, tmp_path):
    edge = processes()
    edge.put(1, 2)
    edge.spool_all()
    edge.progress.save_now()
    edge.spool.close()
    (tmp_path / "spool.sqlite").unlink()

    with pytest.raises(NeedsOperator, match=f"after {START} up to {position(2)}"):
        processes()


def test_a_checkpoint_that_has_to_change_promises_no_more_than_the_spool_keeps(processes):
    """E6: batches were spooled since the checkpoint was written; it changes, as after a failover, and the edge dies."""
    edge = processes()
    edge.put(1, 2, 3)
    edge.spool_all()
    edge.progress.replace(edge.progress.checkpoint, until=None)
    edge.start()

    edge = processes()

    assert edge.progress.checkpoint.promised is None
    assert edge.progress.confirmed == 1
