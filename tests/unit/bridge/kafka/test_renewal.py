"""K1: clients of Kafka are made again when what they read at their making has changed."""

import logging
from collections import deque
from functools import partial
from types import FunctionType, MethodType

import pytest

from bridge.bridge import Bridge
from bridge.group.membership import Membership
from bridge.kafka import writing
from bridge.kafka.writing import Renewal
from headrace.certificates.command import Authority
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.kafka import KafkaConnection
from headrace.configuration.load import load
from headrace.configuration.secret import Secret
from tests.bridge.bridge_file import bridge_file


@pytest.fixture
def watched(tmp_path):
    """Return a renewal over a certificate and a password, how often it renewed, and what moves its clock."""
    authority = Authority(tmp_path)
    certificate = authority.client("bridge")
    password = tmp_path / "password"
    password.write_text("one")
    connection = KafkaConnection(
        bootstrap="localhost:1",
        security_protocol="SASL_SSL",
        user="bridge",
        password=Secret(f"file:{password}"),
        authority=authority.certificate_file,
        certificate=certificate,
        key=certificate.with_suffix(".key"),
    )
    renewals, now = [], [0.0]
    renewal = Renewal(connection, lambda: renewals.append(now[0]), lambda: now[0])

    def look(times=3):
        for _ in range(times):
            now[0] += 3
            renewal.look()
        return len(renewals)

    return authority, password, look


def test_clients_are_renewed_once_after_each_change_of_certificate_or_password(watched):
    authority, password, look = watched
    assert look(5) == 0
    authority.client("bridge")
    assert look() == 1
    assert look(5) == 1
    password.write_text("another")
    assert look() == 2
    assert look(5) == 2


def test_files_that_do_not_fit_each_other_are_not_used_and_those_that_do_are_used_later(watched, caplog):
    authority, _, look = watched
    certificate, key = authority.folder / "bridge.pem", authority.folder / "bridge.key"
    former = key.read_bytes()
    authority.client("bridge")
    fresh = key.read_bytes()
    key.write_bytes(former)
    with caplog.at_level(logging.WARNING):
        assert look() == 0
    assert "is not the key of the certificate" in caplog.text
    assert str(certificate) in caplog.text
    key.write_bytes(fresh)
    assert look() == 1


class Producer:
    def __init__(self):
        self.waiting = []
        self.error = None

    def produce(self, _topic, value, _key, headers, on_delivery):
        self.waiting.append(on_delivery)

    def poll(self, _seconds):
        if self.error is None:
            self._report()

    def flush(self, seconds):
        self.poll(seconds)

    def purge(self):
        self.error = None

    def __len__(self):
        return len(self.waiting)

    def _report(self):
        waiting, self.waiting = self.waiting, []
        for report in waiting:
            report(None, None)


def test_a_writer_that_writes_nothing_for_long_goes_on_with_a_new_client(monkeypatch):
    """K1: the writers of answers and dead letters were never made again."""
    producers, now = [], [0.0]
    monkeypatch.setattr("bridge.kafka.writing.time.monotonic", lambda: now[0])
    monkeypatch.setattr(writing, "record_producer", lambda _connection: producers.append(Producer()) or producers[-1])
    writer = writing.RecordWriter(None, "answers")
    now[0] = 1000.0
    writer.poll()
    assert len(producers) == 1
    producers[0].error = "not reached"
    reported = []
    writer.write(None, b"", reported.append)
    for _ in range(100):
        now[0] += 1
        writer.poll()
    assert len(producers) == 2
    # what was on its way is reported, so that its owner writes it again where it was not taken
    assert len(reported) == 1
    writer.renew()
    writer.poll()
    assert len(producers) == 3


def test_every_holder_of_clients_is_in_the_bridges_list(tmp_path, monkeypatch):
    """One that is not there goes on with the former certificate until the bridge is started again."""
    more = '[deliveries.alerts]\naddress = "alerts/{region}"\n\n[requests]\n\n[registry]\nurl = "http://localhost:1"\n'
    bridge = Bridge(load(bridge_file(tmp_path, "localhost:1", {"a/one": [0]}, topic="bank", more=more), BridgeFile))
    bridge.lanes = [bridge._lane(0), bridge._lane(None)]
    bridge._membership = Membership(None, {}, bridge.registry, 6.0)
    renewed = []
    for kind in {type(each) for each in find_renewable(bridge, renewed)}:
        monkeypatch.setattr(kind, "renew", noting(kind.renew, renewed))
    bridge._renew()
    kinds = [type(each).__name__ for each in renewed]
    assert {"Positions", "Lane", "Membership", "Deliveries", "RequestWorker"} <= set(kinds)
    assert (kinds.count("Positions"), kinds.count("Lane")) == (2, 2)
    assert [type(each).__name__ for each in find_renewable(bridge, renewed)] == []


def noting(renew, renewed):
    def noted(each, **named):
        renewed.append(each)
        renew(each, **named)

    return noted


def find_renewable(holder, renewed):
    """Return what is held that can be renewed, but for what `renewed` ones hold: these pass it on as they need."""
    found, waiting, seen = [], [holder], set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen or any(each is other for other in renewed):
            continue
        seen.add(id(each))
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, (list, tuple, set, deque)):
            waiting += each
        elif isinstance(each, partial):
            waiting += [each.func, *each.args, *each.keywords.values()]
        elif isinstance(each, MethodType):
            waiting.append(each.__self__)
        elif isinstance(each, FunctionType):
            waiting += [cell.cell_contents for cell in each.__closure__ or ()]
        elif type(each).__module__.partition(".")[0] in {"bridge", "headrace"}:
            found += [each] if hasattr(type(each), "renew") else []
            waiting += vars(each).values() if hasattr(each, "__dict__") else ()
    return found
