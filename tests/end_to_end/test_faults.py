"""The main job on real parts, while everything on the way is killed, cut and restarted: from two databases under load to Delta.

Every change arrives exactly once, in order; a real Airflow loads them, and proves that the lake equals the databases.
HEADRACE_SEED repeats a run's plan; the seed is printed.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from infra.local import jars
from infra.local.airflow import Airflow
from spark_jobs import load
from tests.end_to_end.every_type import TABLES, write_every_type
from tests.end_to_end.faults import Fault, every, one_of_each
from tests.end_to_end.lake import Lake
from tests.end_to_end.pipeline import STREAM, Pipeline

#: Changes that get through behind the last fault, before the writers stop.
AFTERMATH = 400


@pytest.fixture
def airflow(pipeline: Pipeline) -> Iterator[Airflow]:
    with Airflow(pipeline.folder / "airflow", pipeline.lake_file, jars=jars.spark()[0].parents[1]) as started:
        yield started


@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("compiled_queries")
def test_every_change_arrives_once_after_each_kind_of_fault_and_airflow_loads_what_came_since(
    pipeline: Pipeline, airflow: Airflow, spark: SparkSession, seed: int
) -> None:
    """Airflow's Spark compiles queries as a user's does. What it loads has every type, from the redo log to silver."""
    faults = one_of_each(pipeline, seed)
    assert len(faults) == 7
    # Given writers on two databases, everything running, and a first load while they write.
    begin(pipeline)
    pipeline.wait_for_more(500)
    load.run(spark, load_file(pipeline.lake_file, LakeFile), STREAM).check()
    lake = Lake(pipeline, spark)
    seen = _bronze(lake)

    # When everything is struck, and Airflow loads when writers have stopped.
    strike(pipeline, faults)
    assert pipeline.differences() == {}
    write_every_type(pipeline.regions[0])
    pipeline.wait_until_drained()
    _load(airflow)

    # Then the first load's rows are as they were, and the second load took what came behind them.
    ended = {part: max(row["highest"] for row in seen if row["partition"] == part) for part in (0, 1)}
    loaded = _bronze(lake)
    fresh = [row for row in loaded if row not in seen]
    assert len(fresh) == len(loaded) - len(seen)
    assert {row["partition"] for row in fresh} == {0, 1}
    assert all(row["lowest"] > ended[row["partition"]] for row in fresh)
    assert sum(row["records"] for row in loaded) == len(pipeline.records())
    lake.assert_counts()
    # And every value is the database's, bit for bit.
    verified = airflow.run("headrace_verify").check()
    assert "tables of 2 sources" in verified.log
    assert set(verified.log.split()) >= TABLES


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_every_change_arrives_exactly_once_whatever_is_killed(
    pipeline: Pipeline, spark: SparkSession, seed: int
) -> None:
    faults = every(pipeline, seed)
    assert len(faults) >= 12
    begin(pipeline)
    strike(pipeline, faults)

    # Then Kafka holds what was committed, and so does the lake.
    assert pipeline.differences() == {}
    pipeline.load()
    Lake(pipeline, spark).assert_equal()


def begin(pipeline: Pipeline) -> None:
    """Start everything, with writers on two databases."""
    pipeline.start()
    for region in pipeline.regions:
        region.workload.start()


def strike(pipeline: Pipeline, faults: list[Fault]) -> None:
    """Strike everything, each time after some more changes got through; then end the writers, and wait for what they wrote."""
    for number, fault in enumerate(faults, 1):
        pipeline.wait_for_more(fault.after_changes)
        print(f"fault {number} of {len(faults)}: {fault.name}", flush=True)
        fault.strike()
    pipeline.wait_for_more(AFTERMATH)
    pipeline.stop_writers()
    pipeline.wait_until_drained()


def _load(airflow: Airflow) -> None:
    done = airflow.run(f"headrace_load_{STREAM}", seconds=1500).check()
    assert [(task.name, task.state) for task in done.tasks] == [
        ("check", "success"),
        ("bronze", "success"),
        ("silver", "success"),
        ("stopped_tables", "success"),
        ("table_assets", "success"),
    ]
    assert f"headrace/{STREAM}" in done.assets


def _bronze(lake: Lake) -> list[dict[str, Any]]:
    """Return what each load brought: partition, moment, first and last offset, how many records."""
    return lake.ask(f"""
        SELECT partition, CAST(loaded_at AS STRING) AS moment, min(offset) AS lowest, max(offset) AS highest,
               count(*) AS records
        FROM bronze.{STREAM} GROUP BY partition, loaded_at
    """)
