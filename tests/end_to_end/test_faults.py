"""Everything on the way is killed, cut and restarted at random moments, and yet every change arrives exactly once, in order.

HEADRACE_SEED repeats a run's plan; the seed is printed.
"""

import os
import random

import pytest
from pyspark.sql import SparkSession

from tests.end_to_end.faults import Fault, every, one_of_each
from tests.end_to_end.lake import Lake
from tests.end_to_end.pipeline import Pipeline

#: Changes that get through behind the last fault, before the writers stop.
AFTERMATH = 400


@pytest.mark.timeout(1200)
def test_every_change_arrives_exactly_once_after_each_kind_of_fault(
    pipeline: Pipeline, spark: SparkSession, seed: int
) -> None:
    faults = one_of_each(pipeline, seed)
    assert len(faults) == 7
    exactly_once(pipeline, spark, faults)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_every_change_arrives_exactly_once_whatever_is_killed(
    pipeline: Pipeline, spark: SparkSession, seed: int
) -> None:
    faults = every(pipeline, seed)
    assert len(faults) >= 12
    exactly_once(pipeline, spark, faults)


@pytest.fixture
def seed() -> int:
    """Return the run's seed, and print it."""
    given = int(os.environ.get("HEADRACE_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"\nHEADRACE_SEED={given}", flush=True)
    return given


def exactly_once(pipeline: Pipeline, spark: SparkSession, faults: list[Fault]) -> None:
    """Write to two databases, make the faults, and compare what was committed with Kafka and the lake."""
    # Given writers on two databases and everything running.
    pipeline.start()
    for region in pipeline.regions:
        region.workload.start()

    # When everything is struck, each time after some more changes got through.
    for number, fault in enumerate(faults, 1):
        pipeline.wait_for_more(fault.after_changes)
        print(f"fault {number} of {len(faults)}: {fault.name}", flush=True)
        fault.strike()
    pipeline.wait_for_more(AFTERMATH)
    pipeline.stop_writers()
    pipeline.wait_until_drained()

    # Then Kafka holds what was committed, and so does the lake.
    assert pipeline.differences() == {}
    pipeline.load()
    Lake(pipeline, spark).assert_equal()
