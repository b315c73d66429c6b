"""The registry of sources: the state of a source when the group gives it to this bridge or another one, or drops this bridge."""

import logging

import pytest

from bridge.model.delivery import Delivery, Release
from bridge.model.phases import SessionPhase, SourcePhase
from headrace.errors import NotConnected
from tests.unit.bridge.kafka_double import BridgeParts, metadata

ONE, TWO = SOURCES = "a/one", "a/two"


@pytest.fixture
def parts():
    bridge_parts = BridgeParts(*SOURCES)
    bridge_parts.registry.assigned(SOURCES, metadata())
    bridge_parts.recover()
    return bridge_parts


def states(parts):
    return {source: state.figures.state for source, state in parts.registry.states.items()}


def test_sources_of_a_bridge_that_the_group_dropped_wait_for_kafka_until_the_group_says_who_has_them(parts):
    # Nobody may have them: a bridge that is alone cannot join again while too few replicas are up.
    parts.session(ONE).inbox.put(Delivery(1, 1, {}, "", b""))
    parts.registry.lost(SOURCES)
    assert states(parts) == dict.fromkeys(SOURCES, "waiting for Kafka")
    assert all("group" in state.figures.reason for state in parts.registry.states.values())
    assert parts.registry.states[ONE].figures.lag is not None
    # another bridge may have them: edges try their next address, and nothing is committed here
    assert set(parts.deliverer.refused) == set(SOURCES)
    assert parts.deliverer.outcomes == {1: Release()}
    # when the group has admitted the bridge again
    parts.registry.assigned([TWO], metadata(2))
    assert states(parts) == {ONE: "elsewhere", TWO: "starting"}
    assert set(parts.deliverer.refused) == {ONE}


def test_sources_that_are_revoked_are_another_bridges(parts):
    parts.registry.revoked([ONE], 0.0)
    assert states(parts) == {ONE: "elsewhere", TWO: "serving"}


def test_no_phase_of_a_source_or_a_session_follows_another_by_mistake(parts):
    state, session = parts.registry.states[ONE], parts.session(ONE)
    with pytest.raises(AssertionError, match="READY to IDLE"):
        session.enter(SessionPhase.IDLE)
    parts.registry.revoked([ONE], 0.0)
    assert session.phase is SessionPhase.OVER
    with pytest.raises(AssertionError, match="OVER to READY"):
        session.enter(SessionPhase.READY)
    # a lane that still had it notes what it saw: another bridge's is neither served here nor anybody's fault
    for phase in (SourcePhase.SERVING, SourcePhase.GAP, SourcePhase.NEEDS_OPERATOR):
        state.figures.enter(phase, "too late")
        assert (state.figures.state, state.figures.reason) == (SourcePhase.ELSEWHERE, "")


def test_a_source_whose_position_can_be_read_again_is_said_to_be_served(caplog):
    # given
    parts = BridgeParts(*SOURCES)
    caplog.set_level(logging.INFO)
    parts.registry.assigned(SOURCES, metadata())
    for _ in range(2):
        parts.registry.unreadable(ONE, 1, NotConnected("Not leader for partition"))
    # when
    parts.recover()
    # then both were logged once
    logged = [record.getMessage() for record in caplog.records if record.getMessage().startswith(ONE)]
    assert [line.partition(": ")[2][:10] for line in logged] == ["Not leader", "taken over"]
    # while an error of writing repeats, neither is logged again
    for _ in range(2):
        parts.registry.recover([parts.registry.failed(parts.session(ONE), NotConnected("a disk is full"), rest=True)])
        parts.recover()
    logged = [record.getMessage() for record in caplog.records if record.getMessage().startswith(ONE)]
    assert [line.partition(": ")[2][:10] for line in logged[2:]] == ["a disk is "]
