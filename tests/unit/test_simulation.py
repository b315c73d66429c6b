"""The simulation's first seed, so that a name that it uses and that is no more is found before tests/simulation runs."""

import subprocess
import sys
from pathlib import Path


def test_the_first_seed_of_each_scenario_runs():
    command = [sys.executable, "-m", "tests.simulation", "edge", "whole", "--seed", "0"]
    run = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-10_000:] + run.stderr[-5_000:]
    assert "2 runs" in run.stdout
