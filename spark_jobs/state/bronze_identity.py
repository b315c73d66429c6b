"""Whether versions of bronze that were noted with what is published are versions of the bronze that is there now.

A version is known by the id of its own commit. Bronze that was made again, or put back from an older copy, has another commit
there, or none: then nothing is known of what came after it, and all of it is read. It may also lack records that silver has:
until it has caught up, no table is made of it that needs them. Called by loads, replays and live rows.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.errors import NeedsOperator
from spark_jobs.state import delta_log
from spark_jobs.state.published_rows import Published

_log = logging.getLogger(__name__)


def known_versions(spark: SparkSession, path: str, state: Published) -> Published:
    """Return what is published, without its versions of bronze where the table at the path has not these versions."""
    if state.bronze_version is None:
        return state
    commit = delta_log.commit_id(spark, path, state.bronze_version)
    # Earlier releases noted no commit.
    same = commit is not None and state.bronze_commit in {None, commit}
    return state if same else without_versions(state)


def without_versions(state: Published) -> Published:
    """Return what is published, of which no version of bronze is known."""
    tables = {name: replace(table, bronze_after=None) for name, table in state.tables.items()}
    return replace(state, bronze_version=None, bronze_commit=None, bronze_done=None, unfinished={}, tables=tables)


def refuse_removed(low: Mapping[str, str], removed: Mapping[str, str], what: str) -> None:
    """Raise NeedsOperator where what is made of bronze from some positions on needs records that were too old to be kept."""
    if sources := sorted(source for source, cut in removed.items() if low.get(source, "") < cut):
        starts = ", ".join(f"{source} after {removed[source]}" for source in sources)
        raise NeedsOperator(
            f"{what} needs records that were removed from bronze after 'bronze_keep_days': it has those of {starts}",
            hint="Name a later time or position (--from, --as-of). To build a table from its beginning, copy it at these sources "
            "('headrace edge snapshot TABLE --replace'), load, and run 'headrace lake rebuild STREAM TABLE'.",
        )


def find_lacking(bronze: DataFrame, state: Published) -> set[str]:
    """Return the sources of which bronze ends ahead of what is published; none while its versions are known."""
    if state.bronze_version is not None or not state.positions:
        return set()
    # A schema record may be there ahead of its change; the mark of a copy has a transaction of its own.
    groups = bronze.filter(F.col("op").isNotNull() | F.col("transaction_id").isNotNull()).groupBy("source")
    ends = {row["source"]: row["position"] for row in groups.agg(F.max("position").alias("position")).collect()}
    if sources := ends_ahead(ends, state):
        _log.warning("bronze of stream %s lacks published records of %s", state.stream, ", ".join(sorted(sources)))
    return sources


def ends_ahead(ends: Mapping[str, str], state: Published) -> set[str]:
    """Return the sources of which the last records are ahead of what is published."""
    return {source for source, position in state.positions.items() if ends.get(source, "") < position}


def refuse_lacking(bronze: DataFrame, state: Published) -> None:
    """Raise NeedsOperator where bronze lacks records of what is published: what is made of it would lack them too."""
    if sources := find_lacking(bronze, state):
        raise NeedsOperator(
            f"bronze of stream {state.stream!r} lacks records of {', '.join(sorted(sources))} that are published",
            hint=f"It was made again, or is an older copy. Run 'headrace lake load {state.stream}' first; where Kafka no longer "
            "holds them, copy the tables again ('headrace edge snapshot --replace').",
        )
