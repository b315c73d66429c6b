"""A fixed number of seeds in every test run; `make simulate SEEDS=100000` runs more of them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: About half a minute for each scenario on one core.
SEEDS = {"edge": 300, "whole": 200}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", sorted(SEEDS))
def test_every_change_arrives_once_and_in_order_whatever_happens(scenario: str) -> None:
    """E1, E2, E6, E7 and whatever else a seed finds: the message shows what happened last, and how to run that seed again."""
    command = [sys.executable, "-m", "tests.simulation", scenario, "--seeds", f"0:{SEEDS[scenario]}"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr[-5_000:]
    assert f"{SEEDS[scenario]} runs" in run.stdout


def test_a_seed_repeats_exactly() -> None:
    command = [sys.executable, "-m", "tests.simulation", "edge", "--seed", "7", "--trace"]
    first, second = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()[:-1]
        for _ in range(2)
    )
    assert len(first) > 20
    # Folders have names of their own in each run.
    assert [line for line in first if "/tmp" not in line] == [line for line in second if "/tmp" not in line]
