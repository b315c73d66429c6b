"""Loads in the JVM of `headrace lake serve`, in sessions that no client of SQL is given: with Delta's own catalog, and writing.

Their jobs are in a pool of their own, so that queries and loads share the cores. A load is the same as in a process of its own,
by the lake's file as it is then. Called by the server, one load at a time, in one thread.
"""

import io
from contextlib import suppress
from pathlib import Path

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from headrace.errors import ConfigurationError, ReplicationError
from headrace.terminal import Terminal
from headrace.warm_loads import Answer, Failure, OnProgress, Request
from spark_jobs import load, preflight, session
from spark_jobs.silver.tables_load import TableGroup

_POOL = "loads"
#: What sessions of loads have otherwise than served ones.
_OWN = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.runSQLOnFiles": "true",
}


def has_ended(spark: SparkSession) -> bool:
    """Whether the JVM has ended, or Spark in it was stopped, as after an error of its own: then all that is asked of it fails."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())  # noqa: SLF001 - PySpark offers no other way.
    except (Py4JError, OSError):
        return True


class Loader:
    """Runs loads."""

    def __init__(self, spark: SparkSession, lake: LakeFile) -> None:
        self._served, self._lake = spark, lake
        #: By whether they are for few changes.
        self._sessions: dict[bool, SparkSession] = {}

    def run(self, tag: str, request: Request, on_progress: OnProgress) -> Answer:
        """Load; raise what a load raises.

        Refuses what a process cannot do that was started by another file or in another environment, and all once Spark has ended.
        """
        if Path(request.config).resolve() != Path(self._lake.path).resolve():
            return Answer(refused=f"it was started with {self._lake.path}")
        try:
            lake = load_file(self._lake.path, LakeFile)
        except ReplicationError as error:
            return Answer(refused=error.message)
        if (lake.lake, lake.spark) != (self._lake.lake, self._lake.spark):
            return Answer(refused=f"[lake] or [spark] of {lake.path} changed since it was started: start it again")
        lake.stream(request.stream)
        try:
            if not has_ended(self._served):
                return self._load(lake, tag, request, on_progress)
        except ConfigurationError as error:
            # Of a secret, say, that the sender's environment has, and not this one.
            return Answer(refused=error.message)
        except Exception:
            if not has_ended(self._served):
                raise
        return Answer(refused="its Spark has ended")

    def _load(self, lake: LakeFile, tag: str, request: Request, on_progress: OnProgress) -> Answer:
        group = TableGroup.parse(request.group) if request.group else None
        outlook = preflight.look(lake, request.stream, request.only)
        done = outlook.report
        if done is None:
            spark = self.session(few=outlook.few)
            context = spark.sparkContext
            context.setLocalProperty("spark.scheduler.pool", _POOL)
            context.addJobTag(tag)
            try:
                done = load.run(
                    spark,
                    lake,
                    request.stream,
                    only=request.only,
                    group=group,
                    accept_gap=request.accept_gap,
                    on_progress=on_progress,
                )
            finally:
                # What the load failed with is what counts.
                with suppress(Py4JError, OSError):
                    context.clearJobTags()
        return _answer(done, request)

    def cancel(self, tag: str) -> None:
        """Cancel the jobs of a load."""
        self._served.sparkContext.cancelJobsWithTag(tag)

    def session(self, *, few: bool) -> SparkSession:
        """Return the session of loads, of few changes or of any number, as the active one of this thread."""
        if few not in self._sessions:
            settings = _OWN | (session.few_changes(self._lake.spark.settings) if few else {})
            self._sessions[few] = SparkSession(self._served.sparkContext, self._new(settings))
        spark = self._sessions[few]
        # Delta makes frames in the session that is active.
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001 - PySpark offers no other way.
        return spark

    def _new(self, settings: dict[str, str]) -> JavaObject:
        served = self._served
        made: JavaObject = served._jvm.headrace.serve.Loads.session(served._jsparkSession, settings)  # noqa: SLF001 - as above.
        return made


def _answer(done: load.Report, request: Request) -> Answer:
    text, failure = io.StringIO(), None
    load.show(Terminal(file=text, force_terminal=request.styled, soft_wrap=True), done)
    try:
        if request.check:
            done.check()
    except ReplicationError as error:
        failure = Failure(message=error.message, hint=error.hint, exit_code=error.exit_code)
    return Answer(report=done.plain(), text=text.getvalue(), failure=failure)
