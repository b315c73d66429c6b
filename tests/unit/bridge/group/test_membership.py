"""Membership: what it reports when the group does not work, and what it does when nobody has a source or another has its name."""

import pytest

from bridge.group import membership
from bridge.group.membership import Membership, Recovery
from bridge.kafka import lifetime
from bridge.kafka.lifetime import UNUSABLE_SECONDS, Lifetime
from bridge.model.ports import Committed, InstanceFenced
from bridge.model.route import SourceRoute
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import ConfigurationError, NeedsOperator, NotConnected
from tests.unit.bridge.kafka_double import TOPIC, BridgeParts, metadata

ONE, TWO = SOURCES = "a/one", "a/two"
PLACES = {(TOPIC, 0): ONE, (TOPIC, 1): TWO}
SESSION = 8.0
HELD = Committed(None, "", "", {})


class Member:
    """Implements `GroupMember`."""

    def __init__(self):
        self.step = lambda: None
        self.free = set()
        self.joins = self.rejoins = self.looks = self.renewals = 0
        self.is_member = True
        self.renewal_fails = False
        self.known = False

    def join(self, topics, assigned, revoked, lost):
        self.assigned, self.revoked = assigned, revoked
        self.joins += 1

    def poll(self, seconds):
        step, self.step = self.step, lambda: None
        step()

    def metadata(self):
        return metadata() if self.is_member else None

    def renew(self):
        if self.renewal_fails:
            raise ConfigurationError("no key")
        self.renewals += 1
        self.revoked(PLACES)

    def unassigned(self, partitions):
        return None if self.free is None else self.free & set(partitions)

    def look(self):
        self.looks += 1

    def rejoin(self):
        self.rejoins += 1

    def is_known(self):
        return self.known

    def reset(self):
        pass


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(membership.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(membership.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


@pytest.fixture
def made(clock):
    parts, member = BridgeParts(*SOURCES), Member()
    one = Membership(member, PLACES, parts.registry, SESSION, Lifetime(KafkaConnection(bootstrap="k:1")))
    one.turn()
    return parts, member, one


def turn(one, clock, seconds):
    for _ in range(int(seconds * 10)):
        clock[0] += 0.1
        one.turn()


def test_a_source_that_nobody_has_after_the_first_assignment_is_asked_for_again(made, clock):
    _, member, one = made
    member.step = lambda: member.assigned([(TOPIC, 0)])
    member.free = None
    turn(one, clock, 3)
    # while members join nobody can tell
    assert member.rejoins == 0
    member.free = {(TOPIC, 1)}
    turn(one, clock, 3)
    assert member.rejoins == 1
    turn(one, clock, 30)
    assert member.rejoins == 1


def test_a_source_that_nobody_has_is_shown_so_and_looked_for_again_and_again(made, clock):
    """K11: every bridge was ready and said that another one served it, and it was looked for once."""
    parts, member, one = made
    member.step = lambda: member.assigned([(TOPIC, 0)])
    turn(one, clock, 40)
    assert (parts.registry.states[TWO].figures.state, member.rejoins) == ("elsewhere", 0)
    # when the topic is deleted while all run
    member.free = {(TOPIC, 1)}
    turn(one, clock, 31)
    assert member.rejoins == 1
    turn(one, clock, 31)
    figures = parts.registry.states[TWO].figures
    assert (figures.state, figures.reason, figures.served) == ("not served", "no bridge of the group has it", False)
    # which its edge hears, too
    assert parts.deliverer.refused == {TWO: ("amqp:link:redirect", f"{TWO}: no bridge of the group has it")}
    turn(one, clock, 90)
    assert member.rejoins == 1
    # and somebody has it again
    member.free = set()
    turn(one, clock, 31)
    assert (figures.state, figures.reason) == ("elsewhere", "")
    assert parts.deliverer.refused == {TWO: ("amqp:link:redirect", f"{TWO} is served by another bridge")}
    member.free = {(TOPIC, 1)}
    turn(one, clock, 31)
    assert member.rejoins == 2
    # or this bridge
    turn(one, clock, 31)
    assert figures.state == "not served"
    member.step = lambda: member.assigned([(TOPIC, 1)])
    turn(one, clock, 1)
    assert (figures.state, parts.deliverer.refused) == ("starting", {})


@pytest.mark.parametrize("assigned", [[(TOPIC, 0)], [(TOPIC, 0), (TOPIC, 1)]])
def test_sources_that_somebody_has_are_left_alone(made, clock, assigned):
    _, member, one = made
    member.step = lambda: member.assigned(assigned)
    turn(one, clock, 5)
    assert member.rejoins == 0


def test_another_member_with_the_same_name_that_is_heard_ends_the_bridge(made, clock):
    parts, member, one = made
    member.step = lambda: member.assigned(list(PLACES))
    turn(one, clock, 1)

    def fenced():
        raise InstanceFenced("another bridge has joined")

    member.step, member.known = fenced, True
    turn(one, clock, 1)
    assert {state.figures.state for state in parts.registry.states.values()} == {"waiting for Kafka"}
    assert "another bridge has joined" in one.state
    with pytest.raises(InstanceFenced):
        turn(one, clock, 3 * (SESSION + 5))


def test_a_late_request_of_a_former_process_does_not_end_the_bridge(made, clock):
    _, member, one = made

    def fenced():
        raise InstanceFenced("another bridge has joined")

    member.step = fenced
    turn(one, clock, SESSION + 5)
    assert member.joins == 2
    member.step = lambda: member.assigned(list(PLACES))
    turn(one, clock, 1)
    assert one.state == ""


def test_a_broker_that_has_just_begun_to_lead_the_group_knows_of_members_that_are_no_more(made, clock):
    """The last bridge ended where brokers stood still one after the other, and it was fenced by a late request of its own."""
    _, member, one = made

    def fenced():
        raise InstanceFenced("another bridge has joined")

    member.step, member.known = fenced, True
    # Each turn waits as long again.
    turn(one, clock, SESSION + 3)
    assert member.joins == 1
    member.known = False
    turn(one, clock, SESSION + 3)
    assert member.joins == 2


def test_a_group_that_changes_without_end_is_reported(made, clock):
    _, member, one = made
    for _ in range(10):
        member.step = lambda: member.assigned([(TOPIC, 0)])
        turn(one, clock, 1)
        member.step = lambda: member.revoked([(TOPIC, 0)])
        turn(one, clock, 1)
    assert "changed 20 times in the last minute" in one.state
    turn(one, clock, 61)
    assert one.state == ""


def change(parts, one, sources, added=(), removed=()):
    """Take a changed file over as the bridge does."""

    def command():
        parts.registry.remove(removed)
        parts.registry.add(
            SourceRoute(source, TOPIC, (number,)) for (_, number), source in sources.items() if source in added
        )
        one.use(sources)

    one.call(command)


def test_a_source_that_came_into_the_file_is_served_if_its_partition_is_this_members(made, clock):
    parts, member, one = made
    member.step = lambda: member.assigned([(TOPIC, 0), (TOPIC, 2)])
    turn(one, clock, 1)
    member.free = set()
    change(parts, one, PLACES | {(TOPIC, 2): "a/three", (TOPIC, 3): "a/four"}, added={"a/three", "a/four"})
    turn(one, clock, 2)
    states = {source: state.figures.state for source, state in parts.registry.states.items()}
    assert states == {ONE: "starting", TWO: "elsewhere", "a/three": "starting", "a/four": "elsewhere"}
    assert parts.deliverer.refused == {
        source: ("amqp:link:redirect", f"{source} is served by another bridge") for source in (TWO, "a/four")
    }
    # a partition that the topic got since, and that nobody has, is asked for
    member.free = {(TOPIC, 3)}
    change(parts, one, PLACES | {(TOPIC, 2): "a/three", (TOPIC, 3): "a/four", (TOPIC, 4): "a/five"}, added={"a/five"})
    turn(one, clock, 2)
    assert (member.looks, member.rejoins) == (2, 0)
    turn(one, clock, 4)
    assert member.rejoins == 1


def test_a_source_that_left_the_file_goes_once_no_lane_holds_it_and_may_come_again(made, clock):
    parts, member, one = made
    member.step = lambda: member.assigned(list(PLACES))
    turn(one, clock, 1)
    parts.recover()
    held = parts.registry.ready.take(0)
    assert held.source == ONE
    parts.registry.ready.wait_returned = lambda _sessions, _seconds: False
    change(parts, one, {(TOPIC, 1): TWO}, removed=[ONE])
    turn(one, clock, 1)
    # a lane can still end its transaction, which the broker decides about
    assert set(parts.registry.states) == {ONE, TWO}
    assert parts.registry.ownership.snapshot.leases.keys() == {TWO}
    parts.registry.ready.give_back([held])
    turn(one, clock, 1)
    assert set(parts.registry.states) == {TWO}
    # what comes late is passed over
    parts.registry.recover([(ONE, 1, 0.0)])
    parts.registry.unreadable(ONE, 1, NeedsOperator("late"))
    assert ONE not in parts.recovering
    # when it comes again
    change(parts, one, PLACES, added={ONE})
    turn(one, clock, 1)
    assert parts.registry.states[ONE].figures.state == "starting"
    assert ONE in parts.recovering


def test_the_client_is_made_again_when_files_have_changed_and_the_group_is_joined_again(made, clock):
    """K1: the group's member had the certificate with which the bridge started, for good."""
    parts, member, one = made
    member.step = lambda: member.assigned(PLACES)
    turn(one, clock, 1)
    lifetime.cluster("k:1").generation += 1
    turn(one, clock, 1)
    assert (member.renewals, member.joins) == (1, 2)
    # what it had was given up in order, and comes back
    assert parts.registry.ownership.snapshot.leases == {}
    member.step = lambda: member.assigned(PLACES)
    turn(one, clock, 100)
    assert parts.registry.ownership.snapshot.leases.keys() == {ONE, TWO}
    assert member.renewals == 1


def test_the_client_is_made_again_when_it_was_no_member_for_long_whatever_the_reason(made, clock):
    """K1, K7: a rotated password, other addresses of all brokers, a client that does not find its brokers any more."""
    _, member, one = made
    turn(one, clock, 100)
    member.is_member = False
    turn(one, clock, UNUSABLE_SECONDS - 1)
    assert member.renewals == 0
    turn(one, clock, 2)
    assert member.renewals == 1
    # where it cannot be made, the bridge goes on as it is, and tries again
    member.renewal_fails = True
    turn(one, clock, UNUSABLE_SECONDS + 1)
    assert member.joins == 2
    member.renewal_fails = False
    turn(one, clock, UNUSABLE_SECONDS + 1)
    assert (member.renewals, member.joins) == (2, 3)


class Reader:
    def __init__(self):
        self.asked, self.answers = [], {}

    def read(self, sources):
        self.asked.append(set(sources))
        if "error" in self.answers:
            raise self.answers.pop("error")
        return {source: self.answers.get(source, HELD) for source in sources}


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def a_recovery():
    reader, clock, served, bad = Reader(), Clock(), [], []
    recovery = Recovery(reader, clock)
    recovery.serve = lambda source, lease, _committed: served.append((source, lease))
    recovery.unreadable = lambda source, _lease, error: bad.append((source, error.message))
    return recovery, reader, clock, served, bad


def test_all_sources_that_wait_are_read_in_one_request_and_those_with_a_pause_after_it():
    recovery, reader, clock, served, _ = a_recovery()
    recovery.add("a/one", 1)
    recovery.add("a/two", 2)
    recovery.add("a/late", 3, 5.0)
    recovery.turn(0)
    assert reader.asked == [{"a/one", "a/two"}]
    clock.now = 6.0
    recovery.turn(0)
    assert served == [("a/one", 1), ("a/two", 2), ("a/late", 3)]


def test_a_source_that_needs_an_operator_holds_up_no_other():
    recovery, reader, _, served, bad = a_recovery()
    reader.answers["a/bad"] = NeedsOperator("moved")
    recovery.add("a/bad", 1)
    recovery.add("a/good", 2)
    recovery.turn(0)
    assert (served, bad) == ([("a/good", 2)], [("a/bad", "moved")])


def test_while_kafka_does_not_answer_all_wait_under_their_newest_lease_and_the_reason_is_shown():
    recovery, reader, clock, served, _ = a_recovery()
    reader.answers["error"] = NotConnected("no answer")
    recovery.add("a/one", 1)
    recovery.turn(0)
    assert (served, recovery.trouble) == ([], "no answer")
    recovery.add("a/one", 2)
    clock.now = 10.0
    recovery.turn(0)
    assert (served, recovery.trouble) == ([("a/one", 2)], "")


def test_only_the_newest_lease_of_a_source_is_read():
    """A lane may give a source back under a lease that is over, while the position for the next one is read."""
    recovery, reader, clock, served, _ = a_recovery()
    recovery.add("a/one", 2)
    recovery.add("a/one", 1)
    recovery.turn(0)
    assert served == [("a/one", 2)]
    # nor does it replace the one of which a read failed
    reader.answers["error"] = NotConnected("no answer")
    read = reader.read
    reader.read = lambda sources: (recovery.add("a/one", 1), read(sources))[1]
    recovery.add("a/one", 2)
    recovery.turn(0)
    reader.read, clock.now = read, 10.0
    recovery.turn(0)
    assert served == [("a/one", 2)] * 2


def test_a_read_that_does_not_return_is_given_up_and_what_it_reads_late_is_ignored():
    """The thread of recovery waited in Kafka's client, and no source was served again until the bridge was started again."""
    recovery, reader, _, served, bad = a_recovery()
    other = Reader()

    def hang(sources):
        # what the main thread does meanwhile
        recovery.go_on(other)
        recovery.turn(0)
        return dict.fromkeys(sources, NotConnected("late"))

    reader.read = hang
    recovery.add("a/one", 1)
    recovery.add("a/two", 2)
    recovery.turn(0)
    assert other.asked == [{"a/one", "a/two"}]
    assert (sorted(served), bad, recovery.trouble) == ([("a/one", 1), ("a/two", 2)], [], "")
