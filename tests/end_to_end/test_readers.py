"""Readers who ask while writers write and loads run: pgbench's four sums agree in every answer, for each region.

A transaction of pgbench adds one amount to an account, a teller and a branch, and notes it in the history: an answer that
saw a transaction half, or one table further than another, would have sums that differ.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from spark_jobs import load
from spark_jobs.query import engine
from tests.end_to_end.pipeline import STREAM, Pipeline
from tests.end_to_end.workload import ACCOUNTS

_AMOUNTS = {
    "pgbench_accounts": "abalance",
    "pgbench_tellers": "tbalance",
    "pgbench_branches": "bbalance",
    "pgbench_history": "delta",
}
_LOADS = 2


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_sums_agree_in_every_answer_during_loads_and_between(pipeline: Pipeline, spark: Any) -> None:
    # Given writers that never rest, and a first load, once the transaction that fills the tables is in Kafka as a whole.
    pipeline.start()
    for region in pipeline.regions:
        region.workload.rate = 10
        region.workload.start()
    pipeline.wait_for_more(ACCOUNTS + 100)
    lake = load_file(pipeline.lake_file, LakeFile)
    load.run(spark, lake, STREAM)
    sql_engine = engine.SqlEngine(spark.newSession(), lake)
    during, live, between = [], [], [_sums(sql_engine, "silver")]

    # When loads go on, and a reader asks again and again, during them and between them, of what is published and of what is not.
    with ThreadPoolExecutor(1) as pool, closing(sql_engine):
        for _ in range(_LOADS):
            pipeline.wait_for_more(100)
            running = pool.submit(load.run, spark, lake, STREAM)
            while not running.done():
                during.append(_sums(sql_engine, "silver"))
                live.append(_sums(sql_engine, "silver_live"))
            assert running.result().silver.changes
            between.append(_sums(sql_engine, "silver"))

    # Then the four sums of a region are one and the same in every answer, and every load moved them.
    for answer in (*during, *live, *between):
        assert set(answer) == {region.source for region in pipeline.regions}
        for source, sums in answer.items():
            assert set(sums) == set(_AMOUNTS)
            assert len(set(sums.values())) == 1, (source, sums)
    assert len(during) >= _LOADS
    assert len({str(answer) for answer in between}) == _LOADS + 1
    assert len(live) >= _LOADS


def _sums(sql_engine: engine.SqlEngine, database: str) -> dict[str, dict[str, int]]:
    """Return each region's sum of every table, asked in one question."""
    question = " UNION ALL ".join(
        f"SELECT _source, '{table}' AS name, CAST(sum({amount}) AS BIGINT) AS total FROM {database}.{table} GROUP BY _source"
        for table, amount in _AMOUNTS.items()
    )
    results: dict[str, dict[str, int]] = {}
    for row in sql_engine.ask(question).collect():
        results.setdefault(row["_source"], {})[row["name"]] = row["total"]
    return results
