"""The stack of docker-compose.yml in containers: started by podman-compose, watched, killed piece by piece, removed."""

import json
import os
import shutil
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.containers.engine import ROOT, SERVERS, Podman
from tests.rules.waiting import eventually

PROJECT = "headrace-test"
#: Services that do their work once.
ONCE = {"certs", "jakarta-init", "london-init", "topics", "topics-broker"}


class Stack:
    """Containers of a copy of the compose file, which loads every minute; `with` starts and removes them, and their volumes."""

    def __init__(self, podman: Podman, compose: Path) -> None:
        self.podman = podman
        self._compose = compose
        self.folder = podman.scratch / "stack"
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._check_health, daemon=True)

    def __enter__(self) -> Self:
        for name in ("docker-compose.yml", "infra/compose", "infra/artemis"):
            copy = self.folder / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, copy)
        lake = self.folder / "infra/compose/headquarters/lake.toml"
        lake.write_text(lake.read_text().replace('"*/15 * * * *"', '"* * * * *"'))
        self.down()
        self._watch.start()
        self.compose("up", "--detach", "--no-build", password="only-for-this-test")
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watch.join(60)
        self.down()

    def compose(self, *words: str, password: str | None, seconds: float = 900) -> subprocess.CompletedProcess[str]:
        """Run podman-compose; return how it ended."""
        environment = dict(self.podman.environment)
        environment.pop("PG_PASSWORD", None)
        if password is not None:
            environment["PG_PASSWORD"] = password
        command = [self._compose, "--podman-path", SERVERS / "podman.sh", "--project-name", PROJECT, *words]
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )

    def down(self) -> None:
        self.compose("down", "--volumes", "--timeout", "5", password="none")

    def name(self, service: str) -> str:
        return f"{PROJECT}_{service}_1"

    def services(self) -> list[str]:
        """Return the services that run until they are stopped."""
        names = self.podman.run(
            "ps", "--all", "--filter", f"label=io.podman.compose.project={PROJECT}", "--format={{.Names}}"
        )
        services = {name.removeprefix(f"{PROJECT}_").removesuffix("_1") for name in names.split()}
        return sorted(services - ONCE)

    def execute(self, service: str, *words: str, check: bool = True, given: str | None = None) -> str:
        return self.podman.run(
            "exec", "--interactive", self.name(service), *words, check=check, given=given, seconds=600
        )

    def logs(self, service: str) -> str:
        return self.podman.run("logs", self.name(service), check=False)

    def state(self, service: str) -> dict:
        return self.podman.inspect(self.name(service))["State"]

    def healthy(self, service: str) -> bool:
        """Say whether a container runs, and is healthy where it can say so."""
        state = self.state(service)
        return bool(state["Running"]) and (state.get("Health") or {}).get("Status", "") in {"", "healthy"}

    def kill(self, service: str) -> None:
        """End a container's process as a crash does, and wait until it has been started again and is healthy."""
        before = self.state(service)["Pid"]
        os.kill(before, signal.SIGKILL)
        eventually(
            lambda: self.state(service)["Pid"] not in {0, before} and self.healthy(service),
            240,
            every=1,
            saying=f"{service} is back",
        )

    def schedule_ran(self, since: str = "") -> bool:
        """Say whether a load that Airflow's schedule started after this moment (ISO 8601) succeeded."""
        listed = self.execute(
            "airflow", "airflow", "dags", "list-runs", "headrace_load_bank", "--output", "json", check=False
        )
        with suppress(ValueError):
            runs = json.loads(listed[listed.index("[{") :])
            return any(
                run["state"] == "success" and run["run_id"].startswith("scheduled__") and run["start_date"] > since
                for run in runs
            )
        return False

    def _check_health(self) -> None:
        """Do what systemd's timers do elsewhere: run the health checks."""
        while not self._ended.wait(3):
            for service in self.services():
                with suppress(subprocess.TimeoutExpired):
                    self.podman.run("healthcheck", "run", self.name(service), check=False, seconds=30)
