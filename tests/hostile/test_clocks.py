"""Machines whose clocks are a day apart: what is bounded by time allows for that, or says that clocks are to be compared."""

import datetime as dt
import time

import pytest

from bridge.model.delivery import Accept, Reject
from bridge.requests.pending import PendingRequests
from headrace.certificates import command
from headrace.certificates.command import Authority
from headrace.requests import content_of, encode, new_request
from tests.amqp.interconnect_ends import Edge, Far, pem, sealed
from tests.hostile.bodies import delivery, of_json, properties
from tests.rules.waiting import eventually
from tests.unit.bridge.kafka_double import BridgeParts, metadata
from tests.unit.edge.requests.test_service import Setup

DAY = 86_400


@pytest.fixture
def parts():
    bridge_parts = BridgeParts("a/one")
    bridge_parts.registry.assigned(("a/one",), metadata())
    bridge_parts.recover()
    bridge_parts.lanes[0].turn(0)
    return bridge_parts


def send(parts, ticket, epoch):
    parts.session("a/one").inbox.put(delivery(ticket, properties(epoch=int(epoch)), of_json()))
    parts.lanes[0].turn(0)
    return parts.deliverer.outcomes[ticket]


@pytest.mark.parametrize("days", [-1, 1])
def test_an_edge_whose_clock_is_a_day_off_begins_its_log_and_once_it_is_right_the_next_one(parts, days):
    assert send(parts, 1, time.time() + days * DAY) == Accept()
    # headrace.position.new_epoch: above the one before.
    assert send(parts, 2, max(time.time(), time.time() + days * DAY) + 1) == Accept()


def test_an_edge_whose_clock_is_three_days_ahead_is_told_so_and_takes_no_position(parts):
    outcome = send(parts, 1, time.time() + 3 * DAY)
    assert isinstance(outcome, Reject)
    assert "Correct the clock" in outcome.description
    assert send(parts, 2, time.time()) == Accept()


@pytest.mark.parametrize(("days", "outcome"), [(1, "expired"), (-1, "refused")])
def test_an_edge_whose_clock_is_a_day_off_answers_a_request_with_a_hint_at_clocks_and_does_nothing(
    tmp_path, days, outcome
):
    setup = Setup(tmp_path)
    setup.clock.now += days * DAY
    request = new_request("jakarta/bank", "snapshot", "ann@hq", 30, {})
    assert setup.service.receive(encode(request)) == Accept()
    found, content, _ = setup.answer()
    assert (found, setup.done) == (outcome, [])
    assert "clocks" in content.hint
    setup.service.stop(5)


@pytest.mark.parametrize("days", [-1, 0, 1])
def test_a_bridge_whose_clock_is_a_day_off_carries_what_is_asked_now_until_its_deadline(days):
    """One a day ahead dropped each request, and its caller read that no bridge runs."""
    now, turned = time.time(), [0.0]
    answers = []
    pending = PendingRequests(
        lambda _source: True, answers.append, clock=lambda: now + days * DAY, monotonic=lambda: turned[0]
    )
    request = new_request("jakarta/bank", "status", "ann@hq", 30, {})
    pending.add(request, encode(request), now)
    assert pending.take("requests/jakarta/bank").record.value == encode(request)
    turned[0] = 29
    pending.expire()
    assert answers == []
    turned[0] = 31
    pending.expire()
    assert ([part.outcome for part in answers], pending.sources()) == (["expired"], [])


@pytest.mark.parametrize(("ahead", "answered"), [(-DAY, ["refused"]), (0, []), (DAY, [])])
def test_what_is_read_late_is_judged_by_the_bridges_clock(ahead, answered):
    now, answers = time.time(), []
    pending = PendingRequests(lambda _source: True, answers.append, clock=lambda: now + ahead)
    request = new_request("jakarta/bank", "status", "ann@hq", 30, {})
    pending.add(request, encode(request))
    # What is a day late was another bridge's, which answered it.
    assert [part.outcome for part in answers] == answered
    assert bool(pending.sources()) == (ahead == 0)
    assert all("clocks" in content_of(part.content).hint for part in answers)


def test_a_request_whose_deadline_had_passed_when_it_was_written_is_refused_with_a_hint_at_clocks():
    now, answers = time.time(), []
    pending = PendingRequests(lambda _source: True, answers.append)
    request = new_request("jakarta/bank", "status", "ann@hq", 30, {})
    # where the topic has the brokers' own times (LogAppendTime), and they are a day ahead
    pending.add(request, encode(request), now + DAY)
    assert [part.outcome for part in answers] == ["refused"]
    assert "clocks" in content_of(answers[0].content).hint


@pytest.mark.parametrize("early", ["edge", "bridge"])
def test_a_certificate_that_is_not_valid_yet_lets_nobody_in_and_the_log_names_the_clock(
    certificates, monkeypatch, caplog, early
):
    ours = certificates / "ours"
    monkeypatch.setattr(command, "_EARLIER", dt.timedelta(days=-1))
    if early == "edge":
        Authority(ours).client("jakarta/bank")
    else:
        Authority(ours).server("bridge", ["localhost"])
    far = Far(**pem(ours, "bridge"))
    edge = Edge(far.url(scheme="amqps", host="localhost"), **pem(ours, "jakarta-bank"))
    edge.put(sealed(1, 1))
    eventually(lambda: "valid yet" in caplog.text, saying="the reason is said")
    eventually(lambda: "Check this machine's clock" in caplog.text)
    assert far.numbers["jakarta/bank"] == []
    assert edge.outbox.problem is None
    edge.close()
    far.close()
