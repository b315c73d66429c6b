"""This process on its machine: the limit of open files is raised and named, and what it reports that it takes."""

import errno
import mmap
import resource
import subprocess
import sys

import pytest

from headrace import process
from headrace.process import PROCESS, ProcessUse


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
