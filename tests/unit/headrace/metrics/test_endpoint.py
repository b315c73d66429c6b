"""The endpoint of metrics: a flood of questions leaves the part its processor."""

import threading
import urllib.request
from types import SimpleNamespace

import pytest

from headrace.metrics import endpoint
from headrace.metrics.endpoint import Endpoint


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves while an answer is made, by a tenth of a second, and while one waits."""
    now = [100.0]
    monkeypatch.setattr(endpoint.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(endpoint.time, "thread_time", lambda: now[0])
    monkeypatch.setattr(endpoint.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def test_of_the_time_a_quarter_is_answers_however_many_ask(clock):
    made = []

    def text():
        clock[0] += 0.1
        made.append(threading.get_ident())
        return b"x"

    served = SimpleNamespace(collector=SimpleNamespace(text=text))
    listening = Endpoint("127.0.0.1:0", served)
    try:
        began = clock[0]
        asking = [
            threading.Thread(target=lambda: urllib.request.urlopen(f"http://127.0.0.1:{listening.port}/metrics").read())
            for _ in range(20)
        ]
        for each in asking:
            each.start()
        for each in asking:
            each.join(60)
    finally:
        listening.stop()
    assert len(made) == 20
    assert clock[0] - began == pytest.approx(20 * 0.1 + 19 * 0.3)


def test_an_answer_during_which_the_machine_stood_still_makes_the_next_one_wait_no_longer(clock, monkeypatch):
    """After a minute in the middle of one nobody, Prometheus included, was answered for three."""
    monkeypatch.setattr(endpoint.time, "thread_time", lambda: 1.0)

    def text():
        clock[0] += 60
        return b"x"

    listening = Endpoint("127.0.0.1:0", SimpleNamespace(collector=SimpleNamespace(text=text)))
    try:
        began = clock[0]
        for _ in range(2):
            urllib.request.urlopen(f"http://127.0.0.1:{listening.port}/metrics").read()
    finally:
        listening.stop()
    assert clock[0] - began == pytest.approx(2 * 60)


def test_a_defect_of_an_answer_is_logged_by_its_class_and_place(caplog):
    def text():
        raise KeyError("4929-1234")

    listening = Endpoint("127.0.0.1:0", SimpleNamespace(collector=SimpleNamespace(text=text)))
    try:
        with pytest.raises(OSError, match="closed connection"):
            urllib.request.urlopen(f"http://127.0.0.1:{listening.port}/metrics", timeout=30)
    finally:
        listening.stop()
    assert "a request to the endpoint of metrics of 127.0.0.1 is refused: KeyError at " in caplog.text
    assert "4929" not in caplog.text
