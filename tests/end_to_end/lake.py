"""A pipeline's lake in this process, and compared with the databases: by `headrace verify`, and by counts and sums that have
nothing to do with it.

The run's Spark session serves it: a command in a process of its own would start another JVM each time.
"""

from contextlib import closing
from typing import Any

from click.testing import CliRunner
from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from spark_jobs.query import engine
from spark_jobs.verify.command import verify
from tests.end_to_end.pipeline import STREAM, Pipeline

_COUNTS = """
    SELECT count(*) AS rows, CAST(sum({amount}) AS BIGINT) AS total FROM {table}
"""
_AMOUNTS = {
    "pgbench_accounts": "abalance",
    "pgbench_branches": "bbalance",
    "pgbench_tellers": "tbalance",
    "pgbench_history": "delta",
}


class Lake:
    """The lake that a pipeline fills."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession) -> None:
        self._pipeline, self._spark = pipeline, spark
        self._file = load_file(pipeline.lake_file, LakeFile)

    def ask(self, question: str) -> list[dict[str, Any]]:
        """Return the rows of the answer."""
        with closing(engine.SqlEngine(self._spark, self._file)) as sql_engine:
            return [row.asDict() for row in sql_engine.ask(question).collect()]

    def assert_counts(self) -> None:
        """Fail unless the lake has as many rows as the databases, and the same sums."""
        assert self._counts() == counts_of_the_databases(self._pipeline)

    def assert_equal(self) -> None:
        """Fail unless every table of the lake holds what the databases hold."""
        self.assert_counts()
        done = CliRunner().invoke(verify, ["--config", str(self._pipeline.lake_file), STREAM], catch_exceptions=False)
        assert done.exit_code == 0, done.output

    def _counts(self) -> dict[tuple[str, str], Any]:
        """Return rows and sum of amounts of each table, by source and table, in one question."""
        union = " UNION ALL ".join(
            f"SELECT _source, '{table}' AS name, count(*) AS rows, CAST(sum({amount}) AS BIGINT) AS total "
            f"FROM silver.{table} GROUP BY _source"
            for table, amount in _AMOUNTS.items()
        )
        return {(row["_source"], row["name"]): (row["rows"], row["total"]) for row in self.ask(union)}


def counts_of_the_databases(pipeline: Pipeline) -> dict[tuple[str, str], Any]:
    """Return the same from the databases."""
    results = {}
    for region in pipeline.regions:
        with region.connection() as connection, connection.cursor() as cursor:
            for table, amount in _AMOUNTS.items():
                cursor.execute(_COUNTS.format(table=table, amount=amount))
                results[region.source, table] = cursor.fetchone()
    return results
