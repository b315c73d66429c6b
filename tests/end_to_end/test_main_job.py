"""The main job on real parts: from two databases under load to Delta, loaded twice by a real Airflow, and proved equal."""

from collections.abc import Iterator
from typing import Any

import pytest

from infra.local import jars
from infra.local.airflow import Airflow, DagRun
from tests.end_to_end.lake import assert_equal
from tests.end_to_end.pipeline import STREAM, Pipeline


@pytest.fixture
def airflow(pipeline: Pipeline) -> Iterator[Airflow]:
    with Airflow(pipeline.folder / "airflow", pipeline.lake_file, jars=jars.spark()[0].parents[1]) as started:
        yield started


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("compiled_queries")
def test_second_load_by_airflow_takes_only_what_came_since(pipeline: Pipeline, airflow: Airflow) -> None:
    # Given writers on two databases, and everything running.
    pipeline.start()
    for region in pipeline.regions:
        region.workload.start()
    pipeline.wait_for_more(2000)

    # When Airflow loads while they write, and again when they have stopped.
    _load(airflow)
    seen = _bronze(pipeline)
    pipeline.wait_for_more(2000)
    pipeline.stop_writers()
    pipeline.wait_until_drained()
    _load(airflow)

    # Then the first load's rows stand as they stood, and the second brought what came behind them.
    ended = {part: max(row["highest"] for row in seen if row["partition"] == part) for part in (0, 1)}
    loaded = _bronze(pipeline)
    fresh = [row for row in loaded if row not in seen]
    assert len(fresh) == len(loaded) - len(seen)
    assert {row["partition"] for row in fresh} == {0, 1}
    assert all(row["lowest"] > ended[row["partition"]] for row in fresh)
    records = pipeline.records()
    assert sum(row["records"] for row in loaded) == len(records)
    assert pipeline.differences(records) == {}
    assert_equal(pipeline)


def _load(airflow: Airflow) -> DagRun:
    return airflow.run(f"headrace_load_{STREAM}", seconds=1500).check()


def _bronze(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Return what each load brought: partition, moment, first and last offset, how many records."""
    return pipeline.ask(f"""
        SELECT partition, CAST(loaded_at AS STRING) AS moment, min(offset) AS lowest, max(offset) AS highest,
               count(*) AS records
        FROM bronze.{STREAM} GROUP BY partition, loaded_at
    """)
