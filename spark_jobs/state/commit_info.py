"""What the commits of a Delta table after a version report about themselves, read by the names of their files.

Versions are consecutive, so nothing is listed and no Spark job runs, however long the log is. Called by what has just committed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs import storage

_HEAD = '{"commitInfo"'


def after(spark: SparkSession, path: str, version: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the versions after one, oldest first, each with its commit's `commitInfo`."""
    while True:
        version += 1
        name = f"{path}/_delta_log/{version:020d}.json"
        if storage.is_local(spark, path):
            if not Path(storage.local(name)).exists():
                return
            lines = Path(storage.local(name)).read_text(encoding="utf-8").splitlines()
        else:
            if not storage.exists(spark, name):
                return
            lines = storage.read(spark, name).splitlines()
        yield version, next((json.loads(line)["commitInfo"] for line in lines if line.startswith(_HEAD)), {})
