"""The Hive metastore of PySpark's jars, in a process of its own, with its database (Derby) in a folder."""

import os
import signal
import socket
from pathlib import Path

import pyspark

from infra.local.process import Process, tail
from infra.local.server import free_port
from tests.rules.waiting import eventually

_JARS = f"{Path(pyspark.__file__).parent}/jars/*"
_JAVA = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


class HiveMetastore:
    """A metastore that can be stopped and started again with what it knows."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.uri = f"thrift://127.0.0.1:{self.port}"
        self._log = folder / "metastore.log"
        self._process = Process(folder / "metastore.json", self._log, end_signal=signal.SIGKILL, detached=False)

    def start(self) -> None:
        """Start it; return when it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={self.folder}/derby;create=true",
            "hive.metastore.warehouse.dir": f"{self.folder}/warehouse",
            "hive.metastore.schema.verification": "false",
            "datanucleus.schema.autoCreateAll": "true",
            # Its asynchronous log needs a library that Spark does not have.
            "hive.async.log.enabled": "false",
        }
        command = ["java", *_JAVA, f"-Dderby.stream.error.file={self.folder}/derby.log", "-cp", _JARS]
        command += ["org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(self.port)]
        for name, value in settings.items():
            command += ["--hiveconf", f"{name}={value}"]
        self._process.launch(command, folder=self.folder, environment=dict(os.environ))
        eventually(self._answers, 180, saying=f"the metastore answers; {tail(self._log)}")

    def stop(self) -> None:
        """Kill it: what it committed stays."""
        self._process.kill()

    def _answers(self) -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self.port)) == 0
