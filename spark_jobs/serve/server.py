"""One process that answers Spark Connect and JDBC: the JVM, the doors, and what is published, brought up as loads publish.

It runs the loads of this machine too, where the lake's file lets it.

Assumes the jar of the Java classes in this folder. Called by `headrace lake serve`.
"""

import logging
import math
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from time import monotonic
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from headrace.configuration.sections import Serve
from headrace.errors import ConfigurationError, NeedsOperator, ReplicationError
from headrace.process import jar_folder
from headrace.waiting import StopRequest
from spark_jobs.errors import SparkFailed, explained
from spark_jobs.serve import publication
from spark_jobs.serve.load_door import LoadDoor
from spark_jobs.serve.loader import Loader
from spark_jobs.serve.publication import Listing
from spark_jobs.session import has_ended, session
from spark_jobs.state import delta_log, published

_log = logging.getLogger(__name__)

#: The jar of the Java classes here (infra/release/java_build.py).
_JAR = "headrace-serve.jar"
#: How often it is looked whether something was published, in seconds.
_LOOK_SECONDS = 0.25
#: And what changes without a publication: records of loads, files of bronze, whether names can be listed and a file be read.
_AGAIN_SECONDS = 60.0
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

    Raises NeedsOperator where it cannot listen or has no jar, and SparkFailed once its Spark has ended.
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
        # A JVM that has ended cannot be stopped.
        with suppress(Py4JError, OSError):
            spark.stop()


class Follower:
    """Gives the doors what is published, and the past to sessions that ask for it."""

    def __init__(self, spark: SparkSession, lake: LakeFile, serve: Any, stopped: StopRequest) -> None:
        self._spark, self._lake, self._serve, self._stopped = spark, lake, serve, stopped
        self._listing = Listing(spark)
        self._listing.begin()
        #: What is shown: the mark of what is published, and how often the lake's file was taken.
        self._seen: tuple[tuple[int, str], int] | None = None
        self._taken = 0
        self._look_again = 0.0
        #: What the file that was read last is known by, and when it is read again all the same: it could not be taken.
        self._changed: tuple[int, int, int] | None = None
        self._read_again = math.inf

    def follow(self) -> None:
        """Look until stopped; what cannot be looked up now is looked up again, and the last publication is shown meanwhile.

        Raises SparkFailed once Spark has ended.
        """
        while not self._stopped.wait(_LOOK_SECONDS):
            # Whoever stops it may stop Spark at the same time.
            if has_ended(self._spark) and not self._stopped.is_set():
                raise SparkFailed("the server's Spark has ended", hint="Start it again, or let a supervisor do that.")
            try:
                with explained("serve"):
                    self.look()
            except (ReplicationError, OSError) as error:
                reason = (
                    error.message if isinstance(error, ReplicationError) else error.strerror or type(error).__name__
                )
                _log.warning("what is published cannot be looked up now: %s", reason)
                self._stopped.wait(5)

    def look(self) -> None:
        """Show what is published, if that or the lake's file is new, or it was looked at a while ago."""
        self._read_file()
        place = published.path(self._lake)
        mark = delta_log.mark(self._spark, place) if delta_log.is_table(self._spark, place) else None
        if mark is None or ((mark, self._taken) == self._seen and monotonic() < self._look_again):
            return
        relations = publication.newest(self._spark, self._lake)
        # By the number the past is known, which has streams of the file, too, and files that maintenance may remove.
        number = f"{mark[0]} {self._taken} {hash(tuple(relations))}"
        self._serve.Publications.publish(publication.as_json(number, relations))
        self._listing.keep(relations, publication.columns(self._spark, self._lake))
        self._seen = mark, self._taken
        self._look_again = monotonic() + _AGAIN_SECONDS

    def _read_file(self) -> None:
        """Take the lake's file as it is now, if it changed; what Spark was started with stays as it was."""
        file = Path(self._lake.path)
        # Two changes may be within one tick of the file system's clock.
        status = file.stat() if file.exists() else None
        changed = status and (status.st_mtime_ns, status.st_size, status.st_ino)
        is_new = changed != self._changed
        if not is_new and monotonic() < self._read_again:
            return
        self._changed, self._read_again = changed, math.inf
        try:
            lake = load_file(file, LakeFile)
        except ReplicationError as error:
            # What it names, a file with a secret say, may be there again although it stays as it is.
            self._read_again = monotonic() + _AGAIN_SECONDS
            if is_new:
                _log.warning("streams and tables are shown as they were in the lake's file: %s", error.message)
            return
        if (lake.lake, lake.spark) == (self._lake.lake, self._lake.spark):
            self._lake, self._taken = lake, self._taken + 1
        else:
            _log.warning("[lake] or [spark] of %s changed: start the server again to have it shown", file)

    def answer(self) -> None:
        """Look up what sessions ask of the past, until stopped."""
        while not self._stopped.is_set():
            try:
                question = self._serve.Publications.takeQuestion()
            except (Py4JError, OSError) as error:
                # Where the JVM has ended, `follow` ends the server.
                _log.warning("what sessions ask of the past cannot be seen now: %s", type(error).__name__)
                self._stopped.wait(5)
                continue
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
    users_file = None if serve.users is None or "://" in serve.users else lake.resolve(serve.users)
    for file in (users_file, serve.certificate, serve.key):
        if file is not None and not file.is_file():
            raise ConfigurationError(f"[serve] names {file}, which is no file")
    queries = java.Queries(serve.queries, serve.rows, serve.seconds, _text(serve.audit))
    users = java.Users(_text(users_file) or serve.users or "")
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
