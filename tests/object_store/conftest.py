"""An S3 server for the run, a Spark session that knows it, and lakes on it."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from infra.local import server
from spark_jobs import session as made_for_users
from tests.rules.waiting import eventually

ROOT = Path(__file__).parents[2]
BUCKET = "lakes"
#: The server knows nobody, and takes anything that is signed.
_USER = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests"}


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of an S3 server that has the bucket."""
    port = server.free_port()
    log = (tmp_path_factory.mktemp("s3") / "server.log").open("wb")
    command = [str(ROOT / ".setup/object-store/bin/python"), str(Path(__file__).with_name("server.py")), str(port)]
    address = f"http://127.0.0.1:{port}"
    with pytest.MonkeyPatch.context() as patch, subprocess.Popen(command, stdout=log, stderr=log) as process:
        for name, value in _USER.items():
            patch.setenv(name, value)
        try:
            eventually(lambda: process.poll() is None and requests.put(f"{address}/{BUCKET}", timeout=30).ok, 120)
            yield address
        finally:
            process.kill()


@pytest.fixture
def faults(s3: str) -> Iterator[Callable[..., None]]:
    """Yield a function that has the server misbehave, as its module says; it does so no more after the test."""

    def misbehave(**kinds: float) -> None:
        requests.put(f"{s3}/-/faults", params=kinds, timeout=30).raise_for_status()

    yield misbehave
    misbehave()


@pytest.fixture(scope="session")
def settings(s3: str) -> str:
    """Return the lines of a lake's file by which Hadoop finds the server."""
    of_hadoop = {
        "endpoint": s3,
        "endpoint.region": "eu-west-2",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
    }
    lines = {f"spark.hadoop.fs.s3a.{name}": value for name, value in of_hadoop.items()}
    if store := os.environ.get("LOG_STORE"):
        lines["spark.delta.logStore.s3a.impl"] = store
    return "".join(f'"{name}" = "{value}"\n' for name, value in lines.items())


@pytest.fixture
def s3_lake(lake_file: Any, settings: str, tmp_path: Path) -> Any:
    """Return a function that makes a lake on the server, in the test's own folder."""
    root = f"s3a://{BUCKET}/{tmp_path.name}"
    return lambda **streams: lake_file(root=root, settings=settings, **streams)


@pytest.fixture(scope="session")
def spark(lake_in: Any, settings: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield the run's Spark session."""
    folder = tmp_path_factory.mktemp("spark")
    made = made_for_users.session(lake_in(folder)(root=f"s3a://{BUCKET}/none", settings=settings, s="s"))
    yield made
    made.stop()


def commits() -> int:
    """Return how often each process commits in the proof."""
    return int(os.environ.get("COMMITS", "150"))
