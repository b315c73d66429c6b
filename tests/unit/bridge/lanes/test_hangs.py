"""K3: a call of a lane to Kafka that does not return, whichever it is, leaves no source without a lane."""

import threading
import time

import pytest
from msgspec import structs

from bridge.lanes import transaction
from bridge.lanes.transaction import LaneState, Phase
from bridge.model.delivery import Delivery, Release
from bridge.model.ports import Fenced, OldGeneration
from headrace.batch import CONTENT_ENCODING, WrittenWith, encode
from headrace.errors import NotConnected, Retryable
from tests.edge.source_log import cut, log
from tests.rules.waiting import eventually
from tests.unit.bridge.kafka_double import BridgeParts, metadata

ONE, TWO = "a/one", "a/two"
#: The call that hangs, and what goes ahead of it.
CALLS = {
    "begin": {},
    "produce": {},
    "flush": {},
    "commit": {},
    "abort": {"commit": OldGeneration("old")},
    "discard": {"commit": NotConnected("no answer in time")},
    "discard after an abort": {"commit": OldGeneration("old"), "abort": Retryable("no abort")},
    "discard of a fenced one": {"commit": Fenced("fenced")},
    "open": {"commit": Fenced("fenced")},
}


class Hanging:
    """A call that returns when it is let, as it is let."""

    def __init__(self):
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.error = None

    def __call__(self, _producer):
        self.entered.set()
        assert self.go_on.wait(20)
        if self.error is not None:
            raise self.error


@pytest.fixture
def served(monkeypatch):
    monkeypatch.setattr(transaction, "HUNG_SECONDS", 0.05)
    parts = BridgeParts(ONE, TWO)
    parts.registry.assigned([ONE, TWO], metadata())
    parts.recover()
    parts.lanes[0].turn(0)
    for number, source in enumerate((ONE, TWO)):
        (batch,) = cut(source, log(source, 20), lambda: 20)
        properties, body = encode(batch)
        parts.session(source).inbox.put(Delivery(number, 1, properties, CONTENT_ENCODING, body))
    return parts


@pytest.mark.parametrize(
    ("call", "late"),
    [(call, None) for call in CALLS]
    + [(call, kind("late")) for call in CALLS if "discard" not in call for kind in (Retryable, NotConnected, Fenced)],
)
def test_whichever_call_hangs_its_sources_go_on_in_a_successor(served, call, late):
    lane, hanging = served.lanes[0], Hanging()
    for method, error in CALLS[call].items():
        served.kafka.fail(method, error)
    served.kafka.fail(call.partition(" ")[0], hanging)

    def turns():
        for _ in range(3):
            if not lane.given_up:
                lane._open_at = 0.0
                lane.turn(0.01)

    thread = threading.Thread(target=turns)
    thread.start()
    assert hanging.entered.wait(10)
    eventually(lane.hangs, every=0.01, saying="it is seen that the call hangs")
    successor = lane.give_up()
    # the edges of what it held send again, and nothing holds the sessions: a revocation would wait for that
    held = {ONE} if call in {"begin", "produce"} else {ONE, TWO}
    assert served.deliverer.outcomes == {
        number: Release() for number, source in enumerate((ONE, TWO)) if source in held
    }
    assert served.recovering == {}
    successor.turn(0.01)
    assert served.recover() == held
    # what the call returns later is nobody's
    taken = len(served.kafka.transactions)
    hanging.error = late
    hanging.go_on.set()
    thread.join(10)
    assert not thread.is_alive()
    assert (served.recovering, lane.given_up, lane.give_up()) == ({}, True, None)
    assert all(served.session(source) is not None for source in (ONE, TWO))
    served.registry.recommit(-1)
    successor.turn(0.01)
    assert len(served.kafka.transactions) > taken
    assert not any(served.session(source).held for source in (ONE, TWO))


def test_a_delivery_that_waits_for_the_registry_goes_back_where_its_lane_is_given_up(served):
    """Its edge waited for its outcome, and sent nothing more."""
    lane, hanging = served.lanes[0], Hanging()
    hanging.error = Retryable("not registered")
    waits = []

    class Schemas:
        def ids(self, _needed, until):
            waits.append(until - time.monotonic())
            hanging(None)

    served.registry.schemas = Schemas()
    batch = cut(ONE, log(ONE, 40), lambda: 20)[0]
    written = WrittenWith(1, "public", "t", None, "{}")
    values = [b"\0\0\0\0\1" + value for value in batch.values]
    properties, body = encode(structs.replace(batch, keys=[None] * 20, values=values, written=[written]))
    served.session(ONE).inbox.take()
    served.session(ONE).inbox.put(Delivery(7, 1, properties, CONTENT_ENCODING, body))
    thread = threading.Thread(target=lambda: lane.turn(0))
    thread.start()
    assert hanging.entered.wait(10)
    eventually(lane.hangs, every=0.01, saying="it is seen that it waits")
    lane.give_up()
    assert served.deliverer.outcomes[7] == Release()
    hanging.go_on.set()
    thread.join(10)
    # all that one batch needs is waited for much less long than what counts as hung
    assert 0 < waits[0] < 5


def test_a_call_that_returns_in_the_last_moment_is_no_successors(served):
    """The lane's thread has the outcome, and answers the edges."""
    lane, hanging = served.lanes[0], Hanging()
    served.kafka.fail("commit", hanging)
    thread = threading.Thread(target=lambda: lane.turn(0))
    thread.start()
    assert hanging.entered.wait(10)
    eventually(lane.hangs, every=0.01, saying="it is seen that the call hangs")
    hanging.go_on.set()
    thread.join(10)
    assert lane.give_up() is None
    assert len(served.kafka.transactions) == 2


def test_a_lane_that_is_given_up_enters_nothing_more_and_no_phase_follows_another_by_mistake():
    lane = LaneState()
    assert lane.give_up() is None
    assert lane.enter(Phase.OPENING)
    assert lane.give_up() == (None, False)
    assert not lane.enter(Phase.IDLE)
    with pytest.raises(AssertionError, match="CLOSED to COMMITTING"):
        LaneState().enter(Phase.COMMITTING)


def test_a_session_that_a_lane_takes_while_it_is_given_up_is_nobody_s_for_long(served, monkeypatch):
    """It stayed with the former lane, and its source rested until it was assigned again."""
    lane, take, successors = served.lanes[0], served.registry.ready.take, []

    def take_late(seconds, **isolated):
        session = take(seconds, **isolated)
        if lane._state.transaction is not None and session is not None and not successors:
            successors.append(lane.give_up())
        return session

    monkeypatch.setattr(served.registry.ready, "take", take_late)
    for _ in range(3):
        if not successors:
            lane.turn(0.01)
    assert lane.given_up
    assert not any(session.held for source in (ONE, TWO) if (session := served.session(source)) is not None)


def test_a_session_that_waits_for_a_producer_that_does_not_open_is_the_successors(monkeypatch):
    """The isolated lane connects when it is needed: it held the session meanwhile, and its source rested for good."""
    monkeypatch.setattr(transaction, "HUNG_SECONDS", 0.05)
    parts, hanging = BridgeParts(ONE), Hanging()
    lane = parts.lanes[1]
    lane.turn(0)
    parts.registry.assigned([ONE], metadata())
    parts.registry.states[ONE].isolated = True
    parts.recover()
    parts.kafka.fail("open", hanging)
    thread = threading.Thread(target=lambda: lane.turn(0.01))
    thread.start()
    assert hanging.entered.wait(10)
    eventually(lane.hangs, every=0.01, saying="it is seen that the call hangs")
    successor = lane.give_up()
    for _ in range(3):
        successor.turn(0.01)
    hanging.go_on.set()
    thread.join(10)
    assert (len(parts.kafka.transactions), parts.session(ONE).dirty, parts.session(ONE).held) == (1, False, False)
