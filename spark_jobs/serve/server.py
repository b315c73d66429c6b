"""One process that answers Spark Connect and JDBC: the JVM, the doors, and what is published, brought up as loads publish.

It runs the loads of this machine too, where the lake's file lets it: one at a time, in one thread, in sessions that no client of
SQL is given, with Delta's own catalog, and writing. Their jobs are in a pool of their own, so that queries and loads share the
cores. A load is the same as in a process of its own, by the lake's file as it is then.

Assumes the jar of the Java classes in this folder. Called by `headrace lake serve`.
"""

import io
import logging
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from rich.console import Console

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from headrace.configuration.sections import Serve
from headrace.errors import ConfigurationError, NeedsOperator, ReplicationError
from headrace.process import jar_folder
from headrace.waiting import StopRequest
from headrace.warm_loads import Answer, Failure, OnProgress, Request
from spark_jobs import load, preflight
from spark_jobs.errors import explained
from spark_jobs.serve import load_door, publication
from spark_jobs.serve.load_door import LoadDoor
from spark_jobs.serve.publication import Listing
from spark_jobs.session import few_changes, session
from spark_jobs.silver.tables_load import TableGroup
from spark_jobs.state import delta_log, published

_POOL = "loads"
#: What sessions of loads have otherwise than served ones.
_OWN = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.runSQLOnFiles": "true",
}


class Loader(load_door.Loader):
    """Runs loads."""

    def __init__(self, spark: SparkSession, lake: LakeFile) -> None:
        self._served, self._lake = spark, lake
        #: By whether they are for few changes.
        self._sessions: dict[bool, SparkSession] = {}

    def run(self, tag: str, request: Request, on_progress: OnProgress) -> Answer:
        """Load; raise what a load raises. Refuses what a process that was started by another file cannot do."""
        if Path(request.config).resolve() != Path(self._lake.path).resolve():
            return Answer(refused=f"it was started with {self._lake.path}")
        lake = load_file(self._lake.path, LakeFile)
        if (lake.lake, lake.spark) != (self._lake.lake, self._lake.spark):
            return Answer(refused=f"[lake] or [spark] of {lake.path} changed since it was started: start it again")
        lake.stream(request.stream)
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
                context.clearJobTags()
        return _answer(done, request)

    def cancel(self, tag: str) -> None:
        """Cancel the jobs of a load."""
        self._served.sparkContext.cancelJobsWithTag(tag)

    def session(self, *, few: bool) -> SparkSession:
        """Return the session of loads, of few changes or of any number, as the active one of this thread."""
        if few not in self._sessions:
            settings = _OWN | (few_changes(self._lake.spark.settings) if few else {})
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
    load.show(Console(file=text, force_terminal=request.styled, highlight=False, soft_wrap=True), done)
    try:
        if request.check:
            done.check()
    except ReplicationError as error:
        failure = Failure(message=error.message, hint=error.hint, exit_code=error.exit_code)
    return Answer(report=done.plain(), text=text.getvalue(), failure=failure)


_log = logging.getLogger(__name__)

#: The jar of the Java classes here (infra/release/java_build.py).
_JAR = "headrace-serve.jar"
#: How often it is looked whether something was published, in seconds.
_LOOK_SECONDS = 0.25
#: What the guarantees of served sessions rest on.
FIXED = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,headrace.serve.Guard",
    "spark.sql.catalog.spark_catalog": "headrace.serve.PublishedCatalog",
    # Names of files and folders, and the server's environment, are not for clients.
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.legacy.storeAnalyzedPlanForView": "false",
    "spark.sql.thriftServer.incrementalCollect": "true",
    "spark.connect.session.planCompression.threshold": "-1",
    "spark.sql.catalogImplementation": "in-memory",
    # No text of a type names a class.
    "spark.sql.udt.allowCreatingUDTFromString": "false",
    "spark.sql.udt.allowedDynamicUDTClasses": "",
    "spark.sql.artifact.isolation.enabled": "false",
    # A query that asks for more memory than there is fails, and not the server with it.
    "spark.executor.killOnFatalError.depth": "0",
}
#: Minutes after which Hive closes what its client has left.
_IDLE_MINUTES = 60


def run(lake: LakeFile, stopped: StopRequest, ready: Callable[[int, int], None]) -> None:
    """Serve until stopped; `ready` is called with the ports of Spark Connect and Thrift once queries are answered.

    Raises NeedsOperator where it cannot listen or has no jar.
    """
    loads = lake.serve.loads
    spark = session(lake, name="headrace lake serve", writes=loads is not None, more_jars=[jar()], fixed=FIXED)
    serve = spark._jvm.headrace.serve  # noqa: SLF001 - PySpark offers no other way.
    serve.Guard.trust(spark._jsparkSession)  # noqa: SLF001 - as above.
    follower = Follower(spark, lake, serve, stopped)
    with explained("serve"):
        follower.look()
    answers = threading.Thread(target=follower.answer, name="publications of the past", daemon=True)
    answers.start()
    try:
        ports = open_doors(spark, lake)
        with LoadDoor(loads, Loader(spark, lake)) if loads is not None else nullcontext():
            ready(*ports)
            follower.follow()
    finally:
        spark.stop()


class Follower:
    """Gives the doors what is published, and the past to sessions that ask for it."""

    def __init__(self, spark: SparkSession, lake: LakeFile, serve: Any, stopped: StopRequest) -> None:
        self._spark, self._lake, self._serve, self._stopped = spark, lake, serve, stopped
        self._listing = Listing(spark)
        self._listing.begin()
        self._seen: tuple[int, str] | None = None

    def follow(self) -> None:
        """Look until stopped; what cannot be looked up now is looked up again, and the last publication is shown meanwhile."""
        while not self._stopped.wait(_LOOK_SECONDS):
            try:
                with explained("serve"):
                    self.look()
            except ReplicationError as error:
                _log.warning("what is published cannot be looked up now: %s", error.message)
                self._stopped.wait(5)

    def look(self) -> None:
        """Show what is published, if that is new."""
        place = published.path(self._lake)
        mark = delta_log.mark(self._spark, place) if delta_log.is_table(self._spark, place) else None
        if mark is None or mark == self._seen:
            return
        relations = publication.newest(self._spark, self._lake)
        self._serve.Publications.publish(publication.as_json(str(mark[0]), relations))
        self._seen = mark
        self._listing.keep(relations, publication.columns(self._spark, self._lake))

    def answer(self) -> None:
        """Look up what sessions ask of the past, until stopped."""
        while not self._stopped.is_set():
            question = self._serve.Publications.takeQuestion()
            if question is None:
                continue
            try:
                with explained("serve"):
                    relations = publication.of_the_past(self._spark, self._lake, question.asOf())
                question.answer(publication.as_json(question.asOf(), relations))
            except ReplicationError as error:
                question.fail(error.message)
            except Exception:  # noqa: BLE001 - what a session asked ends its question, not the thread that answers all.
                question.fail("that publication cannot be looked up")


def jar() -> Path:
    """Return the jar: the wheel's, or in a checkout the one that was made there."""
    places = (Path(__file__).with_name(_JAR), jar_folder() / "serve" / _JAR)
    for place in places:
        if place.exists():
            return place
    raise NeedsOperator(f"no {_JAR} in {places[1].parent}", hint="Run 'make setup' in a checkout.")


def open_doors(spark: SparkSession, lake: LakeFile) -> tuple[int, int]:
    """Listen, and return the ports of Spark Connect and Thrift; raise NeedsOperator where that cannot be."""
    serve, java = lake.serve, spark._jvm.headrace.serve  # noqa: SLF001 - PySpark offers no other way.
    for file in (serve.users, serve.certificate, serve.key):
        if file is not None and not file.is_file():
            raise ConfigurationError(f"[serve] names {file}, which is no file")
    queries = java.Queries(serve.queries, serve.rows, serve.seconds, _text(serve.audit))
    users = java.Users(_text(serve.users))
    host, _, port = serve.connect.rpartition(":")
    session = spark._jsparkSession  # noqa: SLF001 - as above.
    try:
        connect = java.ConnectDoor.start(
            session, queries, users, host, int(port), _text(serve.certificate), _text(serve.key)
        )
        java.ThriftDoor.start(session, queries, users, _thrift_settings(spark, serve))
    except Py4JError as error:
        raise NeedsOperator(
            f"the server cannot listen on {serve.connect} and {serve.thrift}, or cannot read its certificate: "
            f"{_reason(error)}",
            hint="See [serve] in the lake's file: another process may listen there; a key is a PEM file in PKCS #8.",
        ) from error
    return int(connect), int(serve.thrift.rpartition(":")[2])


def _text(file: Path | None) -> str:
    return "" if file is None else str(file)


def _reason(error: Py4JError) -> str:
    """Return the class and text of the innermost reason."""
    reason = getattr(error, "java_exception", None)
    while reason is not None and reason.getCause() is not None:
        reason = reason.getCause()
    return type(error).__name__ if reason is None else str(reason.toString())


def _thrift_settings(spark: SparkSession, serve: Serve) -> dict[str, str]:
    """Return Hive's settings; what Hive writes is in a folder that goes with the process."""
    host, _, port = serve.thrift.rpartition(":")
    # The temporary folder of the JVM is its own; the machine's may hold another user's.
    jvm: Any = spark._jvm  # noqa: SLF001 - as above.
    scratch = Path(jvm.java.lang.System.getProperty("java.io.tmpdir"), "hive")
    settings = {
        "hive.server2.thrift.bind.host": host,
        "hive.server2.thrift.port": port,
        "hive.server2.transport.mode": "binary",
        "hive.server2.enable.doAs": "false",
        "hive.server2.logging.operation.enabled": "false",
        "hive.server2.async.exec.threads": str(serve.queries),
        "hive.server2.idle.session.timeout": f"{_IDLE_MINUTES}m",
        "hive.server2.idle.operation.timeout": f"{_IDLE_MINUTES}m",
        "hive.exec.scratchdir": str(scratch),
        "hive.exec.local.scratchdir": str(scratch),
        "hive.downloaded.resources.dir": f"{scratch}/resources",
        "hive.querylog.location": str(scratch),
        # What a connection brings is no text in which the server's environment is named.
        "hive.variable.substitute": "false",
        "hive.server2.authentication": "NONE",
        # Hive asks nobody who may list names, and looks for no metastore: it would make one in the working directory.
        "hive.security.authorization.manager": "org.apache.hadoop.hive.ql.security.authorization.plugin.fallback"
        ".FallbackHiveAuthorizerFactory",
        "hive.internal.ss.authz.settings.applied.marker": "true",
        "hive.metastore.uris": "thrift://localhost:0",
        "hive.metastore.connect.retries": "1",
        "hive.metastore.failure.retries": "0",
        "hive.metastore.client.connect.retry.delay": "0s",
    }
    if serve.users is not None:
        settings["hive.server2.authentication"] = "CUSTOM"
        settings["hive.server2.custom.authentication.class"] = "headrace.serve.Users$Passwords"
    if serve.certificate is not None:
        store = jvm.headrace.serve.Certificates.keyStore(str(serve.certificate), str(serve.key))
        settings["hive.server2.use.SSL"] = "true"
        settings["hive.server2.keystore.path"] = store.path()
        settings["hive.server2.keystore.password"] = store.password()
    return settings
