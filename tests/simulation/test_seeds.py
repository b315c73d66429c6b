"""Seeds of every test run: most are the same each time, some are new; `make simulate SEEDS=100000` runs more of them."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The same in each run, and new ones; about ten seconds for each scenario on one core. Runs of `whole` have alerts, requests and
#: tables now and then; `make simulate` has them in every run of a scenario of their own.
SEEDS = {"edge": (50, 45), "whole": (15, 23)}
#: Where the new ones begin. Not drawn by the module's generator, which test runners seed.
FIRST = random.SystemRandom().randrange(10**6, 10**9)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("scenario", sorted(SEEDS))
def test_every_change_arrives_once_and_in_order_whatever_happens(scenario: str, times: int) -> None:
    """E1, E2, E6, E7, K3 and whatever else a seed finds: the message shows what happened last, and how to run that seed again."""
    fixed, fresh = (times * many for many in SEEDS[scenario])
    for first, many in ((0, fixed), (FIRST, fresh)):
        command = [sys.executable, "-m", "tests.simulation", scenario, "--seeds", f"{first}:{first + many}"]
        print(" ".join(command[1:]))
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout[-20_000:] + run.stderr[-5_000:]
        assert f"{many} runs" in run.stdout


@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_hour_without_leaders_of_half_of_the_partitions_is_their_sources_affair() -> None:
    command = [sys.executable, "-m", "tests.simulation", "leaderless", "--seeds", f"{FIRST}:{FIRST + 1}"]
    print(" ".join(command[1:]))
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr[-5_000:]


def test_a_seed_repeats_exactly() -> None:
    command = [sys.executable, "-m", "tests.simulation", "edge", "--seed", "7", "--trace"]
    first, second = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()[:-1]
        for _ in range(2)
    )
    assert len(first) > 20
    # Folders have names of their own in each run.
    assert [line for line in first if "/tmp" not in line] == [line for line in second if "/tmp" not in line]
