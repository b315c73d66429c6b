"""Records in bronze of a table that was renamed at its source: there they are records of the table by its new name.

So loads, replays, rebuilds and erasures find them by that name, as if the table had always had it. What is published of the
former name has the rename. Records that come to bronze again, from Kafka or with a bronze that was put back from a copy, are
given the new name by that. Called by renames, by replays of bronze, and ahead of what reads bronze as a whole.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from delta import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from spark_jobs.bronze import increment, sink
from spark_jobs.state import delta_log, published
from spark_jobs.state.published import Positions, Published

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Rename:
    """Records of a table by its former name that are another table's: of each source those before a position."""

    former: str
    table: str
    before: Positions

    def condition(self) -> Column:
        """Return the condition that a record has the former name and another one now."""
        # One look-up, however many sources there are.
        ends = F.from_json(F.lit(json.dumps(self.before)), "map<string, string>")
        return (F.col("table") == self.former) & (F.col("position") < ends[F.col("source")])


def of(state: Published) -> list[Rename]:
    """Return the renames of a stream's tables, in the order in which they were done."""
    dropped = sorted(state.dropped.items(), key=lambda item: item[1].at)
    return [
        Rename(former=name, table=drop.renamed.table, before=drop.renamed.before)
        for name, drop in dropped
        if drop.renamed is not None
    ]


def find_former(state: Published, table: str) -> set[str]:
    """Return the names that a table had before."""
    names = {table}
    for rename in reversed(of(state)):
        names |= {rename.former} if rename.table in names else set()
    return names - {table}


def named(rows: DataFrame, renames: Sequence[Rename]) -> DataFrame:
    """Return bronze's rows, each with the name that its table has now."""
    for rename in renames:
        name = F.when(rename.condition(), F.lit(rename.table)).otherwise(F.col("table"))
        rows = rows.withColumn("table", name)
    return rows


def write(spark: SparkSession, lake: LakeFile, stream: str, rename: Rename) -> bool:
    """Give records in bronze their table's new name, in one commit; return whether there were any.

    Behind it nothing before it is read by the log.
    """
    path = sink.table_path(lake, stream)
    if spark.read.format("delta").load(path).filter(rename.condition()).isEmpty():
        return False
    session = spark.newSession()
    note = {"stream": stream, "former": rename.former, "table": rename.table, "before": rename.before}
    session.conf.set(delta_log.NOTE_SETTING, delta_log.write(increment.RENAMED, **note))
    DeltaTable.forPath(session, path).update(rename.condition(), {"table": F.lit(rename.table)})
    return True


def read_written(spark: SparkSession, path: str, former: str, table: str) -> Rename | None:
    """Return a rename that bronze has already, by its newest note of one; None for another one."""
    written = delta_log.note(spark, path, increment.RENAMED)
    if written is None or (written[1]["former"], written[1]["table"]) != (former, table):
        return None
    return Rename(former=former, table=table, before=dict(written[1]["before"]))


def write_again(spark: SparkSession, lake: LakeFile, stream: str) -> bool:
    """Give records their table's new name where bronze is another table than the one that is published; return whether it did."""
    state = published.latest(spark, lake, stream)
    renames, path = of(state), sink.table_path(lake, stream)
    if not renames or not delta_log.is_table(spark, path):
        return False
    if published.known_versions(spark, path, state).bronze_version is not None:
        return False
    written = [rename.former for rename in renames if write(spark, lake, stream, rename)]
    if written:
        _log.warning("bronze of stream %s has records of %s by their former names again", stream, ", ".join(written))
    return bool(written)
