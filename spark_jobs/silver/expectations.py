"""Expectations of tables' rows, counted by the load that publishes them: of the rows that it put or changed, and of all rows.

The count of all rows is the former one with what the table's files since then brought, less what they replaced: one Spark job for
a table, which reads the files that loads wrote or replaced. All rows are counted where there is no such count: after a change of
an expectation or of the table's columns, and when the log lacks commits in between.

A row meets an expectation where it is true; rows that are marked as deleted are not counted. An expectation that cannot be
counted has the reason, and fails no load. Called by what publishes rows.
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from itertools import islice
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.configuration.value_types import find_expression_problem, refuse_function
from headrace.errors import ReplicationError
from spark_jobs import session, storage
from spark_jobs.errors import explain, readable
from spark_jobs.silver import table_task
from spark_jobs.silver.target_schema import DELETED_AT, POSITION, SOURCE
from spark_jobs.state import delta_log
from spark_jobs.state.published_rows import NEW, Positions, Published, Quality, Table

_log = logging.getLogger(__name__)

#: Parts of an expression that look beyond the row.
_BEYOND = ("Subquery", "Exists", "ListQuery", "Window", "Generator", "UnresolvedStar")
#: And what is of the moment or of who asks.
_SESSION = re.compile("Current|Now$|LocalTimestamp$")
#: Commits of a young table, whose files are known by them all.
_YOUNG = 10
_ROWS, _NEW, _SIGN = "_all", "_new", "_sign"


class _Files(NamedTuple):
    """What commits did to a table's files: Delta's actions that add those that are new, and those that are replaced."""

    added: list[str]
    removed: list[str]


def is_outdated(lake: LakeFile, before: Published) -> bool:
    """Whether a table that is published has other expectations than those that were counted."""
    stream = lake.stream(before.stream)
    return any(
        table.version is not None and _expressions(table) != stream.expected_of(name)
        for name, table in before.tables.items()
    )


def count(
    spark: SparkSession,
    lake: LakeFile,
    before: Published,
    after: Published,
    *,
    few: bool = False,
    publishes: bool = True,
) -> Published:
    """Return what is to be published with what was counted; tables whose rows and expectations are as before are not read.

    Nothing is counted where it is not published.
    """
    stream = lake.stream(after.stream)
    if not publishes:
        return after
    due: dict[str, Table] = {}
    tables = dict(after.tables)
    for name, table in after.tables.items():
        expected = stream.expected_of(name)
        if not expected:
            tables[name] = replace(table, quality=()) if table.quality else table
        elif table.version is not None and not _is_current(
            spark, table_task.path(lake, after.stream, name), table, expected
        ):
            due[name] = table
    if due:
        begin = session.carry(spark)

        def of_table(name: str) -> Table:
            low = before.tables[name].positions if name in before.tables else {}
            # Of a table that was made again, versions are other ones.
            table = replace(due[name], quality=()) if due[name].since == NEW else due[name]
            with session.borrow(spark, few=few, begin=begin) as own:
                path = table_task.path(lake, after.stream, name)
                quality = _count(own, path, table, low, stream.expected_of(name))
            for each in quality:
                if each.problem is not None:
                    _log.warning("%s: %s cannot be counted: %s", name, each.expectation, each.problem)
            return replace(due[name], quality=tuple(quality))

        with ThreadPoolExecutor(
            max(1, spark.sparkContext.defaultParallelism), thread_name_prefix="expectations"
        ) as pool:
            tables |= dict(zip(due, pool.map(of_table, due), strict=True))
    return replace(after, tables=tables)


def _expressions(table: Table) -> dict[str, str]:
    return {each.expectation: each.expression for each in table.quality}


def _is_current(spark: SparkSession, path: str, table: Table, expected: Mapping[str, str]) -> bool:
    if table.version is None or table.since == NEW or _expressions(table) != expected:
        return False
    counted = table.quality[0].version
    if counted > table.version:
        return False
    try:
        missed = table.version - counted
        since = [info for _, info in islice(delta_log.after(spark, path, counted), missed)]
        # Of a table that rested commits go from the log: what they did is not known.
        return len(since) == missed and all(map(delta_log.is_maintenance, since))
    except ReplicationError:
        # The table's own load stops at a damaged log, and no other table does.
        return True


def _count(spark: SparkSession, path: str, table: Table, low: Positions, expected: Mapping[str, str]) -> list[Quality]:
    """Count a table at its version; an expectation that cannot be counted has the reason."""
    version = table.version or 0

    def failed(problem: str, names: Mapping[str, str]) -> list[Quality]:
        return [Quality(expectation=n, expression=e, version=version, problem=problem) for n, e in names.items()]

    try:
        # Delta makes frames in the session that is active.
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001 - PySpark offers no other way.
        rows = spark.read.format("delta").option("versionAsOf", version).load(path)
        problems = {n: p for n, e in expected.items() if (p := _refuse(spark, rows, e)) is not None}
        there = {n: e for n, e in expected.items() if n not in problems}
        counted = [each for n, p in problems.items() for each in failed(p, {n: expected[n]})]
        former = {
            each.expectation: each
            for each in table.quality
            if each.total is not None and there.get(each.expectation) == each.expression
        }
        # One that fails at a row each time has the others counted as ever.
        known, others = (dict(p for p in there.items() if (p[0] in former) is is_known) for is_known in (True, False))
        start = next((each.version for each in former.values()), -1)
        young = version < _YOUNG
        for names, base, files in (
            (known, former, _files(spark, path, start, version) if known else None),
            (others, {}, _files(spark, path, -1, version) if others and young else None),
        ):
            if not names:
                continue
            try:
                counted += _counted(rows, base, version, low, names, files)
            except (PySparkException, Py4JError):
                # Files may be gone, or one expression may fail at a row: it alone is not counted.
                for one, expression in names.items():
                    try:
                        counted += _counted(rows, {}, version, low, {one: expression}, None)
                    except (PySparkException, Py4JError) as error:
                        counted += failed(_reason(error), {one: expression})
    except Exception as error:  # noqa: BLE001 - whatever it is, no load fails because of an expectation.
        counted = failed(_reason(error), expected)
    return sorted(counted, key=lambda each: list(expected).index(each.expectation))


def _reason(error: Exception) -> str:
    if isinstance(error, (PySparkException, Py4JError)):
        error = explain(error, "expectation")
    return error.message if isinstance(error, ReplicationError) else type(error).__name__


def _counted(
    rows: DataFrame,
    former: Mapping[str, Quality],
    version: int,
    low: Positions,
    expected: Mapping[str, str],
    files: _Files | None,
) -> list[Quality]:
    """Count by what files brought and replaced since the `former` count, or all rows where there are no `files`."""
    parts = [(rows, 1)] if files is None else [(_of_files(rows, files.added), 1), (_of_files(rows, files.removed), -1)]
    failing = {name: f"_failing{place}" for place, name in enumerate(expected)}
    marked = [
        _living(part).select(
            F.lit(sign).alias(_SIGN),
            (_after(low) if sign > 0 else F.lit(False)).alias(_NEW),
            *(F.expr(f"NOT coalesce(({e}\n), false)").alias(failing[n]) for n, e in expected.items()),
        )
        for part, sign in parts
    ]

    def of(condition: Column, value: Column) -> Column:
        return F.coalesce(F.sum(F.when(condition, value)), F.lit(0))

    sign, one = F.col(_SIGN), F.lit(1)
    sums = [of(F.lit(True), sign).alias(_ROWS), of(F.col(_NEW), one).alias(_NEW)]
    sums += [of(F.col(column), sign).alias(column) for column in failing.values()]
    sums += [of(F.col(column) & F.col(_NEW), one).alias(f"{column}{_NEW}") for column in failing.values()]
    row = reduce(DataFrame.unionAll, marked).agg(*sums).collect()[0]

    def total(name: str, of: str, column: str) -> int:
        return int(row[column]) + (int(getattr(former[name], of)) if files is not None and former else 0)

    return [
        Quality(
            expectation=name,
            expression=expression,
            version=version,
            checked=int(row[_NEW]),
            failing=int(row[f"{failing[name]}{_NEW}"]),
            total=total(name, "total", _ROWS),
            total_failing=total(name, "total_failing", failing[name]),
        )
        for name, expression in expected.items()
    ]


def _living(rows: DataFrame) -> DataFrame:
    return rows.filter(F.col(DELETED_AT).isNull()) if DELETED_AT in rows.columns else rows


def _after(low: Positions) -> Column:
    """Return whether a load from these positions on put or changed a row."""
    source, position = F.col(SOURCE), F.col(POSITION)
    return reduce(
        lambda known, cut: F.when(source == cut[0], position > cut[1]).otherwise(known), low.items(), F.lit(True)
    )


def _files(spark: SparkSession, path: str, after: int, upto: int) -> _Files | None:
    """Return what the commits after a version did to a table's files; None where that does not show the rows they changed."""
    added: dict[tuple[str, Any], dict[str, Any]] = {}
    removed: dict[tuple[str, Any], dict[str, Any]] = {}
    if after > upto:
        return None
    for number in range(after + 1, upto + 1):
        file = f"{path}/_delta_log/{number:020d}.json"
        if not storage.exists(spark, file):
            return None
        for action in map(json.loads, storage.read(spark, file).splitlines()):
            if "metaData" in action and number:
                return None
            for kind, own, other in (("remove", removed, added), ("add", added, removed)):
                # What only puts rows into other files changes none.
                if (part := action.get(kind)) is None or not part.get("dataChange", True):
                    continue
                vector = part.get("deletionVector") or {}
                key = (part["path"], (vector.get("pathOrInlineDv"), vector.get("offset")))
                if key in other:
                    del other[key]
                else:
                    own[key] = part
    return _Files(*([_as_added(part) for part in files.values()] for files in (added, removed)))


def _as_added(file: dict[str, Any]) -> str:
    """Return the action by which Delta reads a file, which another one may have removed since."""
    kept = {name: file[name] for name in ("path", "size", "deletionVector") if file.get(name) is not None}
    return json.dumps({"add": {"partitionValues": {}, "size": 0, "modificationTime": 0, "dataChange": False} | kept})


def _of_files(rows: DataFrame, actions: list[str]) -> DataFrame:
    """Return the rows of files of a table, with the columns of a version of it."""
    spark = rows.sparkSession
    if not actions:
        return rows.limit(0)
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark offers no other way.
    plan = rows._jdf.queryExecution().analyzed()  # noqa: SLF001 - as above.
    relation = next(node for node in _nodes(plan) if not node.children().size())
    index = relation.relation().location()
    files = [jvm.org.apache.spark.sql.delta.actions.Action.fromJson(action) for action in actions]
    log, none = index.deltaLog(), jvm.scala.Option.empty()
    return DataFrame(log.createDataFrame(index.snapshotAtAnalysis(), jvm.PythonUtils.toSeq(files), False, none), spark)


def _refuse(spark: SparkSession, rows: DataFrame, expression: str) -> str | None:
    """Return why an expression cannot be counted over these rows; None where it can."""
    if problem := find_expression_problem(expression):
        return problem
    # As queries have it: a comment at its end may go beyond a line.
    enclosed = f"({expression}\n)"
    try:
        parser = spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001 - as above.
        if problem := next(filter(None, map(_refuse_node, _nodes(parser.parseExpression(enclosed)))), None):
            return problem
        plan = rows.filter(F.expr(enclosed))._jdf.queryExecution().analyzed()  # noqa: SLF001 - as above.
        # Of a hidden column Spark has more to do than to filter.
        if plan.getClass().getSimpleName() != "Filter":
            return "it names what is no column of the table"
        condition = plan.condition()
        # Spark takes the time for the same throughout a query; the count of the next load has another one.
        if not condition.deterministic() or any(_SESSION.match(_kind(node)) for node in _nodes(condition)):
            return "it gives another result each time"
    except (AnalysisException, ParseException) as error:
        return readable(error)
    return None


def _refuse_node(node: Any) -> str | None:
    kind = _kind(node)
    if any(part in kind for part in _BEYOND):
        return "it looks beyond the row"
    if kind != "UnresolvedFunction":
        return None
    parts = node.nameParts()
    return refuse_function(".".join(str(parts.apply(place)) for place in range(parts.size())))


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    children = node.children()
    for place in range(children.size()):
        yield from _nodes(children.apply(place))
