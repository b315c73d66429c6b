"""What a process reports that it takes."""

import pytest

from headrace.metrics.process import PROCESS, ProcessUse


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
    taken = b"x" * (64 << 20)
    assert PROCESS.memory_bytes - before > 50 << 20
    assert len(taken) == 64 << 20
