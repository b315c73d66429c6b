"""Loads of a stream that go on until they are stopped: bronze as records come, silver every so many seconds.

Next to them, in a thread of its own, what they change is maintained.

Called by the command, and by a server whose process runs loads.
"""

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from time import monotonic
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.errors import NotConnected, ReplicationError, Retryable
from headrace.waiting import StopRequest
from spark_jobs import lineage, tuning
from spark_jobs.bronze import load as bronze
from spark_jobs.load import Report, report
from spark_jobs.maintenance import maintain
from spark_jobs.maintenance.maintain import MaintainReport
from spark_jobs.query import metastore
from spark_jobs.session import activate, for_few_changes, has_ended
from spark_jobs.silver import load as silver

#: Loads after which the tables that changed are compacted.
_COMPACT_EVERY = 100
#: Time between two maintenances of a whole table, by what the lake has recorded of it: restarts change nothing.
_MAINTAIN_EVERY = timedelta(days=1)
#: Seconds between two checks of bronze.
_LOOK = 1.0
#: Seconds at most that a load of silver waits for what came to the topics before it: of a backlog it takes what is there.
_CATCH_UP = 5.0

_log = logging.getLogger(__name__)


class Upkeep:
    """Compacts now and then, and maintains each table once a day; what fails is logged and done the next time.

    There is one for a process, also when its loads fail.
    """

    def __init__(
        self, spark: SparkSession, lake: LakeFile, stream: str, *, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        """Take what returns whether the process is to end: maintenance ends after the tables that it is at then."""
        self._spark, self._lake, self._stream, self._stopped = spark, lake, stream, stopped
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="maintenance")
        self._running: Future[MaintainReport | None] | None = None
        #: Loads until the next look. The first one looks: a process may not live for many.
        self._loads_left = 1
        self._compacts = False
        #: Tables that changed since they were compacted.
        self._changed: set[str] = set()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for what is running: half a compaction is none."""
        self._pool.shutdown()
        self._report()

    def after_load(self, tables: Iterable[str]) -> None:
        """Start what is due after a load that changed some tables, unless something is running."""
        self._changed |= set(tables)
        self._loads_left -= 1
        if self._loads_left > 0 or (self._running is not None and not self._running.done()):
            return
        self._report()
        names, self._changed = (self._changed, set()) if self._compacts else (set(), self._changed)
        self._loads_left, self._compacts = _COMPACT_EVERY, True
        self._running = self._pool.submit(self._keep, names)

    def _keep(self, names: set[str]) -> MaintainReport | None:
        done = None
        activate(self._spark)
        if maintain.is_due(self._spark, self._lake, self._stream, _MAINTAIN_EVERY):
            done = maintain.maintain(
                self._spark, self._lake, self._stream, older_than=_MAINTAIN_EVERY, stopped=self._stopped
            )
        elif names:
            done = maintain.compact(self._spark, self._lake, self._stream, names)
        if done is not None:
            # Of a stream that rests, no load does: files of the versions that the metastore knows go after a while.
            metastore.after_load(self._spark, self._lake, self._stream)
        return done

    def _report(self) -> None:
        if self._running is None or not self._running.done():
            return
        try:
            done = self._running.result()
        except ReplicationError as error:
            _log.warning("maintenance of %s failed and will be done again: %s", self._stream, error.message)
        else:
            if done is not None:
                _log.info(
                    "maintenance of %s: %d tables compacted, %.1f s", self._stream, len(done.compacted), done.seconds
                )
        self._running = None


def load(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    *,
    every: float,
    stopped: StopRequest,
    on_report: Callable[[Report], None],
) -> None:
    """Follow a stream until `stopped` is set, with its upkeep; again after an error that passes. Raises the others."""
    # Most have few changes; maintenance has many rows.
    loads = for_few_changes(spark, lake)
    activate(loads)
    with Upkeep(spark, lake, stream, stopped=stopped.is_set) as upkeep:
        while not stopped.is_set():
            try:
                _follow(loads, lake, stream, every=every, stopped=stopped, on_report=on_report, upkeep=upkeep)
            except (NotConnected, Retryable) as error:
                if has_ended(spark):
                    raise
                # What is cancelled when it is to stop fails, too.
                if not stopped.is_set():
                    _log.warning("%s; again in %d s", error.message, every)
                    stopped.wait(every)


def _follow(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    *,
    every: float,
    stopped: StopRequest,
    on_report: Callable[[Report], None],
    upkeep: Upkeep,
) -> None:
    """Load until `stopped` is set: bronze as records come, silver if anything came.

    Silver is loaded `every` some seconds, a few tables at a time. Raises what either step raises, when it cannot go on.
    `on_report` receives of each load of silver that published something, and when tables stop; the others go on. `upkeep` is
    the process's, so it goes on where this is called again.
    """
    lake.stream(stream)
    problems, held = dict[str, str](), dict[str, str]()
    # Bronze and readers want cores too, and the end of a backlog is not urgent.
    side_by_side = min(tuning.tables_at_a_time(spark), max(1, spark.sparkContext.defaultParallelism // 2))
    with bronze.following(spark, lake, stream) as follower:

        def goes_on() -> bool:
            follower.check()
            return not stopped.is_set()

        while not stopped.is_set():
            began = monotonic()
            with lineage.failure_sent(lake, stream):
                follower.catch_up(_CATCH_UP)
                if stopped.is_set():
                    break
                current = silver.load(spark, lake, stream, side_by_side=side_by_side, goes_on=goes_on)
            if current.load is not None or (current.problems, current.held) != (problems, held):
                on_report(report(spark, lake, stream, None, current))
            problems, held = current.problems, current.held
            if current.load is not None:
                upkeep.after_load(current.changes)
            # In between the loading of bronze is checked: what it notes is what `silver_live` may show.
            ends = began + every
            while not stopped.wait(max(0.0, min(_LOOK, ends - monotonic()))) and monotonic() < ends:
                follower.check()
