"""Maintenance of a stream that is loaded permanently: in a thread of its own, next to the loads. Called by load.py."""

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.errors import ReplicationError
from spark_jobs.maintenance import maintain
from spark_jobs.maintenance.maintain import MaintainReport

#: Tables are compacted after so many loads, and old files are removed as well after so many seconds.
_COMPACT_EVERY = 100
_VACUUM_EVERY = 24 * 60 * 60.0

_log = logging.getLogger(__name__)


class Upkeep:
    """Compacts now and then, and removes old files once a day; what fails is logged and done the next time."""

    def __init__(self, spark: SparkSession, lake: LakeFile, stream: str) -> None:
        self._spark, self._lake, self._stream = spark, lake, stream
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="maintenance")
        self._running: Future[MaintainReport] | None = None
        self._loads = 0
        self._vacuumed = monotonic()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for what is running: half a compaction is none."""
        self._pool.shutdown()
        self._report()

    def after_load(self) -> None:
        """Start what is due, unless something is running."""
        self._loads += 1
        if self._loads < _COMPACT_EVERY or (self._running is not None and not self._running.done()):
            return
        self._report()
        self._loads = 0
        job = maintain.compact
        if monotonic() >= self._vacuumed + _VACUUM_EVERY:
            self._vacuumed, job = monotonic(), maintain.maintain
        self._running = self._pool.submit(job, self._spark, self._lake, self._stream)

    def _report(self) -> None:
        if self._running is None or not self._running.done():
            return
        try:
            done = self._running.result()
        except ReplicationError as error:
            _log.warning("maintenance of %s failed and will be done again: %s", self._stream, error.message)
        else:
            _log.info("maintenance of %s: %d tables compacted, %.1f s", self._stream, len(done.compacted), done.seconds)
        self._running = None
