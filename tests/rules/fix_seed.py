"""The seed of a run by chance: HEADRACE_SEED repeats one."""

import os
import random

import pytest


@pytest.fixture
def seed() -> int:
    """Return the run's seed, and print it."""
    given = int(os.environ.get("HEADRACE_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"\nHEADRACE_SEED={given}", flush=True)
    return given
