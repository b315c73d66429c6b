"""Which requests a bridge sends, what it answers itself, and which answers are written."""

import msgspec
import pytest

from bridge.requests.pending import MOST_OF_SOURCE, PendingRequests
from headrace.requests import Content, Part, content_of, encode, new_request, parts

SOURCE, OTHER = "jakarta/bank", "london/bank"
ADDRESS = f"requests/{SOURCE}"


class Setup:
    def __init__(self):
        self.now = 0.0
        self.served = {SOURCE}
        self.answers: list[Part] = []
        self.pending = PendingRequests(
            lambda source: source in self.served,
            self.answers.append,
            clock=lambda: self.start + self.now,
            monotonic=lambda: self.now,
        )
        self.start = new_request(SOURCE, "status", "ann", 0).deadline / 1000

    def ask(self, source=SOURCE, seconds=30.0, kind="status"):
        request = new_request(source, kind, "ann", seconds)
        # After the start of this clock: on a busy machine seconds may pass between two requests.
        request = msgspec.structs.replace(request, deadline=int((self.start + seconds) * 1000))
        self.pending.add(request, encode(request))
        return request

    def said(self):
        return [(part.id, part.outcome, part.by, content_of(part.content).message) for part in self.answers]


@pytest.fixture
def setup():
    return Setup()


def done(request, data=1):
    return list(parts(request, "done", Content(data=data)))


def test_a_request_is_sent_once_and_its_answer_is_written_once(setup):
    request = setup.ask()
    setup.pending.add(request, encode(request))
    assert setup.pending.addresses() == [ADDRESS]
    entry = setup.pending.take(ADDRESS)
    assert (entry.record.value, setup.pending.take(ADDRESS)) == (encode(request), None)
    setup.pending.accepted(entry)
    first, *rest = done(request, "x" * 60_000)
    for part in (first, *rest):
        assert setup.pending.judge(SOURCE, part) == ""
        setup.pending.wrote(part)
    # Two answers: the same one again, and another one.
    assert setup.pending.judge(SOURCE, first) == "it is written"
    (other,) = parts(request, "failed", Content(message="no"))
    assert setup.pending.judge(SOURCE, other) == "the request is answered"
    setup.now = 60
    setup.pending.expire()
    assert (setup.answers, setup.pending.sources()) == ([], [])


def test_parts_that_come_again_after_the_last_one_are_written(setup):
    """The answer was over with its last part, and was never whole: its caller waited for nothing."""
    request = setup.ask()
    setup.pending.accepted(setup.pending.take(ADDRESS))
    first, *rest = done(request, "x" * 60_000)
    for part in (*rest, first):
        assert setup.pending.judge(SOURCE, part) == ""
        setup.pending.wrote(part)
    assert setup.pending.sources() == []
    (other,) = parts(request, "failed", Content(message="no"))
    assert setup.pending.judge(SOURCE, other) == "the request is answered"


def test_what_the_edge_does_not_receive_in_time_gets_a_clear_answer(setup):
    request = setup.ask()
    setup.pending.note(ADDRESS, "nobody receives from it")
    setup.now = 29
    setup.pending.expire()
    assert setup.answers == []
    setup.now = 31
    setup.pending.expire()
    assert setup.said() == [
        (request.id, "expired", "bridge", "the edge did not receive the request in time: nobody receives from it")
    ]
    # An answer that comes too late is not written.
    assert "its deadline has passed" in setup.pending.judge(SOURCE, done(request)[0])
    setup.pending.expire()
    assert len(setup.answers) == 1


def test_what_the_edge_took_and_did_not_answer_is_said_to_be_open(setup):
    setup.ask()
    setup.pending.accepted(setup.pending.take(ADDRESS))
    setup.now = 31
    setup.pending.expire()
    assert "did not answer in time" in setup.said()[0][3]


def test_an_answer_that_nobody_asked_for_or_of_another_source_is_not_written(setup):
    assert setup.pending.judge(SOURCE, done(new_request(SOURCE, "status", "ann", 30))[0])
    request = setup.ask()
    assert setup.pending.judge(SOURCE, done(new_request(OTHER, "status", "ann", 30))[0]) == f"it names {OTHER}"
    assert setup.pending.judge(SOURCE, done(request)[0]) == ""


def test_a_bridge_sends_and_answers_for_the_sources_that_it_serves_alone(setup):
    request = setup.ask(OTHER)
    for _ in range(MOST_OF_SOURCE + 5):
        setup.ask(OTHER)
    assert (setup.pending.addresses(), setup.pending.sources()) == ([], [])
    assert setup.pending.take(f"requests/{OTHER}") is None
    # It takes the source over, and what was read before is sent.
    setup.served.add(OTHER)
    assert setup.pending.addresses() == [f"requests/{OTHER}"]
    entry = setup.pending.take(f"requests/{OTHER}")
    assert entry.record.value == encode(request)
    setup.served.clear()
    setup.now = 60
    setup.pending.expire()
    assert setup.answers == []


def test_a_flood_costs_bounded_memory_and_the_rest_is_told_so(setup):
    requests = [setup.ask() for _ in range(MOST_OF_SOURCE + 100)]
    assert [part.outcome for part in setup.answers] == ["busy"] * 100
    assert {part.id for part in setup.answers} == {request.id for request in requests[MOST_OF_SOURCE:]}
    setup.now = 60
    setup.pending.expire()
    setup.answers.clear()
    setup.ask(seconds=90)
    assert setup.answers == []


def test_requests_that_are_answered_keep_no_other_from_being_asked(setup):
    """K12: with long deadlines, every source was "busy: 0 requests wait" after 10,000 answers."""
    for _ in range(10_010):
        request = setup.ask(seconds=300)
        setup.pending.accepted(setup.pending.take(ADDRESS))
        part = Part(id=request.id, source=request.source, kind=request.kind, outcome="done")
        assert setup.pending.judge(request.source, part) == ""
        setup.pending.wrote(part)
    assert setup.answers == []
    # they are known until their deadlines
    assert setup.pending.judge(request.source, part) == "it is written"
    setup.pending.add(request, encode(request))
    assert setup.pending.addresses() == []
    # Asking for so many takes a while itself.
    setup.now = 600
    setup.pending.expire()
    assert "nobody waits for it" in setup.pending.judge(request.source, part)


def test_what_comes_back_is_sent_again_and_what_is_rejected_is_answered(setup):
    request = setup.ask()
    entry = setup.pending.take(ADDRESS)
    setup.pending.returned(entry)
    assert setup.pending.take(ADDRESS) is None
    assert 0 < setup.pending.due(ADDRESS) < 1
    setup.now += 1
    assert setup.pending.take(ADDRESS) is entry
    setup.pending.lost(entry)
    assert setup.pending.take(ADDRESS) is entry
    setup.pending.rejected(entry, "amqp:decode-error", "of a newer release")
    assert setup.said()[0][:3] == (request.id, "refused", "bridge")
    assert "newer release" in setup.said()[0][3]
    assert setup.pending.take(ADDRESS) is None


def test_a_request_that_is_read_after_its_deadline_is_dropped(setup):
    setup.now = 100
    setup.ask(seconds=30)
    assert (setup.pending.addresses(), setup.answers) == ([], [])
