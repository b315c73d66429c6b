"""A thread that does not return is seen wherever a bridge is looked at, and costs what it does and nothing else."""

import re
import threading

import pytest

from bridge import service
from bridge.bridge import Bridge
from bridge.model.ports import Committed
from bridge.positions.read import Positions
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from tests.bridge.bridge_file import bridge_file
from tests.rules.waiting import eventually

MORE = '[deliveries.alerts]\naddress = "alerts/{region}"\n\n[requests]\n\n[registry]\nurl = "http://localhost:1"\n'


@pytest.fixture
def hung(tmp_path, monkeypatch):
    """Return a bridge without a Kafka of which a test has threads hang, by name, and what lets them go on."""
    monkeypatch.setattr(service, "HUNG_SECONDS", 0.0)
    bridge = Bridge(load(bridge_file(tmp_path, "localhost:1", {"a/one": [0]}, topic="bank", more=MORE), BridgeFile))
    bridge._service.waits_for, bridge.receiver.connected, goes_on = "", True, threading.Event()
    bridge.deliveries.start(lambda *_thread: None)
    yield bridge, lambda *names: [bridge._threads.start(name, goes_on.wait) for name in names]
    goes_on.set()
    assert bridge._threads.end(10) == set()


def shown(bridge, word):
    said = rf"{word}: Kafka's client has not returned for \d+ s"
    return re.search(said, bridge._service.status().reason) is not None


@pytest.mark.parametrize(
    "name", ["delivery alerts", "requests", "withheld", "brokers", "schemas", "membership", "recovery"]
)
def test_a_thread_that_hangs_is_shown_in_state_and_metrics(hung, name):
    bridge, hang = hung
    hang(name)
    eventually(bridge._threads.hanging, 10)
    bridge._look_at_threads()
    assert shown(bridge, name)
    assert f'headrace_bridge_thread_silent_seconds{{thread="{name}"}}'.encode() in bridge._service.collector.text()
    (delivery,) = bridge._service.status().deliveries
    assert (delivery.state == "waiting for Kafka") == (name == "delivery alerts")
    # one by which sources are served keeps a bridge without any from being ready, and no other one does
    assert bool(bridge._trouble()) == (name in {"membership", "recovery"})


def test_a_releaser_that_hangs_holds_up_no_delivery(hung):
    """Sources that released a table, or waited for a look, took nothing until it returned."""
    bridge, hang = hung
    state = bridge.registry.states["a/one"]
    state.needs_records = True
    lease = bridge.registry.ownership.gain(["a/one"], None)["a/one"]
    state.begin(lease)
    session = make_session(bridge, lease)
    session.looks_first, session.dirty = True, False
    session.release.begin("public.t")
    hang("withheld")
    eventually(bridge._threads.hanging, 10)
    bridge._look_at_threads()
    assert (session.looks_first, session.release.table) == (False, "")


def make_session(bridge, lease):
    bridge.registry.serve("a/one", lease, Committed(None, "", "", {}))
    return bridge.registry.states["a/one"].session


def test_a_recovery_that_hangs_has_a_successor(hung, monkeypatch):
    bridge, hang = hung
    monkeypatch.setattr("bridge.bridge._STUCK_SECONDS", 0.0)
    monkeypatch.setattr(Positions, "read", lambda _self, sources: dict.fromkeys(sources))
    former = bridge.search.reader
    hang("search")
    eventually(bridge._threads.hanging, 10)
    bridge._look_at_threads()
    assert bridge.search.reader is not former
    assert bridge._positions == [bridge.recovery.reader, bridge.search.reader]
