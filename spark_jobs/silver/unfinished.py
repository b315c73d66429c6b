"""Transactions that had not ended where a load stopped: of each source alone, from which version of bronze on it is read again.

A source with an unfinished transaction holds up no other one, and is itself read again only once something ended. Called by the
load, and where bronze is read beyond what is published.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pyspark.sql import SparkSession

from spark_jobs.bronze import increment
from spark_jobs.bronze.increment import Since
from spark_jobs.silver.profiles import BatchProfile
from spark_jobs.state.published import Published
from spark_jobs.state.published_rows import Unfinished


def since(state: Published, sources: Iterable[str] | None = None) -> Since | None:
    """Return the point in bronze after which all came that is not published: of some sources, or all, what is unfinished too."""
    back = state.unfinished if sources is None else {name: state.unfinished[name] for name in sources}
    return Since.of(state.bronze_done, {source: one.after for source, one in back.items()})


def chosen(
    spark: SparkSession, path: str, before: Published, version: int, reached: Mapping[str, str] | None
) -> Since | None:
    """Return the point after which a load reads bronze; None when it has to read all of it.

    Where tables have topics of their own, what ends a transaction may have come ahead of the rest of it.
    """
    if before.bronze_done is None or not increment.is_readable_after(spark, path, before.bronze_done):
        return None
    if not before.unfinished or reached is not None:
        return since(before)
    return since(before, increment.ended(increment.rows(spark, path, since(before, ()), version), before.unfinished))


def rest(state: Published) -> int | None:
    """Return the version of bronze after which all came that is not published; None when it is not known."""
    if state.bronze_done is None:
        return None
    return min([state.bronze_done, *(one.after for one in state.unfinished.values())])


def changes(state: Published, since: Since | None) -> int:
    """Return how many changes that were unfinished are read again from a point on."""
    return sum(state.unfinished[source].changes for source, _ in since.back) if since else 0


def after(before: Published, read: Since | None, new: BatchProfile) -> dict[str, Unfinished]:
    """Return what is unfinished by source, once a load has read bronze after a point."""
    left = {}
    for source in sorted(before.unfinished.keys() | new.beyond.keys()):
        old, more = before.unfinished.get(source), new.beyond.get(source)
        if old is not None and read is not None and source not in dict(read.back):
            changes, upto = (more.changes, more.upto) if more else (0, "")
            left[source] = replace(old, changes=old.changes + changes, upto=max(old.upto, upto))
        elif more is not None:
            came = -1 if before.bronze_done is None else before.bronze_done
            if old is not None and new.high.get(source, "") < old.upto:
                came = old.after
            left[source] = Unfinished(after=came, changes=more.changes, upto=more.upto)
    return left
