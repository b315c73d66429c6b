"""A lake that has been left alone: every file of its logs and its tables is older than it was."""

import os
import re
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from spark_jobs.state import published

_DAY = 24 * 60 * 60
_TIMES = re.compile(r'"(timestamp|deletionTimestamp|modificationTime)":(\d{13})')


def age(spark: SparkSession, lake: LakeFile, days: float) -> None:
    """Make every file of the lake so many days older, with the times that logs hold; Delta reads its logs again."""
    spark.sql(f"UPDATE delta.`{published.path(lake)}` SET finished_at = finished_at - INTERVAL {int(days)} DAYS")
    for path in Path(lake.root).rglob("*"):
        if not path.is_file():
            continue
        stat = path.stat()
        if path.suffix == ".json" and path.parent.name == "_delta_log":
            text = path.read_text(encoding="utf-8")
            path.write_text(
                _TIMES.sub(lambda it: f'"{it[1]}":{int(it[2]) - int(days * _DAY * 1000)}', text), encoding="utf-8"
            )
            # Hadoop's checksum of what was there before.
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        if path.exists():
            os.utime(path, (stat.st_atime - days * _DAY, stat.st_mtime - days * _DAY))
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # PySpark has no other way.
