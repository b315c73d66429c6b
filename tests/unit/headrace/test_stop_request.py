"""A process that is told to stop while it waits for that stops: no lock of its own keeps it."""

import re
import subprocess
import sys
import time
from pathlib import Path

import bridge
import edge
import headrace
import spark_jobs
from headrace.waiting import StopRequest

#: A signal at each moment of a wait, thousands of times: with threading.Event this hangs within a second.
SIGNALS = """
import faulthandler, random, signal
from headrace.waiting import StopRequest
faulthandler.dump_traceback_later(50, exit=True)
for number in range(5000):
    stop = StopRequest()
    signal.signal(signal.SIGALRM, lambda *_: stop.set())
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 2e-4))
    while not stop.wait(5e-5):
        pass
"""


def test_a_signal_at_any_moment_of_a_wait_ends_it():
    done = subprocess.run([sys.executable, "-c", SIGNALS], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr


def test_a_wait_ends_when_its_time_is_over_or_the_request_is_made():
    stop = StopRequest()
    assert not stop.wait(0.01)
    assert not stop.is_set()
    stop.set()
    assert stop.is_set()
    began = time.monotonic()
    assert stop.wait(60)
    assert time.monotonic() - began < 30


#: A handler of signals that makes a request, and what its name is bound to.
_HANDLER = re.compile(r"(?:signal\.signal\([^\n]*?|_stop_by_signals\()(\w+)\.set\b")


def test_what_a_handler_of_signals_sets_has_no_lock():
    """The rule behind it: `threading.Event` in any part's handler would bring the hang back."""
    handlers = 0
    for package in (headrace, bridge, edge, spark_jobs):
        for path in Path(package.__file__).parent.rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for name in _HANDLER.findall(text):
                handlers += 1
                assert not re.search(rf"\b{name}\s*(:[^=\n]*)?=\s*(threading\.)?(Event|Condition|Lock)\(", text), path
                assert "StopRequest" in text, path
    assert handlers >= 3
