"""The limit of open files: raised as far as it may be, and named where it is met."""

import errno
import resource
import subprocess
import sys

from headrace import descriptors


def test_a_part_takes_as_many_descriptors_as_the_system_lets_it_have():
    """Q15: a stock system gives 1,024, and more to who asks."""
    script = (
        "import resource, sys; from headrace.hold import run_part\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))\n"
        "see = lambda: print(resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard))\n"
        "run_part('edge', see, lambda: None, sources=[], listen=None, hold=False)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_the_doctor_looks_at_the_limit(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    (enough,), (few,) = descriptors.limit(256), descriptors.limit(2000)
    assert (enough.level, few.level) == ("ok", "warning")
    assert few.text == "1,024 at most, where about 2,000 may be needed"
    assert "LimitNOFILE=" in few.fix


def test_the_limit_is_named_where_it_is_met():
    assert "ulimit -n" in descriptors.reason(OSError(errno.EMFILE, "Too many open files"))
    assert descriptors.reason(OSError(errno.ECONNREFUSED, "Connection refused")) == "Connection refused"
