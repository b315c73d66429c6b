"""Recovery: one request for all that wait; what cannot be read waits, and holds up no other."""

from bridge.group.recovery import Recovery
from bridge.model.ports import Committed
from headrace.errors import NeedsOperator, NotConnected

HELD = Committed(None, "", "", {})


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
