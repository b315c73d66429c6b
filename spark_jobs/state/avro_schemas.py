"""The schemas of records in Avro, noted once they were looked up: `<root>/avro_schemas` has a row for each id of a stream.

What was noted needs no registry any more: records are read again as they were, also when the registry was emptied since. Two
loads that note the same id at the same time do no harm. Called by bronze.
"""

import json
from collections import defaultdict
from collections.abc import Mapping

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from spark_jobs.errors import is_conflict
from spark_jobs.state import delta_log

_TRIES = 8
#: Schemas by id, of each stream of each lake, that this process has read or written; None before the first look.
_known: defaultdict[tuple[str, str], dict[int, str] | None] = defaultdict(lambda: None)


def read(spark: SparkSession, lake: LakeFile, stream: str) -> Mapping[int, str]:
    """Return the schemas of a stream by id; none where the lake's file has no registry."""
    if lake.registry is None:
        return {}
    place = (lake.root, stream)
    if (schemas := _known[place]) is None:
        schemas = _known[place] = _read(spark, lake, stream)
    return schemas


def renew(spark: SparkSession, lake: LakeFile, stream: str) -> Mapping[int, str]:
    """Return the schemas of a stream with those that other processes have noted since."""
    _known[lake.root, stream] = None
    return read(spark, lake, stream)


def note(spark: SparkSession, lake: LakeFile, stream: str, schemas: Mapping[int, str]) -> None:
    """Append schemas that are not noted yet."""
    # From text, so that no Python process is started for a few rows.
    rows = json.dumps([{"stream": stream, "id": number, "text": text} for number, text in sorted(schemas.items())])
    parsed = F.from_json(F.lit(rows), "array<struct<stream: string, id: int, text: string>>")
    frame = spark.range(1).select(F.inline(parsed)).coalesce(1)
    for tries in range(_TRIES):
        try:
            frame.write.format("delta").mode("append").save(_path(lake))
        except (PySparkException, Py4JError) as error:
            # The first loads of several streams make the table at the same time.
            if tries + 1 == _TRIES or not is_conflict(error):
                raise
        else:
            break
    _known[lake.root, stream] = {**read(spark, lake, stream), **schemas}


def _path(lake: LakeFile) -> str:
    return f"{lake.root}/avro_schemas"


def _read(spark: SparkSession, lake: LakeFile, stream: str) -> dict[int, str]:
    if not delta_log.is_table(spark, _path(lake)):
        return {}
    rows = spark.read.format("delta").load(_path(lake)).filter(F.col("stream") == stream).collect()
    return {row["id"]: row["text"] for row in rows}
