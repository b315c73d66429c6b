"""Maintenance of a stream that is loaded permanently: in a thread of its own, next to the loads. Called by load.py."""

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.errors import ReplicationError
from spark_jobs.maintenance import maintain
from spark_jobs.maintenance.maintain import MaintainReport
from spark_jobs.query import metastore

#: Loads after which the tables that changed are compacted.
_COMPACT_EVERY = 100
#: Time between two maintenances of a whole table, by what the lake has recorded of it: restarts change nothing.
_MAINTAIN_EVERY = timedelta(days=1)

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
