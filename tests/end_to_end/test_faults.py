"""Everything on the way is killed, cut and restarted at random moments, and yet every change arrives exactly once, in order.

HEADRACE_SEED repeats a run's plan; the seed is printed.
"""

import os
import random

import pytest
from pyspark.sql import SparkSession

from tests.end_to_end.faults import plan
from tests.end_to_end.lake import Lake
from tests.end_to_end.pipeline import Pipeline

#: Changes that get through behind the last fault, before the writers stop.
AFTERMATH = 400


@pytest.mark.timeout(1200)
def test_every_change_arrives_exactly_once_whatever_is_killed(pipeline: Pipeline, spark: SparkSession) -> None:
    seed = int(os.environ.get("HEADRACE_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"\nHEADRACE_SEED={seed}", flush=True)
    faults = plan(pipeline, seed)
    assert len(faults) >= 12

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
