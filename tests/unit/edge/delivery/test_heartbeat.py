"""What an edge says outside a session: it is heard whatever is on the way."""

from types import SimpleNamespace

import pytest

from edge.delivery.outbox import Heartbeat, Outbox
from edge.observability.figures import Figures
from headrace.batch import CONTENT_ENCODING, decode
from tests.unit.edge.delivery.test_window import batch, position


@pytest.fixture
def outbox():
    return Outbox(limit_bytes=1000, tail=position(0), confirmed=0)


@pytest.fixture
def heartbeat(outbox):
    config = SimpleNamespace(source=SimpleNamespace(name="jakarta/bank"), heartbeat_seconds=10.0)
    return Heartbeat(config, outbox, Figures(interconnect_connected=1))


def test_why_it_ends_is_said_behind_what_is_on_the_way(heartbeat, outbox, monkeypatch):
    outbox.put([batch(1)])
    ahead, _ = outbox.take()
    # Each look at the outbox finds one more accepted.
    said = []

    def look(_seconds):
        nonlocal ahead
        outbox.accepted(ahead)
        if (taken := outbox.take()) is not None:
            ahead, last = taken
            said.append(last)

    monkeypatch.setattr("edge.delivery.outbox.time.sleep", look)

    heartbeat.final("needs an operator", "the slot is gone")

    figures = [decode(it.properties, CONTENT_ENCODING, it.body).figures for it in said]
    assert [(each["state"], each["reason"]) for each in figures] == [("needs an operator", "the slot is gone")]
