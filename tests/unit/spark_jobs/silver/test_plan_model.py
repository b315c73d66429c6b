"""Random histories of a stream, by the model of plan_model.py: after each load every table equals a fold of bronze."""

import pytest

from tests.unit.spark_jobs.silver.plan_model import World

HISTORIES = 75
STEPS = 60


@pytest.mark.parametrize("part", range(4))
def test_after_any_history_every_table_equals_a_fold_of_bronze(part):
    for seed in range(part * HISTORIES, (part + 1) * HISTORIES):
        world = World(seed)
        try:
            for _ in range(STEPS):
                world.step()
                world.check()
            world.finish()
        except Exception as error:
            raise AssertionError(f"history {seed}") from error
