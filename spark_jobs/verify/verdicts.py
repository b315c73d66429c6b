"""`<root>/verified`: a row for each table of a source that was verified, with the verdict and when, for those who look later.

Holds counts and verdicts, no keys and no values. Nothing reads it but `headrace console`; a row that cannot be written fails no
verification: a verifier may have no right to write to the lake. Called by command.py.
"""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import ReplicationError
from spark_jobs.errors import explained
from spark_jobs.state import delta_log
from spark_jobs.verify.report import TableReport

_STRUCTURE = (
    "verified_at timestamp, stream string, source string, `table` string, verdict string, rows_source bigint, rows_lake bigint, "
    "ranges bigint, ranges_compared bigint, seconds double"
)
#: After this many verifications the small files of the table are put together.
_COMPACT_EVERY = 50

_log = logging.getLogger(__name__)


def path(lake: LakeFile) -> str:
    """Return the path of the table."""
    return f"{lake.root}/verified"


def record(spark: SparkSession, lake: LakeFile, stream: str, reports: Sequence[TableReport]) -> None:
    """Append a row for each report of tables of a stream; a failure is logged alone."""
    if not reports:
        return
    now = datetime.now(UTC)
    names = ("source", "table", "verdict", "rows_source", "rows_lake", "ranges", "ranges_compared", "seconds")
    rows = [{"verified_at": now, "stream": stream} | {name: getattr(each, name) for name in names} for each in reports]
    try:
        with explained("verified"):
            # Refuses a folder that holds something else.
            delta_log.is_table(spark, path(lake))
            # From text, so that no Python process is started for a few rows.
            text = F.lit(msgspec.json.encode(rows).decode())
            frame = spark.range(1).select(F.inline(F.from_json(text, f"array<struct<{_STRUCTURE}>>")))
            frame.coalesce(1).write.format("delta").mode("append").option("mergeSchema", "true").save(path(lake))
            if delta_log.version(spark, path(lake)) % _COMPACT_EVERY == _COMPACT_EVERY - 1:
                spark.sql(f"OPTIMIZE delta.`{path(lake)}`")
    except ReplicationError as error:
        _log.warning("the verification is done, but its verdicts are not recorded: %s", error.message)
