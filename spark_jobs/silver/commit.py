"""The commit that a load makes in a silver or history table: on the state that it read, at most once, and found by its own note.

Each commit of ours has a number, one more than that of the commit before it, which Delta keeps as the version of a transaction.
Of several loads that read the same state, Delta takes the commit of one and passes over the others', however late they come: a
load whose commit is not there, or which finds somebody else's commit between the state that it read and its own, fails and can be
run again. What it publishes is the version that its own commit made, never just the newest.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from headrace.errors import NeedsOperator, Retryable
from spark_jobs.silver.profiles import Missing
from spark_jobs.state import delta_log, log_files
from spark_jobs.state.published import Positions, Table

NOTE_SETTING = delta_log.NOTE_SETTING
#: Settings by which Delta passes over a commit that a table has already: a load's own commit has them, a further one must not.
_NUMBERED = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")
#: Kind of note of commits that change a table's columns ahead of its rows.
_COLUMNS = "columns"


@dataclass(frozen=True, kw_only=True)
class Base:
    """A table, or its history, as a load finds it."""

    path: str
    #: What messages call it.
    name: str
    stream: str
    #: Kind of note of its commits.
    kind: str
    exists: bool
    #: Positions that its newest commit of ours reached.
    positions: Positions
    #: Its newest version; -1 when there is no table.
    version: int = -1
    #: Number of its newest commit of ours.
    number: int = 0
    #: The version that shows these positions, where nothing has to be done; None when there is no table.
    current: int | None = None
    #: The newest commit of another program since the published version that may have changed rows, and what it did.
    foreign: tuple[int, str] | None = None
    #: Where its newest commit of ours erased rows: the version of bronze that lacks them, and the id of its commit.
    erased: tuple[int, str] | None = None
    #: Rows of a table without a key that commits of ours lacked and that were not published.
    missing: tuple[Missing, ...] = ()

    def has_all_of(self, table: Table) -> bool:
        """Whether it lacks nothing of what is published of it: it may be gone, and a build may end between two of its commits."""
        reached = all(upto <= self.positions.get(source, "") for source, upto in table.positions.items())
        return reached if self.exists else table.version is None

    def after(self, version: int, positions: Positions, missing: tuple[Missing, ...] = ()) -> "Base":
        """Return the table once this load has committed a version that reaches positions."""
        return replace(
            self,
            exists=True,
            positions=positions,
            version=version,
            number=self.number + 1,
            current=version,
            foreign=None,
            missing=missing,
        )


def base(
    spark: SparkSession,
    path: str,
    name: str,
    *,
    stream: str,
    kind: str,
    positions: Positions,
    version: int | None,
    load: int,
) -> Base:
    """Return a table as it is now, for a load by number; `positions` are those that its published version shows.

    Raises NeedsOperator for a table that this stream did not make.
    """
    if not delta_log.is_table(spark, path):
        return Base(path=path, name=name, stream=stream, kind=kind, exists=False, positions=positions)
    newest, commit_note, changed, foreign = _seen(spark, path, kind, version)
    if commit_note and "number" in commit_note[1]:
        counted = int(commit_note[1]["number"])
    else:
        # The commit is of an earlier release, or in the log no more.
        counted = log_files.transaction(spark, path, _application(kind, stream)) or 0
    if version is not None and newest < version:
        raise _shortened(path, version, newest)
    current = newest if foreign is None else version
    given = commit_note[1].get("erased") if commit_note else None
    state = Base(
        path=path,
        name=name,
        stream=stream,
        kind=kind,
        exists=True,
        positions=positions,
        version=newest,
        number=counted,
        current=current,
        foreign=foreign,
        erased=(given["version"], given["commit"]) if given else None,
    )
    # A folder that was lost, and begun again by a load of this number that did not publish, may have the version too.
    if version is not None and (
        commit_note is None or (commit_note[0] <= version and commit_note[1].get("load", 0) < load)
    ):
        return state
    if commit_note is None or commit_note[1]["stream"] != stream:
        raise NeedsOperator(
            f"{path} holds a Delta table that this stream did not make",
            hint="Remove it, or name another [lake] root: the load makes its tables in empty folders.",
        )
    missing = tuple(Missing(source=s, rows=rows, position=p) for s, rows, p in commit_note[1].get("missing", ()))
    return replace(
        state,
        positions=dict(commit_note[1]["positions"]),
        current=commit_note[0] if changed else newest,
        missing=missing,
    )


def _seen(
    spark: SparkSession, path: str, kind: str, version: int | None
) -> tuple[int, tuple[int, delta_log.Note] | None, bool, tuple[int, str] | None]:
    """Return the newest version, the newest note of ours with its version, and whether rows may have changed since that.

    Also the newest commit of another program since the published version, and what it did.
    """
    newest, commit_note, changed, foreign = -1, None, False, None
    for number, info in delta_log.commits(spark, path):
        newest = max(newest, number)
        if version is not None and number > version and foreign is None and delta_log.is_foreign(info):
            foreign = number, str(info.get("operation"))
        if commit_note is None and (note := delta_log.read_note(info, kind)):
            commit_note = number, note
        if commit_note is None:
            changed = changed or not delta_log.is_maintenance(info)
        elif version is None or number <= version:
            break
    return newest, commit_note, changed, foreign


def _shortened(path: str, version: int, newest: int) -> NeedsOperator:
    return NeedsOperator(
        f"{path}: version {version} was published, and its Delta log ends at {newest}",
        hint="Its newest files were removed, or an older copy was put in its place. Put the files back; or move the "
        "folder away and build the stream's tables from bronze: 'headrace lake replay STREAM'.",
    )


def check_order(base: Base, high: Positions, held: Collection[str] = ()) -> None:
    """Raise Retryable for a table that is beyond the positions up to which a load goes: a newer load has written to it.

    Raises NeedsOperator where it is beyond those of `held` sources alone, which go no further until somebody acts.
    """
    beyond = sorted(source for source, position in base.positions.items() if position > high.get(source, ""))
    if beyond and held and set(beyond) <= set(held):
        raise NeedsOperator(
            f"{base.name}: a load that published nothing has brought it beyond the published positions of {', '.join(beyond)}",
            hint="These go no further in any table. What lets them go on, and a replay, builds this table again.",
        )
    if beyond:
        raise _overtaken(base, f"a newer load has brought it beyond this one's positions of {', '.join(beyond)}")


def check_own(base: Base) -> None:
    """Raise NeedsOperator for a table whose rows another program may have changed since it was published."""
    if base.foreign is not None:
        number, operation = base.foreign
        raise NeedsOperator(
            f"{base.name}: version {number} of its Delta table was made by somebody else ({operation})",
            hint="Loads alone may write the lake's tables. 'headrace lake replay STREAM' builds them from bronze; until then "
            "readers see the rows as they were published before.",
        )


def check_erased(spark: SparkSession, base: Base, bronze: str, version: int) -> None:
    """Raise Retryable where rows were erased from a table since the version of bronze that a load reads: it still has them."""
    if base.erased is None or version >= base.erased[0]:
        return
    number, commit = base.erased
    # Bronze that was made again has another commit there, or none yet.
    if delta_log.commit_id(spark, bronze, number) == commit:
        raise _overtaken(base, "rows were erased from it since this load began")


def begin(spark: SparkSession, base: Base, attempt: str) -> dict[str, str]:
    """Let the next MERGE in this session, the table's own, be the one commit on this base; return options by which a write is.

    A write has the session of the rows that it writes, which may be another one.
    """
    own = {"txnAppId": _application(base.kind, base.stream), "txnVersion": str(base.number + 1)}
    spark.conf.set(NOTE_SETTING, delta_log.write(_COLUMNS, stream=base.stream, attempt=attempt))
    for name, value in own.items():
        spark.conf.set(f"spark.databricks.delta.write.{name}", value)
    return own


@contextmanager
def separate_commit(spark: SparkSession) -> Iterator[None]:
    """Let the session make a further commit, in addition to the load's own one, which carries none of its progress."""
    before = {name: value for name in _NUMBERED if (value := spark.conf.get(name, None)) is not None}
    for name in before:
        spark.conf.unset(name)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def find_own_version(spark: SparkSession, base: Base, attempt: str) -> int:
    """Return the version that this load's commit made; raise Retryable when there is none, or another one before it."""
    own = None
    for number, info in delta_log.commits(spark, base.path):
        if number <= base.version:
            break
        note = delta_log.read_note(info, base.kind)
        if note is not None and note.get("attempt") == attempt:
            own = number
        elif own is not None and not _harmless(info, attempt):
            raise _overtaken(base, f"version {number} was made by somebody else after this load had read the table")
    if own is None:
        raise _overtaken(base, "another load has written to it since this one read it")
    return own


def _harmless(info: delta_log.Note, attempt: str) -> bool:
    note = delta_log.read_note(info, _COLUMNS)
    return delta_log.is_maintenance(info) or (note is not None and note.get("attempt") == attempt)


def _overtaken(base: Base, why: str) -> Retryable:
    return Retryable(
        f"{base.name}: {why}; nothing was published",
        hint="Run one load, replay or maintenance of a stream at a time, then run this one again.",
    )


def _application(kind: str, stream: str) -> str:
    return f"headrace.{kind}.{stream}"
