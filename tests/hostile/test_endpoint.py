"""The endpoint of metrics: what is no question, or comes too often, is answered or closed, and counted by who sent it."""

import socket
import urllib.request
from types import SimpleNamespace

import pytest

from headrace import doors
from headrace.metrics import endpoint
from headrace.metrics.endpoint import Endpoint
from tests.rules.waiting import eventually

#: Bytes by what is wrong with them.
REQUESTS = {
    "no HTTP": b"\x16\x03\x01\x02\x00\r\n\r\n",
    "another method": b"TRACE /metrics HTTP/1.1\r\n\r\n",
    "a line without end": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    "headers without end": b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
    "a version that is none": b"GET /metrics HTTP/9999999999.x\r\n\r\n",
}


@pytest.fixture
def listening():
    made = Endpoint("127.0.0.1:0", SimpleNamespace(collector=SimpleNamespace(text=lambda: b"figures")))
    yield made
    made.stop()


def refused():
    return doors.ENDPOINT.refused.get("127.0.0.1", 0)


def figures(listening):
    return urllib.request.urlopen(f"http://127.0.0.1:{listening.port}/metrics", timeout=60).read()


@pytest.mark.parametrize("name", REQUESTS)
def test_what_is_no_question_is_refused_and_counted_and_the_next_one_is_answered(listening, name):
    before = refused()
    with socket.create_connection(("127.0.0.1", listening.port), timeout=60) as made:
        made.sendall(REQUESTS[name])
        eventually(lambda: refused() == before + 1, saying="it is counted")
    assert figures(listening) == b"figures"


def test_the_oldest_of_too_many_connections_is_closed_and_counted(listening, monkeypatch):
    monkeypatch.setattr(endpoint, "_MOST", 3)
    before = refused()
    open_ones = [socket.create_connection(("127.0.0.1", listening.port), timeout=60) for _ in range(6)]
    assert figures(listening) == b"figures"
    for each in open_ones:
        each.close()
    assert refused() - before >= 3


def test_an_answer_that_fails_is_logged_by_its_place_alone(caplog):
    def fail():
        raise ValueError("a secret")

    made = Endpoint("127.0.0.1:0", SimpleNamespace(collector=SimpleNamespace(text=fail)))
    with pytest.raises(OSError, match="Remote end closed"):
        figures(made)
    made.stop()
    assert "ValueError at tests/hostile/test_endpoint.py" in caplog.text
    assert "a secret" not in caplog.text


@pytest.mark.parametrize(("listen", "others"), [("127.0.0.1:0", False), ("localhost:0", False), (":0", True)])
def test_an_address_that_others_can_reach_is_named_as_such_in_the_log(caplog, listen, others):
    caplog.set_level("INFO", endpoint._log.name)
    Endpoint(listen, SimpleNamespace()).stop()
    (message,) = [each for each in caplog.messages if each.startswith("metrics, health and status on http://")]
    assert ("no password and no TLS" in message) == others
