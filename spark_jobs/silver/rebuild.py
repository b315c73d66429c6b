"""A table built again from each source's newest copy in bronze, with the schemas that are in force since.

A copy begins with a truncate (`edge snapshot --replace` writes one), so nothing before it is needed. The former rows are kept
in a table of their own, and readers see them until the new ones are published. A rebuild that fails has published nothing.
Called by `headrace lake rebuild`, by replays, and by loads where on_incompatible = "rebuild".
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import CorruptInput, NeedsOperator
from spark_jobs import storage
from spark_jobs.bronze import erased_records
from spark_jobs.bronze import load as bronze
from spark_jobs.bronze.increment import Bronze
from spark_jobs.errors import Misfit, explained
from spark_jobs.session import plan_for_many
from spark_jobs.silver import batch_profile, expectations, held_back, scd2, table_load, table_task
from spark_jobs.silver import merge as write
from spark_jobs.silver.commit import separate_commit
from spark_jobs.silver.profiles import TableProfile
from spark_jobs.silver.schema_versions import SchemaVersions
from spark_jobs.silver.table_task import LoadContext, TableTask
from spark_jobs.silver.types import Incompatible
from spark_jobs.state import delta_log, publication, published
from spark_jobs.state.published import Positions, Published, Table
from spark_jobs.state.published_rows import HeldBack


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """What a rebuild did."""

    stream: str
    table: str
    #: Number of the load that published it.
    load: int
    #: Position of the truncate at which each source's copy begins; a source without one is read from its first record.
    copies: dict[str, str] = field(default_factory=dict)
    #: Changes applied.
    changes: int = 0
    #: The folder of the former rows; None when there were none.
    former: str | None = None
    seconds: float = 0.0


def rebuild(spark: SparkSession, lake: LakeFile, stream: str, name: str) -> Rebuilt:
    """Build a table again and publish it.

    Raises NeedsOperator when the stream has no such table, or a source has no copy with its present schema.
    """
    began, started = monotonic(), datetime.now(UTC)
    with explained(f"rebuild silver {name}"):
        path = bronze.table_path(lake, stream)
        erased_records.empty_again(spark, lake, stream)
        before = published.known_versions(spark, path, published.latest(spark, lake, stream))
        if name not in before.tables:
            listed = ", ".join(sorted(before.tables)) or "none"
            raise NeedsOperator(f"stream {stream!r} has no table {name}", hint=f"Tables that are published: {listed}.")
        context = LoadContext(
            stream=stream,
            bronze=Bronze(path, delta_log.version(spark, path)),
            load=before.load + 1,
            removed=before.bronze_removed,
        )
        published.refuse_lacking(context.bronze.rows(spark, None), before)
        ways = _held_back(spark, context, before, name)
        for held in ways:
            state = replace(before, tables={name: replace(before.tables[name], held_back=held)})
            nothing = batch_profile.nothing(before.positions)
            task = held_back.hold_back(table_task.task_of(lake, state, name, nothing, after=None))
            try:
                with explained(f"silver {name}"):
                    own, begins = from_copies(spark, context, task)
                    done = apply(spark.newSession(), context, own, begins)
                break
            except (Misfit, CorruptInput):
                if held is ways[-1]:
                    raise
        tables = {other: replace(table, changes=0) for other, table in before.tables.items()} | {name: done}
        after = replace(before, load=context.load, started_at=started, changes=done.changes, tables=tables)
        publication.append(spark, lake, expectations.count(spark, lake, before, after), before=before)
    return Rebuilt(
        stream=stream,
        table=name,
        load=context.load,
        copies=begins,
        changes=done.changes,
        former=former(context, task) if task.published.version is not None else None,
        seconds=monotonic() - began,
    )


def _held_back(spark: SparkSession, context: LoadContext, before: Published, name: str) -> list[dict[str, HeldBack]]:
    """Return without which sources to build a table: none; or, where others made a copy since they are held back, the rest."""
    held = before.tables[name].held_back
    if not held or before.tables[name].history is not None:
        return [{}]
    rows = context.bronze.rows(spark, None).filter(F.col("table") == name)
    seen = batch_profile.profile(rows, {}, before.positions).seen
    copies = {(profile.source, _last_truncate(profile, before.positions) or "") for profile in seen}
    copied = {source for source, position in copies if source in held and position > held[source].at}
    return [{}, {source: of for source, of in held.items() if source not in copied}] if copied else [{}]


def former(context: LoadContext, task: TableTask) -> str:
    """Return the folder of the rows that a table had before this attempt of a load."""
    return f"{task.former_path}/{context.load}-{context.attempt[:8]}"


def from_copies(spark: SparkSession, context: LoadContext, task: TableTask) -> tuple[TableTask, Positions]:
    """Return the work that builds a table up to its high watermarks, and the positions at which the sources' newest copies begin.

    Raises Incompatible, naming sources that need a newer copy, where the schemas since then do not fit together.
    """
    with plan_for_many(spark):
        rows = context.bronze.rows(spark, None).filter(F.col("table") == task.table)
        whole = batch_profile.profile(rows, {}, task.high)
        copies = {
            profile.source: last for profile in whole.seen if (last := _last_truncate(profile, task.high)) is not None
        }
        since = batch_profile.profile(rows, copies, task.high)
    before = {
        record.source: record.value for record in whole.records if record.position <= copies.get(record.source, "")
    }
    table = replace(task.published, schemas=before, warnings={})
    own = replace(task, published=table, former_schemas={}, seen=since.seen, records=since.records, after=None)
    try:
        table_task.target_of(own)
    except Incompatible as error:
        versions = SchemaVersions.read(before, since.records, {}).of
        changed = [source for source, schemas in versions.items() if len(schemas) > 1] or list(versions)
        problem = f"{error.message}; no copy with the present schema is in bronze yet from {', '.join(sorted(changed))}"
        raise Incompatible(problem, hint=error.hint) from error
    return own, copies


def _last_truncate(profile: TableProfile, high: Positions) -> str | None:
    return max(
        (truncate.position for truncate in profile.truncates if truncate.position <= high.get(profile.source, "")),
        default=None,
    )


def apply(spark: SparkSession, context: LoadContext, task: TableTask, copies: Positions) -> Table:
    """Keep the former rows and put those from the copies on in their place; return the table. The session is the table's own."""
    table, kept = task.published, former(context, task)
    try:
        if table.version is not None:
            _keep(spark, task.path, table.version, kept)
        if table.history is not None:
            _keep(spark, task.history_path, table.history, f"{kept}-history")
        done = table_load.build(spark, context, task, copies)
    except BaseException:
        # An erasure that came in between has not seen them: what they have of its rows would stay.
        for path in (kept, f"{kept}-history"):
            storage.delete(spark, path)
        raise
    return scd2.rebuild(spark, context, task, done, copies) if task.history is not None else replace(done, history=None)


def _keep(spark: SparkSession, path: str, version: int, to: str) -> None:
    """Copy a version's rows to a folder of their own, where no maintenance of the table removes them."""
    rows = spark.read.format("delta").option("versionAsOf", version).load(path)
    with separate_commit(spark), plan_for_many(spark):
        write.replace(rows, to, delta_log.write("former", path=path, version=version), {})
