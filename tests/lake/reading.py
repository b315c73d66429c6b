"""What stands in the lake."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from spark_jobs.query import published_tables


def rows(
    spark: SparkSession,
    lake: LakeFile,
    name: str = "public.accounts",
    stream: str = "bank",
    columns: Sequence[str] = ("id", "name", "balance"),
) -> list[tuple[Any, ...]]:
    """Return the rows of a silver table, sorted, each with its source ahead."""
    frame = published_tables.frame(spark, lake, stream, name)
    return sorted(tuple(row) for row in frame.select("_source", *columns).collect())
