"""This process on its machine: the limit of open files is raised and named, and what it reports that it takes.

`run --hold`: what only an operator can pass leaves the process up, not ready, with its reason, until a signal (O6, O7).
"""

import errno
import http.client
import json
import mmap
import os
import resource
import signal
import subprocess
import sys
import threading

import pytest

from headrace import process
from headrace.errors import ConfigurationError, CorruptInput, NeedsOperator, NotConnected
from headrace.process import PROCESS, HeldService, ProcessUse, run_part
from infra.local.server import free_port
from tests.rules.waiting import eventually

SOURCE = "jakarta/bank"


def test_a_part_takes_as_many_descriptors_as_the_system_lets_it_have():
    """Q15: a stock system gives 1,024, and more to who asks."""
    script = (
        "import resource, sys; from headrace.process import run_part\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))\n"
        "see = lambda: print(resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard))\n"
        "run_part('edge', see, lambda: None, sources=[], listen=None, hold=False)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_the_doctor_looks_at_the_limit(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    (enough,), (few,) = process.examine_open_files(256), process.examine_open_files(2000)
    assert (enough.level, few.level) == ("ok", "warning")
    assert few.text == "1,024 at most, where about 2,000 may be needed"
    assert "LimitNOFILE=" in few.fix


def test_the_limit_is_named_where_it_is_met():
    assert "ulimit -n" in process.open_file_reason(OSError(errno.EMFILE, "Too many open files"))
    assert process.open_file_reason(OSError(errno.ECONNREFUSED, "Connection refused")) == "Connection refused"


def test_the_processor_s_share_is_a_mean_of_at_least_ten_seconds():
    now = spent = 0.0
    use = ProcessUse(clock=lambda: now, processor=lambda: spent)
    assert use.cpu_cores is None
    now, spent = 9.9, 5.0
    assert use.cpu_cores is None
    now, spent = 20.0, 10.0
    assert use.cpu_cores == pytest.approx(0.5)
    now, spent = 29.0, 100.0
    assert use.cpu_cores == pytest.approx(0.5)
    now, spent = 40.0, 110.0
    assert use.cpu_cores == pytest.approx(5.0)


def test_memory_is_this_process_s():
    before = PROCESS.memory_bytes
    # What malloc gives may be memory that the process has already.
    with mmap.mmap(-1, 64 << 20) as taken:
        taken[:] = b"x" * len(taken)
        assert PROCESS.memory_bytes - before > 50 << 20


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
