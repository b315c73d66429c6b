"""Credit never exceeds its bound, and what belongs to a lost link, or to a former session, is forgotten."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.amqp.credit import MOST_OF_ALL, MOST_OF_SOURCE, CreditManager
from bridge.model.delivery import Accept, Inbox, Reject, Release

SOURCE = "jakarta/bank"
CREDIT = 5


class Link:
    """A link that counts the credit that it has."""

    def __init__(self):
        self.credit = 0

    def flow(self, count):
        self.credit += count


class Session(NamedTuple):
    source: str
    inbox: Inbox


class Wire:
    """The credit of one source, with everything around it written down."""

    def __init__(self):
        self.inbox = Inbox()
        self.session = Session(SOURCE, self.inbox)
        self.settled = []
        self.timers = []
        self.now = 100.0
        self.manager = CreditManager(
            CREDIT,
            lambda delivery, outcome: self.settled.append((delivery, outcome)),
            lambda seconds, action: self.timers.append((seconds, action)),
            lambda: self.now,
        )

    def attach(self):
        link = Link()
        self.manager.open(SOURCE, link)
        return link

    def deliver(self, link, name):
        link.credit -= 1
        self.manager.received(self.manager.of(SOURCE), name, {}, "zstd", b"")

    def tickets(self):
        return [delivery.ticket for delivery in self.inbox.clear()]


def test_credit_is_given_only_once_the_source_may_have_it():
    wire = Wire()
    link = wire.attach()
    assert link.credit == 0
    wire.manager.grant(wire.session)
    assert link.credit == CREDIT
    assert wire.attach().credit == CREDIT


def test_credit_comes_back_with_the_outcome_and_not_before():
    wire = Wire()
    wire.manager.grant(wire.session)
    link = wire.attach()
    for name in range(CREDIT):
        wire.deliver(link, name)
    assert link.credit == 0
    first, second, *_ = wire.tickets()
    wire.manager.settle([(first, Accept()), (second, Reject("a", "b"))])
    assert link.credit == 2
    assert wire.settled == [(0, Accept()), (1, Reject("a", "b"))]


def test_a_source_whose_deliveries_are_rejected_gets_credit_for_a_few_of_them_a_second():
    wire = Wire()
    wire.manager.grant(wire.session)
    link, count = wire.attach(), 0
    # Given an edge that sends what is rejected as fast as it has credit, and comes again by another link,
    while wire.now < 160:
        if link.credit == 0:
            link = wire.attach()
        for _ in range(link.credit):
            wire.deliver(link, count)
            count += 1
        wire.manager.settle([(ticket, Reject("a", "b")) for ticket in wire.tickets()])
        wire.now += 0.01
        timers, wire.timers = wire.timers, []
        for seconds, action in timers:
            wire.timers.append((seconds - 0.01, action)) if seconds > 0.01 else action()
    # then that is eight of them a second, and some at once.
    assert 450 < count < 550
    # When it has rested, it has its whole credit again.
    wire.now += 100
    assert wire.attach().credit == CREDIT


def test_the_credit_of_an_aborted_delivery_comes_back_when_the_source_may_have_it():
    wire = Wire()
    wire.manager.grant(wire.session)
    link, other = wire.attach(), Link()
    link.credit -= 1
    wire.manager.aborted(other)
    assert link.credit == CREDIT - 1
    wire.manager.aborted(link)
    assert link.credit == CREDIT
    wire.manager.revoke(wire.session)
    link.credit -= 1
    wire.manager.aborted(link)
    assert link.credit == CREDIT - 1


def test_the_credit_of_a_release_with_a_pause_comes_back_after_it():
    wire = Wire()
    wire.manager.grant(wire.session)
    link = wire.attach()
    for name in range(3):
        wire.deliver(link, name)
    first, two, three = wire.tickets()
    wire.manager.settle([(first, Release(2.5)), (two, Release(2.5)), (three, Release())])
    assert link.credit == CREDIT - 2
    ((seconds, action),) = wire.timers
    assert seconds == 2.5
    action()
    assert link.credit == CREDIT


def test_a_withheld_source_gets_its_credit_later_all_at_once():
    wire = Wire()
    wire.manager.grant(wire.session)
    link = wire.attach()
    for name in range(3):
        wire.deliver(link, name)
    wire.manager.revoke(wire.session)
    wire.manager.settle([(ticket, Release()) for ticket in wire.tickets()])
    assert link.credit == CREDIT - 3
    wire.manager.grant(wire.session)
    assert link.credit == CREDIT


def test_outcomes_of_a_lost_link_are_passed_over_and_its_deliveries_forgotten():
    wire = Wire()
    wire.manager.grant(wire.session)
    former = wire.attach()
    wire.deliver(former, "old")
    ticket = wire.inbox.take(0).ticket
    wire.deliver(former, "waiting")
    wire.manager.drop(wire.manager.of(SOURCE))
    newer = wire.attach()
    wire.manager.settle([(ticket, Accept())])
    assert wire.settled == []
    assert len(wire.inbox) == 0
    assert newer.credit == CREDIT


def test_a_former_session_that_ends_late_takes_neither_credit_nor_deliveries_of_its_successor_e2():
    wire = Wire()
    wire.manager.grant(wire.session)
    link = wire.attach()
    wire.deliver(link, "old")
    # given a successor that was granted credit while the former session waited for Kafka
    successor = Session(SOURCE, Inbox())
    wire.manager.grant(successor)
    # when the former one fails at last, withdraws its credit and gives back what it has
    wire.manager.revoke(wire.session)
    wire.inbox.close()
    wire.manager.settle([(ticket, Release()) for ticket in wire.tickets()])
    # then the successor gets the credit, and what comes from now on
    assert link.credit == CREDIT
    wire.deliver(link, "new")
    assert len(successor.inbox) == 1
    assert len(wire.inbox) == 0


def test_what_comes_where_nobody_serves_the_source_goes_back_and_its_credit_waits():
    wire = Wire()
    wire.manager.grant(wire.session)
    link = wire.attach()
    wire.manager.revoke(wire.session)
    wire.deliver(link, "late")
    assert wire.settled == [("late", Release())]
    assert link.credit == CREDIT - 1
    wire.manager.grant(wire.session)
    assert link.credit == CREDIT


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["deliver", "accept", "release", "pause", "forbid", "allow", "attach"]), st.integers(0, 9)
        )
    )
)
def test_credit_and_what_waits_never_exceed_the_bound_together(steps):
    wire = Wire()
    link, waiting = wire.attach(), []
    for step, number in steps:
        if step == "deliver" and link.credit > 0:
            wire.deliver(link, number)
            waiting += wire.tickets()
        elif step in {"accept", "release", "pause"} and waiting:
            outcome = {"accept": Accept(), "release": Release(), "pause": Release(1.0)}[step]
            wire.manager.settle([(waiting.pop(number % len(waiting)), outcome)])
        elif step == "allow":
            wire.manager.grant(wire.session)
            while wire.timers:
                wire.timers.pop()[1]()
        elif step == "forbid":
            wire.manager.revoke(wire.session)
        elif step == "attach":
            wire.manager.drop(wire.manager.of(SOURCE))
            link, waiting = wire.attach(), []
        assert link.credit >= 0
        assert link.credit + len(waiting) <= CREDIT


class Sources:
    """The credit of many sources whose sessions take everything and settle nothing."""

    def __init__(self, count, credit=256):
        self.outcomes = {}
        self.manager = CreditManager(credit, self.outcomes.__setitem__, lambda *_: None)
        self.links = {}
        for number in range(count):
            source = f"region/{number}"
            self.links[source] = Link()
            self.manager.open(source, self.links[source])
            self.manager.grant(Session(source, Inbox()))

    def send(self, source, size):
        """Send one if there is credit; return whether there was."""
        link = self.links[source]
        if link.credit == 0:
            return False
        link.credit -= 1
        self.manager.received(self.manager.of(source), object(), {}, "zstd", bytes(size))
        return True


def test_batches_of_an_ordinary_size_fill_the_whole_credit():
    sources = Sources(1)
    assert sum(iter(lambda: sources.send("region/0", 64 * 1024), False)) == 256
    assert sources.outcomes == {}


def test_what_waits_of_one_source_is_bounded_in_bytes():
    """S7: credit counts messages, and one may have 64 MB."""
    sources = Sources(1)
    for _ in range(256):
        sources.send("region/0", 4 << 20)
    assert sources.manager.bytes <= MOST_OF_SOURCE
    assert all(isinstance(outcome, Release) and outcome.pause for outcome in sources.outcomes.values())


def test_a_single_message_above_a_sources_share_is_taken():
    sources = Sources(1)
    assert sources.send("region/0", 40 << 20)
    assert sources.outcomes == {}
    assert sources.manager.bytes == 40 << 20


def test_what_waits_of_all_sources_is_bounded_and_each_has_its_share():
    """S7: 300 sources that send the most that they may."""
    sources = Sources(300, credit=64)
    for _ in range(64):
        for source in sources.links:
            sources.send(source, 100 * 1024)
    assert sources.manager.bytes <= 2 * MOST_OF_ALL
    assert all(sources.manager.of(source).bytes >= 100 * 1024 for source in sources.links)


def test_credit_comes_again_as_memory_becomes_free():
    """S7: who was released goes on, with as many messages as fit."""
    sources = Sources(1)
    link = sources.links["region/0"]
    for _ in range(256):
        sources.send("region/0", 4 << 20)
    assert link.credit == 0
    feed = sources.manager.of("region/0")
    sources.manager.settle([(ticket, Accept()) for ticket in list(feed.tickets)])
    assert sources.manager.bytes == feed.bytes == 0
    assert 1 <= link.credit * (4 << 20) <= MOST_OF_SOURCE
