"""Kafka Connect with others' sinks, standalone: started, given connectors over its REST interface, and ended with its owner.

Assumes the environment of tests/consumers/requirements.txt and the jars of `python -m infra.local.jars consumers`, which
`make test-consumers` sets up.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import httpx

from infra.local import jars
from infra.local.server import Server
from tests.consumers.environment import EXAMPLES, java
from tests.waiting import eventually

_WORKER = """\
bootstrap.servers={bootstrap}
listeners=http://127.0.0.1:{port}
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms=1000
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
config.providers=directory
config.providers.directory.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider
plugin.discovery=only_scan
plugin.path={plugins}
"""


def example(name: str, **changes: str) -> dict[str, Any]:
    """Return the settings of an example's connector; `changes` replace texts, and dots in settings' names are `__`."""
    found = json.loads((EXAMPLES / f"{name}.json").read_text())
    return found | {setting.replace("__", "."): value for setting, value in changes.items()}


class Connect(Server):
    """One worker of Kafka Connect, in standalone mode."""

    kind, name = "connect", "Kafka Connect"
    start_seconds = 240.0
    port_taken = ("Failed to bind", "Address already in use")

    def __init__(self, folder: Path, bootstrap: str) -> None:
        super().__init__(folder, port=None, log=None, detached=False)
        self._bootstrap = bootstrap

    @property
    def version(self) -> str:
        """The version of Debezium's sink."""
        return jars.SINK.pins[0].split(":")[2]

    def add(self, name: str, settings: dict[str, Any]) -> None:
        """Start a connector, and wait until its task runs."""
        self._client(name).put("/config", json=settings).raise_for_status()
        eventually(lambda: self.runs(name), 120, saying=f"{name} runs")

    def pause(self, name: str) -> None:
        """Stop a connector's task; its offsets stay."""
        self._client(name).put("/stop").raise_for_status()
        eventually(lambda: self._status(name)["connector"]["state"] == "STOPPED", 60, saying=f"{name} stopped")

    def resume(self, name: str) -> None:
        """Start a connector's task again, which reads its schemas again."""
        self._client(name).put("/resume").raise_for_status()
        eventually(lambda: self.runs(name), 120, saying=f"{name} runs")

    def runs(self, name: str) -> bool:
        """Whether a connector's tasks run; raise AssertionError with the reason when one has failed."""
        tasks = self._status(name)["tasks"]
        assert not any(task["state"] == "FAILED" for task in tasks), tasks
        return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)

    def _status(self, name: str) -> Any:
        return self._client(name).get("/status").raise_for_status().json()

    def _client(self, name: str) -> httpx.Client:
        return httpx.Client(base_url=f"http://{self.address}/connectors/{name}", timeout=60)

    def _make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def _kept_port(self) -> int:
        try:
            return int(re.findall(r"http://127\.0\.0\.1:(\d+)", self._properties.read_text())[-1])
        except FileNotFoundError:
            return 0

    def _launch(self, port: int) -> None:
        plugins = jars.unpacked(jars.SINK)
        text = _WORKER.format(bootstrap=self._bootstrap, port=port, folder=self.folder, plugins=plugins)
        self._properties.write_text(text)
        class_path = os.pathsep.join(map(str, [*jars.connect(), *jars.iceberg_transforms()]))
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
