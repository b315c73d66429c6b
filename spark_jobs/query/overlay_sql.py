"""The SQL that lays a table's changed rows over its published ones. Called by snapshot.py."""

from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from spark_jobs import storage
from spark_jobs.silver import truncates
from spark_jobs.silver.changes import OP
from spark_jobs.silver.table_task import TableTask
from spark_jobs.silver.target_schema import COMMIT_TIME, DELETED_AT, POSITION, SOURCE, TAKEN, TargetSchema
from spark_jobs.silver.truncates import Truncate
from spark_jobs.storage import name as _q


def statement(
    task: TableTask,
    target: TargetSchema,
    below: DataFrame | None,
    cleared: list[Truncate],
    placed: dict[str, str],
    changed: str,
    *,
    hidden: bool,
) -> str:
    """Return the statement that lays the changed rows over the published ones; those marked as deleted may be hidden."""
    stored = [] if below is None else [column for column in below.columns if column not in target.own]
    columns = [*target.columns, *(column for column in stored if column not in target.columns), *target.own]
    news = ", ".join(f"{placed.get(column, 'NULL')} AS {_q(column)}" for column in columns)
    there = "" if target.soft else f" WHERE {placed[OP]} <> 'd'"
    over = f"SELECT {news} FROM {changed}{there}"  # noqa: S608 - names and paths are ours, and quoted.
    if below is None:
        return over
    marks = _marks(cleared, DELETED_AT in below.columns) if target.soft else {}
    old = ", ".join(
        marks.get(column) or _stored(column, column in below.columns, target.columns.get(column)) for column in columns
    )
    known_by = {column: placed[column] for column in (SOURCE, *target.key)}
    if TAKEN in placed:
        # Of a table without a key: the row that a change takes.
        known_by |= {POSITION: placed[TAKEN]}
    same = " AND ".join(f"t.{_q(column)} = s.{place}" for column, place in known_by.items())
    if TAKEN in placed and DELETED_AT in below.columns:
        same += f" AND t.{DELETED_AT} IS NULL"
    join = f" LEFT ANTI JOIN {changed} s ON {same}" if target.key or TAKEN in placed else ""
    conditions = f" AND t.{DELETED_AT} IS NULL" if hidden else ""
    if cleared and not target.soft:
        conditions += f" AND NOT ({truncates.removed(cleared, 't.')})"
    return f"SELECT {old} FROM {at(task)} t{join} WHERE true{conditions} UNION ALL {over}"  # noqa: S608 - as above.


def _marks(cleared: list[Truncate], marked: bool) -> dict[str, str]:
    """Return the values of a published row's columns that a truncate may have changed; `marked` where it has its mark."""
    stored = {column: f"t.{column}" for column in (DELETED_AT, COMMIT_TIME, POSITION)}
    if not marked:
        stored[DELETED_AT] = "CAST(NULL AS timestamp)"
    if cleared:
        ended = truncates.ended(cleared, f"{stored[DELETED_AT]} IS NULL", POSITION, "t.")
        marks = truncates.marks(cleared, "t.")
        stored = {
            column: f"CASE WHEN {ended} THEN {marks[column]} ELSE {value} END" for column, value in stored.items()
        }
    return {column: f"{value} AS {column}" for column, value in stored.items()}


def at(task: TableTask) -> str:
    """Return the table as it was published, as SQL names it."""
    return storage.table(task.path, task.known.version)


def _stored(column: str, there: bool, kind: T.DataType | None) -> str:
    """Return a column of the published rows, in the type that the newest schema gives it."""
    value = f"t.{_q(column)}" if there else "NULL"
    return f"{value} AS {_q(column)}" if kind is None else f"CAST({value} AS {kind.simpleString()}) AS {_q(column)}"
