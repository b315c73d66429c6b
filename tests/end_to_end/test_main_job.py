"""The main job on real parts: from two databases under load to Delta, loaded twice by a real Airflow, and proved equal.

Spark compiles queries as a user's does. What the second load brings has every type, from the redo log to silver.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from infra.local import jars
from infra.local.airflow import Airflow
from tests.end_to_end.every_type import TABLES, write_every_type
from tests.end_to_end.lake import Lake
from tests.end_to_end.pipeline import STREAM, Pipeline


@pytest.fixture
def airflow(pipeline: Pipeline) -> Iterator[Airflow]:
    with Airflow(pipeline.folder / "airflow", pipeline.lake_file, jars=jars.spark()[0].parents[1]) as started:
        yield started


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("compiled_queries")
def test_second_load_by_airflow_takes_only_what_came_since(
    pipeline: Pipeline, airflow: Airflow, spark: SparkSession
) -> None:
    # Given writers on two databases, and everything running.
    pipeline.start()
    for region in pipeline.regions:
        region.workload.start()
    pipeline.wait_for_more(500)

    # When Airflow loads while they write, and again when they have stopped.
    _load(airflow)
    lake = Lake(pipeline, spark)
    seen = _bronze(lake)
    pipeline.wait_for_more(500)
    pipeline.stop_writers()
    pipeline.wait_until_drained()
    assert pipeline.differences() == {}
    write_every_type(pipeline.regions[0])
    pipeline.wait_until_drained()
    _load(airflow)

    # Then the first load's rows stand as they stood, and the second brought what came behind them.
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


def _load(airflow: Airflow) -> None:
    done = airflow.run(f"headrace_load_{STREAM}", seconds=1500).check()
    assert [(task.name, task.state) for task in done.tasks] == [
        ("check", "success"),
        ("bronze", "success"),
        ("silver", "success"),
        ("stopped_tables", "success"),
    ]
    assert done.assets == [f"headrace/{STREAM}"]


def _bronze(lake: Lake) -> list[dict[str, Any]]:
    """Return what each load brought: partition, moment, first and last offset, how many records."""
    return lake.ask(f"""
        SELECT partition, CAST(loaded_at AS STRING) AS moment, min(offset) AS lowest, max(offset) AS highest,
               count(*) AS records
        FROM bronze.{STREAM} GROUP BY partition, loaded_at
    """)
