"""Transactions that bridges left open: each bridge's are ended, whatever becomes of another one's."""

import pytest

from bridge.kafka import producer
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NotConnected

PLACES = [("bank", 0)]


@pytest.fixture
def ended(monkeypatch):
    """Return the transactional ids that were ended, and those that cannot be for now."""
    ids, refused = [], set()

    class Producer:
        def __init__(self, _connection, transactional_id, _limit):
            ids.append(transactional_id)
            if transactional_id in refused:
                raise NotConnected("its coordinator is away")

        def discard(self):
            pass

    monkeypatch.setattr(producer, "KafkaProducer", Producer)
    monkeypatch.setattr(producer.Leftovers, "_instances", lambda *_: {"one", "two", "own"})
    return ids, refused


def test_one_whose_coordinator_is_away_keeps_no_other_waiting_and_is_tried_again_soon(ended, monkeypatch):
    ids, refused = ended
    refused.add("headrace.one.0")
    leftovers = producer.Leftovers(KafkaConnection(bootstrap="127.0.0.1:1"), "own", ["0"])
    leftovers.end("group", PLACES)
    assert sorted(ids) == ["headrace.one.0", "headrace.two.0"]
    # not at each look: it may be at work
    leftovers.end("group", PLACES)
    assert len(ids) == 2
    # when the pause after a failure is over, that of what was ended is not
    monkeypatch.setattr(producer, "_FAILED_SECONDS", 0.0)
    leftovers = producer.Leftovers(KafkaConnection(bootstrap="127.0.0.1:1"), "own", ["0"])
    leftovers.end("group", PLACES)
    refused.clear()
    leftovers.end("group", PLACES)
    assert sorted(ids[2:4]) == ["headrace.one.0", "headrace.two.0"]
    assert ids[4:] == ["headrace.one.0"]
