"""A Spark standalone cluster on this machine, whose executors share no disk with the driver but one folder.

Each worker is in namespaces of its own (`unshare`, as root or where ordinary users may have them): of this machine's files it
sees the system, Spark's jars and the shared folder, and has folders of its own for work and temporary files. When a worker is
killed all its executors are gone at once, as when a machine dies.
"""

import os
import re
import shutil
import signal
from pathlib import Path

import pyspark

from infra.local.process import Process, tail
from tests.rules.waiting import eventually

_SPARK = Path(pyspark.__file__).parent
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
#: Servers that live for minutes and do little.
_JAVA = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


class SparkCluster:
    """A master, and workers of one core each."""

    def __init__(self, folder: Path, shared: Path, *, workers: int = 2) -> None:
        self.folder, self.shared = folder, shared
        self._master_log = folder / "master.log"
        self._master = Process(folder / "master.json", self._master_log, end_signal=signal.SIGKILL, detached=False)
        self._workers = [self._process(number) for number in range(workers)]

    @property
    def url(self) -> str:
        """The master's address."""
        result = _STARTED.search(self._master_log.read_text()) if self._master_log.exists() else None
        return result[1] if result else ""

    def start(self) -> None:
        """Start everything; return when all workers are registered."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command = ["java", *_JAVA, "-cp", f"{_SPARK}/jars/*", "org.apache.spark.deploy.master.Master"]
        command += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self._master.launch(command, folder=self.folder, environment=_environment(str(_SPARK)))
        eventually(lambda: self.url, 60, saying=f"the master has started; {tail(self._master_log)}")
        for number in range(len(self._workers)):
            self._launch(number)
        self._wait_for(len(self._workers))

    def start_worker(self, number: int) -> None:
        """Start a worker that does not run; return when the master knows it."""
        known = self._registered()
        self._launch(number)
        self._wait_for(known + 1)

    def _launch(self, number: int) -> None:
        root = self._root(number)
        (root / "work").mkdir(parents=True, exist_ok=True)
        java = Path(shutil.which("java") or "java").resolve().parents[1]
        alone = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
        machine = ["sh", str(Path(__file__).with_name("spark_machine.sh")), root, _SPARK, java, self.shared]
        worker = [java / "bin" / "java", *_JAVA, "-cp", "/spark/jars/*", "org.apache.spark.deploy.worker.Worker"]
        # An address each: of executors on one host Spark takes it that they can read each other's files.
        host = f"127.0.0.{number + 2}"
        worker += ["--host", host, "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", "/work"]
        self._workers[number].launch(
            [*alone, *machine, *worker, self.url], folder=self.folder, environment=_environment("/spark", host)
        )

    def _wait_for(self, workers: int) -> None:
        eventually(lambda: self._registered() >= workers, 120, saying="all workers are registered")

    def kill_worker(self, number: int) -> None:
        """Kill a worker and its executors with -9."""
        self._workers[number].kill()

    def executor_logs(self) -> dict[Path, str]:
        """Return what all executors have written to their output."""
        logs = [log for number in range(len(self._workers)) for log in self._root(number).glob("work/app-*/*/std*")]
        return {log: log.read_text() for log in logs}

    def delete(self) -> None:
        """End everything and remove it."""
        for process in (*self._workers, self._master):
            process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _process(self, number: int) -> Process:
        place = self.folder / f"worker{number}"
        return Process(place.with_suffix(".json"), place.with_suffix(".log"), end_signal=signal.SIGKILL, detached=False)

    def _root(self, number: int) -> Path:
        return self.folder / f"worker{number}"

    def _registered(self) -> int:
        return self._master_log.read_text().count("Registering worker")


def _environment(spark: str, host: str = "127.0.0.1") -> dict[str, str]:
    """Return what every process of the cluster has, and nothing of ours."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "SPARK_HOME": spark,
        # Else it is looked for in the folders of a checkout of Spark.
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": host,
        "SPARK_NO_DAEMONIZE": "1",
        "LC_ALL": "C.UTF-8",
    }
