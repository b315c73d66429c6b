"""What a truncate does to rows that a load brought nothing for: they are removed, marked as deleted, or end as versions.

Each is one statement that reads the rows' own columns alone and joins nothing, however few changes came with the truncate.
Called where a table or its history is written.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from delta import DeltaTable
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from spark_jobs.silver import truncates
from spark_jobs.silver.target_schema import COMMIT_TIME, DELETED_AT, POSITION, SOURCE
from spark_jobs.silver.truncates import Truncate

#: By which Delta passes over a commit that a table has already: a load's own commit has them, and what goes with it must not.
_NUMBERED = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")


@contextmanager
def beside_own_commit(spark: SparkSession) -> Iterator[None]:
    """Let the session make a further commit, which goes with the load's own one and carries none of its progress."""
    before = {name: value for name in _NUMBERED if (value := spark.conf.get(name, None)) is not None}
    for name in before:
        spark.conf.unset(name)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def remove(table: DeltaTable, cleared: Sequence[Truncate]) -> None:
    """Remove the rows that a truncate of their source ended."""
    ended = F.lit(False)
    for source, position in sorted(truncates.last_of_each(cleared).items()):
        ended |= (F.col(SOURCE) == source) & (F.col(POSITION) < position)
    table.delete(ended)


def mark(table: DeltaTable, cleared: Sequence[Truncate]) -> None:
    """Mark the living rows that a truncate of their source ended."""
    _end(
        table,
        cleared,
        lambda one: F.col(DELETED_AT).isNull() & (F.col(POSITION) < one.position),
        {DELETED_AT: _time, COMMIT_TIME: _time, POSITION: _position},
    )


def end(table: DeltaTable, cleared: Sequence[Truncate], *, begins: str, ends: str, ends_at: str) -> None:
    """End the versions that were current when a truncate of their source came; the columns are those of a history."""
    _end(
        table,
        cleared,
        lambda one: F.col(ends).isNull() & (F.col(begins) < one.position),
        {ends_at: _time, ends: _position},
    )


def _time(one: Truncate) -> Column:
    return one.time


def _position(one: Truncate) -> Column:
    return F.lit(one.position)


def _end(
    table: DeltaTable,
    cleared: Sequence[Truncate],
    current: Callable[[Truncate], Column],
    values: dict[str, Callable[[Truncate], Column]],
) -> None:
    """Set the values of rows that the first truncate of their source ended."""
    first = truncates.first_of_each(cleared)
    ended = F.lit(False)
    for one in first:
        ended |= (F.col(SOURCE) == one.source) & current(one)
    table.update(ended, {name: _by_source(first, value) for name, value in values.items()})


def _by_source(first: Sequence[Truncate], value: Callable[[Truncate], Column]) -> Column:
    found = F.when(F.col(SOURCE) == first[0].source, value(first[0]))
    for one in first[1:]:
        found = found.when(F.col(SOURCE) == one.source, value(one))
    return found
