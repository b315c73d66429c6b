"""`run --hold`: what only an operator can pass leaves the process up, not ready, with its reason, until a signal (O6, O7)."""

import http.client
import json
import os
import signal
import threading

import pytest

from headrace.errors import ConfigurationError, CorruptInput, NeedsOperator, NotConnected
from headrace.hold import HeldService, run_part
from infra.local.server import free_port
from tests.rules.waiting import eventually

SOURCE = "jakarta/bank"


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.fixture(autouse=True)
def _signals():
    former = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


def run(error, *, hold, listen=None, stop=lambda: None):
    def work():
        raise error

    run_part("edge", work, stop, sources=[SOURCE], listen=listen, hold=hold)


def test_a_held_part_is_alive_and_not_ready_and_shows_why_until_a_signal_o6_o7():
    port, seen, stopped = free_port(), {}, []

    def look():
        try:
            for path in ("/health/live", "/health/ready", "/status", "/metrics"):
                seen[path] = eventually(lambda path=path: get(port, path), 20)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    error = NeedsOperator("slot 'one' is gone", hint="Run 'headrace edge init'.")
    looker = threading.Thread(target=look)
    looker.start()
    with pytest.raises(NeedsOperator) as raised:
        run(error, hold=True, listen=f"127.0.0.1:{port}", stop=lambda: stopped.append(True))
    looker.join(20)
    assert raised.value is error
    assert stopped
    assert seen["/health/live"][0] == 200
    code, text = seen["/health/ready"]
    assert code == 503
    assert "needs an operator (exit code 3): slot 'one' is gone. Run 'headrace edge init'." in text
    status = json.loads(seen["/status"][1])
    assert (status["running"], status["ready"]) == (True, False)
    assert [(each["source"], each["state"]) for each in status["sources"]] == [(SOURCE, "needs an operator")]
    assert "slot 'one' is gone" in status["sources"][0]["reason"]
    metrics = seen["/metrics"][1]
    assert 'headrace_edge_held{exit_code="3",reason="needs-operator"} 1.0' in metrics
    assert f'headrace_edge_state{{source="{SOURCE}",state="needs an operator"}} 1.0' in metrics
    assert "slot" not in metrics
    # Nothing listens any more.
    with pytest.raises(OSError, match="refused"):
        get(port, "/health/live")


@pytest.mark.parametrize("error", [NotConnected("gone"), ValueError("a defect")])
def test_what_a_restart_may_pass_ends_a_part_all_the_same(error):
    with pytest.raises(type(error)):
        run(error, hold=True)


@pytest.mark.parametrize("error", [NeedsOperator("x"), CorruptInput("x")])
def test_without_hold_every_error_ends_a_part(error):
    with pytest.raises(type(error)):
        run(error, hold=False)


def test_an_error_after_a_signal_ends_a_part_that_would_be_held():
    def work():
        os.kill(os.getpid(), signal.SIGTERM)
        raise NeedsOperator("while it stopped")

    with pytest.raises(NeedsOperator):
        run_part("edge", work, lambda: None, sources=[SOURCE], listen=None, hold=True)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (NeedsOperator(""), "needs-operator"),
        (ConfigurationError(""), "configuration-error"),
        (CorruptInput(""), "corrupt-input"),
    ],
)
def test_reasons_have_short_names(error, name):
    assert HeldService("edge", [SOURCE], error).reason == name
