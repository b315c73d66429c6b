"""Loads in the JVM of `headrace lake serve`, in sessions that no client of SQL is given: with Delta's own catalog, and writing.

Their jobs are in a pool of their own, so that queries and loads share the cores. A load is the same as in a process of its own,
by the lake's file as it is then. Called by the server: one load at a time in one thread, those that go on in threads of their
own.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec.structs import replace
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from headrace.errors import ConfigurationError, ReplicationError
from headrace.terminal import Terminal
from headrace.waiting import StopRequest
from headrace.warm_loads import Answer, Failure, OnProgress, OnReport, Request
from spark_jobs import continuous, load, preflight, session
from spark_jobs.session import has_ended
from spark_jobs.silver.tables_load import TableGroup

_POOL = "loads"
#: What sessions of loads have otherwise than served ones.
_OWN = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.runSQLOnFiles": "true",
}


class Loader:
    """Runs loads."""

    def __init__(self, spark: SparkSession, lake: LakeFile) -> None:
        self._served, self._lake = spark, lake
        #: By whether they are for few changes.
        self._sessions: dict[bool, SparkSession] = {}

    def run(self, tag: str, request: Request, on_progress: OnProgress) -> Answer:
        """Load; raise what a load raises. Refuses what `_refusing` does."""
        return self._refusing(request, lambda lake: self._load(lake, tag, request, on_progress))

    def follow(self, tag: str, request: Request, on_report: OnReport, stopped: StopRequest) -> Answer:
        """Load until stopped; raise what such a load raises. Refuses what `_refusing` does."""
        return self._refusing(request, lambda lake: self._follow(lake, tag, request, on_report, stopped))

    def _refusing(self, request: Request, work: Callable[[LakeFile], Answer]) -> Answer:
        """Refuse what this process cannot do: it has another file or environment, or its Spark has ended."""
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
                return work(lake)
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
            with _tagged(spark, tag):
                done = load.run(
                    spark,
                    lake,
                    request.stream,
                    only=request.only,
                    group=group,
                    accept_gap=request.accept_gap,
                    on_progress=on_progress,
                )
        return _answer(done, request)

    def _follow(self, lake: LakeFile, tag: str, request: Request, on_report: OnReport, stopped: StopRequest) -> Answer:
        assert request.every is not None, "a load that goes on has a pace"

        def report(done: load.Report) -> None:
            on_report(replace(_answer(done, request), failure=None, goes_on=True))
            # What it did is recorded by jobs without a tag.
            spark.sparkContext.addJobTag(tag)

        # Of its own: others load next to it.
        spark = self._new(_OWN)
        session.activate(spark)
        with _tagged(spark, tag):
            continuous.load(spark, lake, request.stream, every=request.every, stopped=stopped, on_report=report)
        return Answer()

    def cancel(self, tag: str) -> None:
        """Cancel the jobs of a load."""
        self._served.sparkContext.cancelJobsWithTag(tag)

    def session(self, *, few: bool) -> SparkSession:
        """Return the session of loads, of few changes or of any number, as the active one of this thread."""
        if few not in self._sessions:
            settings = _OWN | (session.few_changes(self._lake.spark.settings) if few else {})
            self._sessions[few] = self._new(settings)
        spark = self._sessions[few]
        session.activate(spark)
        return spark

    def _new(self, settings: dict[str, str]) -> SparkSession:
        served = self._served
        made: JavaObject = served._jvm.headrace.serve.Loads.session(served._jsparkSession, settings)  # noqa: SLF001 - PySpark offers no other way.
        return SparkSession(served.sparkContext, made)


@contextmanager
def _tagged(spark: SparkSession, tag: str) -> Iterator[None]:
    """Have the jobs of this thread in the pool of loads, with a tag by which they are cancelled."""
    context = spark.sparkContext
    context.setLocalProperty("spark.scheduler.pool", _POOL)
    context.addJobTag(tag)
    try:
        yield
    finally:
        # What the load failed with is what counts.
        with suppress(Py4JError, OSError):
            context.clearJobTags()


def _answer(done: load.Report, request: Request) -> Answer:
    text, failure = io.StringIO(), None
    load.show(Terminal(file=text, force_terminal=request.styled, soft_wrap=True), done)
    try:
        if request.check:
            done.check()
    except ReplicationError as error:
        failure = Failure(message=error.message, hint=error.hint, exit_code=error.exit_code)
    return Answer(report=done.plain(), text=text.getvalue(), failure=failure)
