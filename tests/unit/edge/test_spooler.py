"""Spooling: when it begins and ends, what may be confirmed, and a model of an edge that dies at any arrow of the way."""

import dataclasses
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edge.batcher import SealedBatch
from edge.checkpoint import NoRoom, State
from edge.figures import Figures
from edge.outbox import Outbox
from edge.postgres.checkpoint import PostgresCheckpoint
from edge.progress import Progress
from edge.spool import Spool
from edge.spooler import Spooler
from headrace.errors import NeedsOperator
from headrace.position import Position
from tests.unit.edge.test_checkpoint import checkpoint
from tests.unit.edge.test_window import START, batch, position

SOURCE = "jakarta/bank"
SIZE = 1000
MEGABYTE = 1 << 20


def idle(tail):
    """Return an empty batch."""
    properties = {"first": str(tail)}
    return dataclasses.replace(batch(1, confirm=0), properties=properties, follows=tail, last=tail, count=0, body=b"")


class Process:
    """What one process of an edge has, made from what is on the disk."""

    def __init__(self, folder, *, after_seconds=0.0, limit_bytes=8 * SIZE, megabytes=4):
        self.state = State(folder, PostgresCheckpoint)
        found = self.state.read(SOURCE)
        if found is None:
            found = checkpoint(START, 1)
            self.state.write(found)
        self.outbox = Outbox(limit_bytes=limit_bytes, tail=found.position, confirmed=found.confirmed)
        self.spool = Spool(folder, SOURCE, megabytes * MEGABYTE)
        self.spool.open(found.position, found.promised, found.confirmed)
        self.figures = Figures()
        self.spooler = Spooler(self.spool, self.outbox, self.figures, after_seconds=after_seconds)
        self.progress = Progress(self.state, found, self.outbox, self.advanced)
        #: Places that this process was told of: others say nothing to an engine that keeps more than a number for each.
        self.told = {found.confirmed}

    def advanced(self, known, position, place):
        assert place in self.told
        return known.advanced(position, place)

    @property
    def window(self):
        return self.outbox.window

    def start(self):
        return self.progress.restart()

    def put(self, *numbers, **options):
        batches = [batch(number, size=SIZE, **options) for number in numbers]
        self.told |= {one.confirm for one in batches}
        self.outbox.put(batches)

    def note(self, place):
        self.told.add(place)
        self.outbox.note(place)

    def spool_all(self):
        while self.spooler.step():
            pass

    def send(self):
        """Take all that may be sent; return the deliveries by commit."""
        found = {}
        while (taken := self.outbox.take()) is not None:
            found[taken[1].last.commit] = taken[0]
        return found


@pytest.fixture
def processes(tmp_path):
    made = []

    def make(**options):
        for former in made:
            former.spool.close()
        made.append(Process(tmp_path, **options))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.spool.close()


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


def test_full_window_without_acceptances_is_spooled_and_makes_room(processes):
    edge = processes(after_seconds=60)
    edge.put(*range(1, 9))
    edge.outbox.moved_at -= 60
    for entry in edge.window._entries:
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


def test_idle_log_that_passes_is_confirmable_at_once_when_all_is_spooled(processes):
    edge = processes()
    edge.put(1)
    edge.spool_all()

    edge.note(950)

    assert edge.outbox.progress() == (START, 950)


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


def test_full_spool_makes_capture_wait_says_so_and_goes_on_when_there_is_room(processes, monkeypatch):
    edge = processes()
    refusal = NoRoom("the spool is full")

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

    edge.spooler._no_room_until = time.monotonic()
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


#: Changes of a transaction in the model; each change is a batch.
_CHANGES = 3


def _change(number):
    """Return commit LSN and ordinal of the model's n-th change, and the end of its transaction."""
    transaction, ordinal = divmod(number - 1, _CHANGES)
    return transaction * 10 + 5, ordinal, transaction * 10 + 9


class Dying(RuleBasedStateMachine):
    """An edge that is killed between any two steps, with a far side that keeps the chain."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.process = None
        # The far side's records, and its tail.
        self.received = []
        self.tail = Position.start(7)
        self.flying = []
        self.slot = 0

    @initialize()
    def begin(self):
        self.process = Process(Path(self.folder.name))
        self.read_from_the_slot()

    @rule()
    def die(self):
        """Kill the process; what is in flight may still arrive."""
        self.process.spool.close()
        self.process = Process(Path(self.folder.name))
        self.flying = [(None, one) for _, one in self.flying]
        self.read_from_the_slot()

    @rule()
    def read_from_the_slot(self):
        """Begin a new session."""
        self.follows = self.process.start()
        confirmed = self.process.progress.checkpoint.confirmed
        assert confirmed >= self.slot
        # What commits at the confirmed place or after it.
        self.next = next(number for number in range(1, 10_000) if _change(number)[0] >= confirmed)

    @rule(count=st.sampled_from([1, 2, 3, 3, 6]))
    def capture(self, count):
        for _ in range(count):
            if self.process.outbox.full:
                return
            commit, ordinal, end = _change(self.next)
            last = Position(7, commit, ordinal)
            self.process.told.add(end)
            self.process.outbox.put(
                [
                    SealedBatch(
                        properties={"number": self.next, "first": str(last)},
                        body=bytes(SIZE),
                        follows=self.follows,
                        last=last,
                        count=1,
                        # Some are confirmable only because log passes behind them, as what a snapshot reads.
                        confirm=end if ordinal == _CHANGES - 1 and commit % 20 == 15 else 0,
                        raw_bytes=SIZE,
                        commit_ms=0,
                    )
                ]
            )
            self.follows, self.next = last, self.next + 1

    @rule()
    def idle_log_passes(self):
        """Between two transactions."""
        commit, ordinal, _ = _change(self.next)
        if ordinal == 0 and commit > 5:
            self.process.note(commit - 2)

    @rule()
    def spool(self):
        self.process.spooler.step()

    @rule()
    def save(self):
        self.process.progress.save_now()

    @rule()
    def tell_the_slot(self):
        self.slot = max(self.slot, self.process.progress.confirmed)

    @rule()
    def send(self):
        if (taken := self.process.outbox.take()) is not None:
            self.flying.append(taken)

    @rule()
    def arrive(self):
        if self.flying:
            delivery, one = self.flying.pop(0)
            if self.judge(one):
                accepted = delivery is not None and self.process.outbox.accepted(delivery)
                assert accepted in {True, False}
            elif delivery is not None and self.process.outbox.returned(delivery):
                self.process.outbox.go_on()

    @rule()
    def lose_the_link(self):
        self.flying.clear()
        self.process.outbox.lost()

    def judge(self, one):
        if one.follows > self.tail:
            return False
        if one.last > self.tail:
            self.received.append(one.properties["number"])
            self.tail = one.last
        return True

    @invariant()
    def everything_arrives_once_and_in_order(self):
        assert self.received == list(range(1, len(self.received) + 1))

    @invariant()
    def what_the_slot_may_discard_is_acknowledged_or_promised_by_the_checkpoint(self):
        if self.process is not None:
            known = self.process.state.read(SOURCE)
            discarded = sum(_change(number)[2] <= self.slot for number in range(1, self.next))
            kept = known.promised or known.position
            assert discarded == 0 or Position(7, *_change(discarded)[:2]) <= kept

    @invariant()
    def memory_is_bounded(self):
        if self.process is not None:
            assert self.process.window.bytes <= 10 * SIZE
            held = [*self.process.window._entries, *self.process.window._behind]
            assert self.process.window.bytes == SIZE * len(held)
            assert self.process.window.loaded_bytes == SIZE * sum(entry.row > 0 for entry in held)

    def teardown(self):
        """Let everything arrive that was captured."""
        if self.process is not None:
            captured = self.next - 1
            for _ in range(100_000):
                self.lose_the_link()
                while self.send_one():
                    self.arrive()
                self.save()
                self.spool()
                if self.process.outbox.empty:
                    break
            assert len(self.received) >= captured
            assert not self.process.spool.path.exists() or not len(self.process.spool)
            self.process.spool.close()
        self.folder.cleanup()

    def send_one(self):
        self.send()
        return bool(self.flying)


Dying.TestCase.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
TestDying = Dying.TestCase
