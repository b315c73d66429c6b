"""The unacknowledged window: order, going back, and what may be confirmed; and a model that any far side is checked against."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from edge.delivery.window import ALONE_BYTES, Window
from edge.observability.figures import Figures
from edge.records.batcher import SealedBatch
from headrace.position import Position

EPOCH = 7
START = Position.start(EPOCH)


def position(number):
    return Position(EPOCH, number, 0) if number else START


def batch(number, *, size=10, confirm=None):
    """Return the batch that ends at commit `number`, and by default ends a transaction there."""
    return SealedBatch(
        properties={"first": str(position(number))},
        body=bytes(size),
        follows=position(number - 1),
        last=position(number),
        count=1,
        confirm=number * 100 if confirm is None else confirm,
        raw_bytes=size,
        commit_ms=0,
    )


def make_window(count, **options):
    made = Window(START, 5)
    for number in range(1, count + 1):
        made.add(batch(number, **options))
    return made


def sent(made):
    """Take all that may be taken; return (delivery, commit) pairs."""
    taken = []
    while (one := made.take()) is not None:
        taken.append((one[0], one[1].last.commit))
    return taken


def test_batches_are_given_out_in_order_and_once():
    window = make_window(3)

    assert [commit for _, commit in sent(window)] == [1, 2, 3]
    assert window.take() is None


def test_in_flight_is_what_was_sent_and_has_no_outcome():
    waiting = make_window(3)
    figures = Figures(window_limit_bytes=100, credit=1)
    assert (waiting.unsettled, figures.in_flight) == ((0, 0), None)
    (delivery, _), _ = waiting.take(), waiting.take()
    figures.interconnect_connected, figures.unacknowledged_batches = 1, len(waiting)
    figures.unsettled = waiting.unsettled
    assert (figures.unsettled, figures.in_flight) == ((2, 20), 0.667)
    waiting.accepted(delivery)
    assert waiting.unsettled == (1, 10)


def test_acknowledged_tail_moves_only_over_accepted_batches_without_a_hole():
    window = make_window(3)
    (first, _), (second, _), (third, _) = sent(window)

    assert not window.accepted(second)
    assert (window.acknowledged, window.confirmable) == (START, 5)

    assert window.accepted(first)
    assert (window.acknowledged, window.confirmable) == (position(2), 200)

    assert window.accepted(third)
    assert (window.acknowledged, window.confirmable, len(window), window.bytes) == (position(3), 300, 0, 0)


def test_returned_delivery_holds_sending_until_go_on_and_then_all_from_the_oldest_go_again():
    window = make_window(3)
    (_, _), (second, _), (third, _) = sent(window)

    assert window.returned(second)
    assert window.take() is None
    window.go_on()

    assert [commit for _, commit in sent(window)] == [1, 2, 3]
    assert not window.accepted(third)
    assert window.acknowledged == START


def test_batch_accepted_past_a_hole_is_sent_again():
    window = make_window(3)
    (first, _), _, (third, _) = sent(window)
    window.accepted(third)

    window.returned(first)
    window.go_on()

    assert [commit for _, commit in sent(window)] == [1, 2, 3]


def test_outcome_of_an_earlier_delivery_says_nothing_of_the_next_one():
    window = make_window(1)
    ((first, _),) = sent(window)
    window.lost()
    ((again, _),) = sent(window)

    assert not window.accepted(first)
    assert not window.returned(first)
    assert window.acknowledged == START
    assert window.accepted(again)


def test_late_returns_of_one_tail_go_back_once():
    window = make_window(3)
    deliveries = [delivery for delivery, _ in sent(window)]

    assert [window.returned(delivery) for delivery in deliveries] == [True, False, False]


def test_lost_link_sends_everything_unaccepted_again_at_once():
    window = make_window(3)
    (first, _), (second, _), _ = sent(window)
    window.accepted(first)
    window.returned(second)

    window.lost()

    assert [commit for _, commit in sent(window)] == [2, 3]


def test_transaction_cut_over_batches_is_confirmable_only_with_its_end():
    made = Window(START, 5)
    made.add(batch(1, confirm=0))
    made.add(batch(2, confirm=250))
    (first, _), (second, _) = sent(made)

    made.accepted(first)
    assert (made.acknowledged, made.confirmable) == (position(1), 5)
    made.accepted(second)
    assert made.confirmable == 250


def test_idle_log_is_confirmable_at_once_when_nothing_is_held_and_after_all_of_it_otherwise():
    window = make_window(2)
    (first, _), (second, _) = sent(window)

    window.note(900)
    window.accepted(first)
    assert window.confirmable == 100
    window.accepted(second)
    assert window.confirmable == 900

    window.note(950)
    assert window.confirmable == 950
    window.note(10)
    assert window.confirmable == 950


def test_batch_that_does_not_follow_is_refused():
    window = make_window(1)
    with pytest.raises(ValueError, match="follows"):
        window.add(batch(3))


def test_restart_drops_all_keeps_what_is_acknowledged_and_chains_anew():
    window = make_window(3)
    (first, _), (second, _), _ = sent(window)
    window.accepted(first)
    window.accepted(second)

    window.restart(position(1))
    window.add(batch(2))
    ((again, _),) = sent(window)
    window.accepted(again)

    assert (window.acknowledged, window.confirmable) == (position(2), 200)


def test_large_batch_travels_alone():
    made = Window(START, 5)
    for number in range(1, 5):
        made.add(batch(number, size=ALONE_BYTES + 1 if number == 3 else 10))

    first, second = sent(made)
    made.accepted(first[0])
    assert made.take() is None
    made.accepted(second[0])
    ((large, commit),) = sent(made)
    assert commit == 3
    made.accepted(large)
    assert [commit for _, commit in sent(made)] == [4]


class FarSide(RuleBasedStateMachine):
    """Any far side: it accepts only what follows its tail, as the bridge does, and otherwise does as it likes."""

    def __init__(self):
        super().__init__()
        self.window = Window(START, 0)
        self.added = self.tail = self.bound = 0
        self.flying = []
        self.noted = []

    @rule()
    def add(self):
        self.added += 1
        self.window.add(batch(self.added))

    @rule()
    def send(self):
        if (taken := self.window.take()) is not None:
            self.flying.append((taken[0], taken[1].last.commit))

    @rule()
    def idle_log_passes(self):
        self.noted.append((self.added * 100 + 50, self.added))
        self.window.note(self.added * 100 + 50)

    @rule(choice=st.integers(0, 7))
    def accept(self, choice):
        if self.flying and self.flying[choice % len(self.flying)][1] <= self.tail + 1:
            delivery, commit = self.flying.pop(choice % len(self.flying))
            self.tail = max(self.tail, commit)
            self.window.accepted(delivery)

    @rule(choice=st.integers(0, 7))
    def give_back(self, choice):
        if self.flying:
            self.window.returned(self.flying.pop(choice % len(self.flying))[0])

    @rule()
    def lose_the_link(self):
        self.flying.clear()
        self.window.lost()

    @rule()
    def go_on(self):
        self.window.go_on()

    @rule()
    def read_the_log_again(self):
        self.added = self.window.acknowledged.commit
        self.noted.clear()
        self.window.restart(self.window.acknowledged)

    @invariant()
    def nothing_unaccepted_is_acknowledged_or_confirmed(self):
        self.bound = max([self.bound, self.tail * 100, *(lsn for lsn, before in self.noted if before <= self.tail)])
        assert self.window.acknowledged.commit <= self.tail
        assert self.window.confirmable <= self.bound
        assert self.window.bytes == 10 * len(self.window)

    def teardown(self):
        """Let everything arrive that was added, once the far side accepts what comes in order."""
        self.window.lost()
        for delivery, commit in sent(self.window):
            assert commit <= self.tail + 1
            self.tail = max(self.tail, commit)
            self.window.accepted(delivery)
        assert self.window.acknowledged.commit == self.added


TestAnyFarSide = FarSide.TestCase
