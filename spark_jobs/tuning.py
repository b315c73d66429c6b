"""What makes jobs fast: as much is done at the same time as there are cores, of this machine or of the cluster that runs the job;
and names of Java classes and methods are looked up in the JVM once.

A cluster's cores are those that the lake's file states, else those of the executors that have registered by now, so they are read
again when a load knows what it has to do. Settings of the lake's file take precedence. Called by session and silver's load.

PySpark looks names up again for each column that it makes, with two questions besides the call, for each of which the JVM
searches every jar of its class path, once for each package that might have it.
"""

import os
import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView
from pyspark.sql import SparkSession

_PARTITIONS, _OF_LOG = "spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")
_TEST_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")
#: The session's setting that names the settings which follow the cores.
_FOLLOWING = "spark.headrace.following"
#: Tables that are written at the same time, whatever the cores: each waits for its own log and files most of the time, and
#: takes a thread and some memory of the driver.
_LEAST_TABLES, _MOST_TABLES = 4, 32


def is_local(master: str) -> bool:
    """Whether tasks run in the driver's own process."""
    return _LOCAL.fullmatch(master) is not None


def cores(master: str, given: Mapping[str, str]) -> int | None:
    """Return the cores that the master and the settings state; None where only the cluster knows."""
    if local := _LOCAL.fullmatch(master):
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
    if cluster := _TEST_CLUSTER.fullmatch(master):
        return int(cluster[1]) * int(cluster[2])
    for name in ("spark.default.parallelism", "spark.cores.max"):
        if given.get(name, "").isdigit():
            return int(given[name])
    # YARN and Kubernetes give an executor one core unless more are requested.
    each = int(given.get("spark.executor.cores", "1"))
    for name in ("spark.dynamicAllocation.maxExecutors", "spark.executor.instances"):
        if given.get(name, "").isdigit():
            return int(given[name]) * each
    return None


def settings(cores: int) -> dict[str, str]:
    """Return the settings that follow the cores."""
    # A table's log is small; fifty tasks to read it cost seconds, and each task makes code of its own to read it with.
    return {_PARTITIONS: str(max(8, 2 * cores)), _OF_LOG: str(max(1, cores // 4))}


def ahead(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session that has still to be made."""
    core_count = cores(master, given)
    sized = {} if core_count is None else settings(core_count)
    following = [name for name in (_PARTITIONS, _OF_LOG) if name not in given] if core_count is None else []
    one_machine = {} if is_local(master) else {"spark.databricks.delta.vacuum.parallelDelete.enabled": "true"}
    return sized | one_machine | ({_FOLLOWING: ",".join(following)} if following else {})


def follow(spark: SparkSession) -> None:
    """Set what follows the cores by those that the cluster has now, for this session and for those that are made after it."""
    following = spark.conf.get(_FOLLOWING, "") or ""
    values = settings(spark.sparkContext.defaultParallelism)
    for name in filter(None, following.split(",")):
        spark.conf.set(name, values[name])
        # New sessions take it from the context.
        spark._jsc.sc().conf().set(name, values[name])  # noqa: SLF001 - PySpark offers no other way.


def tables_at_a_time(spark: SparkSession) -> int:
    """Return how many tables are written at the same time."""
    return min(max(_LEAST_TABLES, int(spark.sparkContext.defaultParallelism) // 2), _MOST_TABLES)


def remember_java_names() -> None:
    """Let Py4J keep the packages, classes and static methods that it has looked up. Done again it changes nothing."""
    for kind in (JVMView, JavaPackage, JavaClass):
        if not hasattr(kind.__getattr__, "__wrapped__"):
            kind.__getattr__ = _look_up_once(kind.__getattr__)


def _look_up_once(look_up: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    @wraps(look_up)
    def remembering(parent: Any, name: str) -> Any:
        member = look_up(parent, name)
        # To the JVM a name that it does not know is a package; a class may have it once it is imported. A field may change.
        if isinstance(member, JavaClass | JavaMember) or (isinstance(member, JavaPackage) and name.islower()):
            vars(parent)[name] = member
        return member

    return remembering
