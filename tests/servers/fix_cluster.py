"""A Spark cluster for a module's tests, and lakes whose loads run on it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.configuration.lake import LakeFile
from tests.servers.spark_cluster import SparkCluster

#: Of drivers and executors on one small machine.
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "768m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Yield a running cluster of two workers; `shared` is all that its executors and the driver have in common."""
    spark_cluster = SparkCluster(tmp_path_factory.mktemp("cluster") / "machines", tmp_path_factory.mktemp("shared"))
    try:
        spark_cluster.start()
        yield spark_cluster
    finally:
        spark_cluster.delete()


@pytest.fixture
def cluster_lake(cluster: SparkCluster, lake_file: Callable[..., LakeFile], tmp_path: Path) -> Callable[..., LakeFile]:
    """Return a function that makes a lake in the shared folder, whose file names the cluster."""
    lines = "".join(f'"{name}" = "{value}"\n' for name, value in _SETTINGS.items())
    lines += f'[spark]\nmaster = "{cluster.url}"\n'
    root = cluster.shared / tmp_path.name
    return lambda **streams: lake_file(root=str(root), settings=lines, **streams)


class Command:
    """A `headrace` command in a process of its own, with a folder of its own as current one."""

    def __init__(self, folder: Path, *arguments: str, script: str | None = None) -> None:
        command = [str(Path(sys.executable).with_name("headrace")), *arguments]
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"TMPDIR": str(folder)},
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._script = script

    def ended(self, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        """Return how it ended."""
        out, error = self.process.communicate(self._script, seconds)
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, out, error)

    def kill(self) -> None:
        """Kill it with its JVM, if it runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()


@pytest.fixture
def headrace(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Return a function that starts a `headrace` command; none outlives the test."""
    started: list[Command] = []

    def start(*arguments: Any, script: str | None = None) -> Command:
        started.append(Command(tmp_path, *map(str, arguments), script=script))
        return started[-1]

    yield start
    for command in started:
        command.kill()
