"""A driver that loads again and again holds no more of its heap after many loads than after a few."""

import json
import subprocess
import sys

import pytest

#: What the heap may have grown by from load 20 to load 60, in bytes: the plans that Spark keeps of the past vary in size.
GROWTH = 15_000_000


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["driver", "server"])
def test_heap_of_a_driver_does_not_grow_with_the_number_of_loads(tmp_path, kind):
    command = [sys.executable, "-m", "tests.lake.heap", str(tmp_path), kind, "20", "60"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=1700)

    heap = json.loads(done.stdout.splitlines()[-1])

    assert heap["60"] - heap["20"] < GROWTH, heap
