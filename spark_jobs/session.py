"""The one Spark session of the lake: Delta's extensions, UTC, quiet logs, settings that suit small and large loads.

Guarantees that nothing is written to the current folder: warehouse and scratch files are in a temporary folder that goes with
the process. Assumes that the jars were fetched (`make setup`), or that spark-submit was given them. Called by the commands,
by submit.py and by verification.

Sessions of Spark that loads use again: a load that never ends would make some for each table and cycle permanently.
"""

import atexit
import logging
import os
import re
import shutil
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from py4j.java_gateway import JavaClass, JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from headrace import process
from headrace.configuration.lake import LakeFile, is_reference, is_secret
from headrace.errors import NeedsOperator
from spark_jobs import tuning
from spark_jobs.errors import explained
from spark_jobs.log_store import choice as log_store
from spark_jobs.state import retention

#: Settings that a lake file may override.
_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark keeps plans, jobs and tasks of the past for its UI even where that is off: 1,000 plans in the driver's heap, each with
    # a text that grows with the columns of its table.
    "spark.sql.ui.retainedExecutions": "50",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "2000",
    # One file of a few dozen megabytes for each write rather than one for each core.
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "32m",
    # A load that never ends commits each second: a checkpoint of its log costs as much as reading the commits again.
    "spark.databricks.delta.properties.defaults.checkpointInterval": "50",
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
    # The rows of a MERGE are held already, and always the same: a copy by Delta costs a job, and its size is not known.
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.databricks.delta.merge.failSourceCachedAfterMaterialization": "false",
    # The small jobs of a stream that is followed do not wait behind those of a MERGE.
    "spark.scheduler.mode": "FAIR",
    # Where in a Python program each column was made: a walk through the stack, and a dozen calls to the JVM, for each (X1).
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    # A load of a few tables needs more than the usual hundred pieces of compiled code, and would compile each of them again.
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.parquet.compression.codec": "zstd",
    # For records in Avro: Spark bounds a batch by its input, and where most columns are null JSON is a hundred times as long.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
}
_JAVA = "spark.driver.extraJavaOptions"
#: A JVM's default with both of its compilers. With the first one alone (-XX:TieredStopAtLevel=1) it is 48 MB, which the code of
#: 199 tables fills: then nothing more is compiled.
_CODE_CACHE = "-XX:ReservedCodeCacheSize=240m"
#: What the JVM writes, whatever its log settings are, about a module that Spark always loads.
_NOISE = b"WARNING: Using incubator modules"
#: Where tasks run in this very process, nothing listens beyond it.
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_EXECUTOR_JAVA = "spark.executor.extraJavaOptions"
#: Executors have no log settings of ours, and by Spark's own they write an error's rows into their log: Spark takes its own where
#: no level is set. `spark.executor.syncLogLevel.enabled` does not help: an executor of Spark 4.2 logs errors all the same.
_QUIET_EXECUTORS = "-Dlog4j2.level=FATAL"

#: What is not compiled as a whole is interpreted: each task would generate code again for a few rows.
_INTERPRETED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN"}
#: Has the names of settings that a session has since it is for a load of few changes.
_BRIEFLY = "spark.headrace.briefly"
#: Into how many tasks rows are read at least: as many as there are cores by default.
_SPREAD = ("spark.sql.leafNodeDefaultParallelism", "spark.sql.files.minPartitionNum")
#: Each job, task and plan costs more than its rows (23 jobs rather than 42 for changes of four tables).
_FEW_CHANGES = {
    **_INTERPRETED,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    **dict.fromkeys(_SPREAD, "1"),
    "spark.sql.ui.explainMode": "simple",
}
#: What is much all the same, such as all of bronze, is compiled, planned and spread there too as Spark does by default.
_WITH_CODE = {"spark.sql.codegen.factoryMode": "FALLBACK"}
_COMPILED = _WITH_CODE | {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
}
#: Options of the JVM of such a process: it compiles quickly and optimizes little, since what it compiles is hardly used.
_BRIEF, _ONE_COLLECTOR = "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"
#: What else gives the JVM options: settings, variables of the environment, and in files of Spark (a setting, or all of one).
_JAVA_BY = (_JAVA, "spark.driver.defaultJavaOptions")
_JAVA_FROM = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_JAVA_IN = {
    "spark-defaults.conf": re.compile(r"^\s*spark\.driver\.defaultJavaOptions\b", re.MULTILINE),
    "java-opts": re.compile(r"\S"),
}
#: For changes that are few, whatever they are joined with: each task costs more than its rows.
_FEW_ROWS = {"spark.sql.shuffle.partitions": "1", "spark.sql.autoBroadcastJoinThreshold": "64m"} | _INTERPRETED
#: Where rows are appended as they come there is nothing to learn from one stage for the next, but for each commit it costs.
_APPENDING = {
    "spark.sql.adaptive.enabled": "false",
    # Spark's list without Kafka: its older source copies each record once more, into a row of objects.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
}


def jars() -> list[Path]:
    """Return the jars of Delta and of Spark's Kafka source; raise NeedsOperator when they were not fetched."""
    folder = process.jar_folder() / "spark"
    jar_files = sorted(folder.glob("*.jar"))
    if not jar_files:
        raise NeedsOperator(
            f"no Spark jars in {folder}",
            hint="Run 'headrace jars' ('make setup' in a checkout), or name the folder that holds spark/*.jar in HEADRACE_JARS.",
        )
    return jar_files


def _all_jars(lake: LakeFile, more: Sequence[Path]) -> list[Path]:
    spark_jars = jars()
    return [*spark_jars, *log_store.jars(lake.root, spark_jars[0].parents[1], lake.spark.settings), *more]


def _argument(lake: LakeFile, name: str) -> bool:
    """Whether a setting may be an argument of the JVM, which every user of the machine can read."""
    return not is_secret(name) and not is_reference(name, lake.spark.settings.get(name, ""))


def session(
    lake: LakeFile,
    *,
    name: str = "headrace",
    writes: bool = True,
    more_jars: Sequence[Path] = (),
    fixed: Mapping[str, str] | None = None,
    few: bool = False,
) -> SparkSession:
    """Return the process's Spark session, made for this lake if there is none yet.

    Only a session that `writes` tables needs a store that takes files, and keys that may put them there. What is `fixed` takes
    precedence over the lake's file. It is made for `few` changes, and then the process ends; or for any number.
    """
    _quiet()
    tuning.remember_java_names()
    given = lake.spark_settings()
    master, own = _master(lake), _SETTINGS | given
    settings = {"spark.app.name": name} | tuning.ahead(master, own) | _SETTINGS | retention.settings(lake)
    settings |= few_changes(given | dict(fixed or {})) if few else {}
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # Under spark-submit the JVM runs already: master, memory, jars and log settings were its arguments.
        settings["spark.log.level"] = "ERROR"
    else:
        scratch = tempfile.mkdtemp(prefix="headrace-spark-")
        atexit.register(shutil.rmtree, scratch, ignore_errors=True)
        settings |= _launch(lake, scratch, more_jars, few=few)
    if not tuning.is_local(master):
        settings[_EXECUTOR_JAVA] = _QUIET_EXECUTORS
    for setting in {_JAVA, _EXECUTOR_JAVA} & given.keys() & settings.keys():
        # Added to ours, not in their place: ours name the log settings.
        given[setting] = f"{settings[setting]} {given[setting]}"
    settings |= given | dict(fixed or {})
    # A JVM that runs already is used again.
    if "PYSPARK_GATEWAY_PORT" not in os.environ and SparkContext._gateway is None:  # noqa: SLF001 - there is no other way to know.
        ahead = SparkConf().setAll([(name, value) for name, value in settings.items() if _argument(lake, name)])
        gateway = _gateway(ahead)
        settings |= _log_store(lake, given, gateway.jvm, local=tuning.is_local(master))
        # The context takes secrets from this process, by its own connection to the JVM.
        SparkContext(conf=SparkConf().setAll(list(settings.items())), gateway=gateway)
    else:
        settings |= _log_store(lake, given, SparkContext._jvm, local=tuning.is_local(master))  # noqa: SLF001 - as above.
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    tuning.follow(spark)
    effective = dict(spark.sparkContext.getConf().getAll())
    if writes:
        log_store.check(lake.root, effective)
        with explained(lake.root):
            log_store.check_server(spark, lake.root, effective)
    return spark


def _log_store(lake: LakeFile, given: Mapping[str, str], jvm: Any, *, local: bool) -> dict[str, str]:
    """Return the setting of the log store, by the file's settings, and those and the classes that the JVM was started with."""
    own = jvm.org.apache.spark.SparkConf(True)
    chosen = {name: str(own.get(name)) for name in log_store.names(lake.root) if own.contains(name)}

    def has_class(name: str) -> bool:
        # A user's own jars take the place of ours on executors that are not local.
        if not local and "spark.jars" in given:
            return False
        package, _, simple = name.rpartition(".")
        return isinstance(getattr(getattr(jvm, package), simple), JavaClass)

    return log_store.settings(lake.root, process.jar_folder(), {**chosen, **given}, has_class)


def few_changes(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session for few changes, and of those that are made of it, but for those that are given."""
    own = {name: value for name, value in _FEW_CHANGES.items() if name not in given}
    return own | {_BRIEFLY: " ".join(own)}


def _for_many_rows(spark: SparkSession) -> dict[str, str]:
    """Return what a session for many rows has otherwise than one for few changes; nothing of another one."""
    many = _COMPILED | dict.fromkeys(_SPREAD, str(spark.sparkContext.defaultParallelism))
    return {name: value for name, value in many.items() if name in _briefly(spark)}


@contextmanager
def plan_for_many(spark: SparkSession) -> Iterator[None]:
    """Let the plans of a session for few rows suit many meanwhile."""
    own = spark._jsc.sc().conf()  # noqa: SLF001 - PySpark copies all of it.
    settings = _for_many_rows(spark) | {name: value for name, value in _WITH_CODE.items() if not own.contains(name)}
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))


def _briefly(spark: SparkSession) -> list[str]:
    return str(spark.conf.get(_BRIEFLY, "")).split()


def for_few_changes(spark: SparkSession, lake: LakeFile) -> SparkSession:
    """Return a new session of the same context in which loads of few changes are cheap; larger ones go as fast as elsewhere."""
    return _aside(spark, few_changes(lake.spark.settings))


def _master(lake: LakeFile) -> str:
    """Return where tasks run: an argument of spark-submit, else the lake's file."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return lake.spark.master
    SparkContext._ensure_initialized()  # noqa: SLF001 - a SparkConf reads the JVM's own settings only after it.
    return SparkConf().get("spark.master") or lake.spark.master


def for_few_rows(spark: SparkSession) -> SparkSession:
    """Return a new session of the same context, whose plans suit few rows."""
    own = _briefly(spark)
    return _aside(spark, {name: _FEW_CHANGES[name] for name in own} | {_BRIEFLY: " ".join(own)} | _FEW_ROWS)


def for_appending(spark: SparkSession, *, few: bool) -> SparkSession:
    """Return a new session of the same context, for a stream that appends what comes, in `few` rows at a time or many."""
    return _aside(spark, _APPENDING | (_INTERPRETED if few else {}))


def _aside(spark: SparkSession, settings: dict[str, str]) -> SparkSession:
    session = spark.newSession()
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


def _gateway(conf: SparkConf) -> JavaGateway:
    """Start the JVM; what it writes to standard error is passed on, but for noise."""
    ours, its = os.pipe()
    threading.Thread(target=_pass_on, args=(ours,), name="stderr of Spark", daemon=True).start()
    try:
        return launch_gateway(conf, {"stderr": its})
    finally:
        os.close(its)


def _pass_on(pipe: int) -> None:
    with open(pipe, "rb") as lines:
        for line in lines:
            if not line.startswith(_NOISE):
                os.write(2, line)


def _launch(lake: LakeFile, scratch: str, more_jars: Sequence[Path], *, few: bool = False) -> dict[str, str]:
    """Return the settings that must be known before the JVM starts."""
    log, jar_files = (Path(__file__).parent / "log4j2.properties").as_uri(), _all_jars(lake, more_jars)
    # Native libraries are unpacked into the scratch folder and would stay behind after a kill.
    options = [f"-Dlog4j2.configurationFile={log}", "-Duser.timezone=UTC", f"-Djava.io.tmpdir={scratch}", _CODE_CACHE]
    if few:
        # A JVM does not start with two collectors, and options may be in a file that they name.
        options += [_BRIEF] if _has_java_options(lake) else [_BRIEF, _ONE_COLLECTOR]
    settings = {
        "spark.master": lake.spark.master,
        "spark.driver.memory": lake.spark.driver_memory,
        _JAVA: " ".join([*options, *process.jvm_options(jar_files)]),
        # The archive holds classes of this path alone, none of `spark.jars`, which executors elsewhere need.
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jar_files)),
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
    }
    if tuning.is_local(lake.spark.master):
        return settings | _LOCAL | {"spark.local.dir": scratch}
    # Executors elsewhere have local folders of their own.
    return settings | {"spark.jars": ",".join(map(str, jar_files))}


def _has_java_options(lake: LakeFile) -> bool:
    """Whether anything gives the JVM options next to ours."""
    if any(map(lake.spark.settings.get, _JAVA_BY)) or any(map(os.environ.get, _JAVA_FROM)):
        return True
    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf"))
    files = [(folder / name, options) for name, options in _JAVA_IN.items()]
    return any(file.is_file() and options.search(file.read_text("utf-8", errors="replace")) for file, options in files)


def _quiet() -> None:
    """Keep out of the log what an error states itself, and what could hold row values: PySpark logs every message of Spark."""
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(logger).disabled = True
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # Nothing here uses pandas; PySpark looks at its version all the same.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)


#: What commits set in their session: their note, and the transaction by which Delta takes them once.
COMMIT_SETTINGS = (
    "spark.databricks.delta.commitInfo.userMetadata",
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
)
#: Sessions that are not in use, by application, its cores (which settings follow), whether they suit few rows, and whether the
#: session that they are made of is for few changes.
_idle: dict[tuple[str, int, bool, bool], list[SparkSession]] = {}
_lock = Lock()


def activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread: Delta makes frames in that one."""
    spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001 - PySpark offers no other way.


def has_ended(spark: SparkSession) -> bool:
    """Whether the JVM has ended, or Spark in it was stopped, as after an error of its own: then all that is asked of it fails."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())  # noqa: SLF001 - PySpark offers no other way.
    except (Py4JError, OSError):
        return True


def carry(spark: SparkSession) -> Callable[[], None]:
    """Return what gives another thread, when called there, the session and this thread's properties: a load's pool and tag."""
    active, context = spark._jvm.SparkSession, spark._jsc.sc()  # noqa: SLF001 - PySpark offers no other way.
    properties = context.getLocalProperties().clone()

    def begin() -> None:
        active.setActiveSession(spark._jsparkSession)  # noqa: SLF001 - as above.
        # Each thread's own: Spark notes in them what a thread runs.
        context.setLocalProperties(properties.clone())

    return begin


@contextmanager
def borrow(spark: SparkSession, *, few: bool, begin: Callable[[], None] = lambda: None) -> Iterator[SparkSession]:
    """Give a session that is used by the caller alone, whose plans suit few rows or many; `begin` is called in its thread."""
    begin()
    made_of_few = bool(spark.conf.get(_BRIEFLY, ""))
    key = (str(spark.sparkContext.applicationId), int(spark.sparkContext.defaultParallelism), few, made_of_few)
    with _lock:
        idle = _idle.setdefault(key, [])
        session = idle.pop() if idle else None
    if session is None:
        session = for_few_rows(spark) if few else _aside(spark, _for_many_rows(spark))
    try:
        yield session
    finally:
        for name in COMMIT_SETTINGS:
            session.conf.unset(name)
        with _lock:
            idle.append(session)
