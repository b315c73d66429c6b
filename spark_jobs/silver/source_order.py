"""Whether a source's records are in order, where they are in several partitions.

A source that was moved to another partition has all that is in the former one before all that is in the new one. Where its
partitions overlap in their positions, or one has something before what was applied of another, more may come late, and be
skipped: nothing of it is shown then, until an operator who knows that all of it is there has it replayed by its positions. Called
for each range of bronze that a load reads.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from spark_jobs.state.published_rows import DISORDERED

#: Why nothing of a source is shown that came since.
PROBLEM = (
    f"{DISORDERED}, so their order is not known. Other sources go on. Let it own one partition of its stream in the bridge's "
    "file; once it does, and all that it wrote is loaded into bronze, run 'headrace lake replay STREAM', which takes it in the "
    "order of its positions"
)


def find_disordered(
    bronze: DataFrame,
    groups: Sequence[Mapping[str, Any]],
    low: Mapping[str, str],
    applied: Mapping[str, Mapping[str, str]],
) -> set[str]:
    """Return the sources whose partitions overlap in their positions, or which have changes before what is published.

    What was applied of a partition, or taken by a replay, is judged no more.
    """
    suspects = find_suspects(groups, applied)
    noted = sorted(suspects & applied.keys())
    if not noted:
        return suspects
    # From here on by the rows that are beyond what was noted of their own partition.
    changes = _beyond(bronze, {source: applied[source] for source in noted})
    rows = changes.groupBy("source", "partition").agg(F.min("position"), F.max("position")).collect()
    ranges = {source: [("", max(low.get(source, ""), *applied[source].values()))] for source in noted}
    for source, _, first, final in rows:
        ranges[source].append((first, final))
    return (suspects - set(noted)) | {source for source, of_source in ranges.items() if overlap(of_source)}


def fill_unnoted(
    applied: Mapping[str, Mapping[str, str]], groups: Sequence[Mapping[str, Any]], low: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return up to where each partition was applied, with those that a source had before an earlier release noted any.

    They end before the others begin.
    """
    filled = {source: dict(of_source) for source, of_source in applied.items()}
    ranges: dict[tuple[str, str], tuple[str, str]] = {}
    for row in groups:
        if row["source"] in filled and row["changes"]:
            place = row["source"], str(row["partition"])
            first, final = ranges.get(place, (row["first"], row["final"]))
            ranges[place] = min(first, row["first"]), max(final, row["final"])
    for (source, partition), (_, final) in ranges.items():
        later = [first for (name, other), (first, _) in ranges.items() if name == source and other in applied[source]]
        if partition not in applied[source] and final <= low.get(source, "") and all(final < first for first in later):
            filled[source][partition] = final
    return filled


def find_first_beyond(bronze: DataFrame, applied: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the first position of each source that is beyond what was applied of its own partition."""
    rows = _beyond(bronze, applied).groupBy("source").agg(F.min("position").alias("first")).collect() if applied else []
    return {row["source"]: row["first"] for row in rows}


def _beyond(bronze: DataFrame, applied: Mapping[str, Mapping[str, str]]) -> DataFrame:
    """Return the changes of sources that are beyond what was applied of their own partition."""
    beyond = F.lit(True)
    for source, of_source in sorted(applied.items()):
        for partition, upto in sorted(of_source.items()):
            own = (F.col("source") == source) & (F.col("partition") == int(partition))
            beyond &= ~own | (F.col("position") > upto)
    changes = bronze.filter(F.col("source").isin(*applied) & F.col("op").isNotNull() & F.col("position").isNotNull())
    return changes.filter(beyond)


def overlap(ranges: Sequence[tuple[str, str]]) -> bool:
    """Whether ranges of positions, each with its first and last one, have something in common."""
    return any(following[0] <= former[1] for former, following in pairwise(sorted(ranges)))


def find_suspects(groups: Sequence[Mapping[str, Any]], applied: Mapping[str, Mapping[str, str]]) -> set[str]:
    """Return the sources that may be out of order, all that are among them, by what each has in each partition."""
    ranges: dict[str, dict[int, tuple[str, str]]] = {}
    suspects = set()
    for row in groups:
        if not row["changes"]:
            continue
        source, partition = row["source"], row["partition"]
        if row["new"]:
            first, final = ranges.setdefault(source, {}).get(partition, (row["first"], row["final"]))
            ranges[source][partition] = min(first, row["first"]), max(final, row["final"])
        elif source in applied and row["final"] > applied[source].get(str(partition), ""):
            suspects.add(source)
    return suspects | {source for source, of_source in ranges.items() if overlap(list(of_source.values()))}
