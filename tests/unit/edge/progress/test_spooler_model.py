"""A model of an edge that spools and dies at any arrow of the way, with a far side that keeps the chain."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edge.records.batcher import SealedBatch
from headrace.position import Position
from tests.unit.edge.progress.spooling import SIZE, SOURCE, Process

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
        self.flying = [(None, each) for _, each in self.flying]
        self.read_from_the_slot()

    @rule()
    def read_from_the_slot(self):
        """Begin a new session."""
        self.follows = self.process.start()
        confirmed = self.process.progress.checkpoint.confirmed
        assert confirmed >= self.slot
        # What commits at the confirmed place or after it.
        self.next = next(number for number in range(1, 10_000) if _change(number)[0] >= confirmed)

    @rule()
    def find_that_the_checkpoint_has_to_change(self):
        """E6: as after a failover, or when the standbys' guard changes."""
        progress = self.process.progress
        progress.replace(progress.checkpoint, until=None)
        self.read_from_the_slot()

    @rule(count=st.sampled_from([1, 2, 3, 3, 6]))
    def capture(self, count):
        for _ in range(count):
            if self.process.outbox.full:
                return
            commit, ordinal, end = _change(self.next)
            last = Position(7, commit, ordinal)
            self.process.reported.add(end)
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
            held = [*self.process.window._flight.entries, *self.process.window._behind]
            assert self.process.window.bytes == SIZE * len(held)
            assert self.process.window.loaded_bytes == SIZE * sum(entry.row > 0 for entry in held)

    def teardown(self):
        """Let everything arrive that was captured."""
        if self.process is not None:
            captured = self.next - 1
            for _ in range(2_000):
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
