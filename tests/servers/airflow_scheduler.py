"""A real Airflow that runs by itself in one folder: scheduler, DAG processor and the server that its tasks report to.

The scheduler decides when a DAG runs and tries tasks again, as in production; LocalExecutor and SQLite are all it needs on one
machine. There are no pages to look at and no users: only this machine can reach it. Used by tests.
"""

import secrets
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import psutil

from headrace.errors import NeedsOperator
from infra.local.airflow import environment
from infra.local.process import Process
from infra.local.server import free_port

_STOP_SECONDS = 15.0


@dataclass(frozen=True, kw_only=True)
class TaskState:
    """The state of a task of a run."""

    #: Airflow's own word; None before it was scheduled.
    state: str | None
    #: How often it was begun.
    tries: int


@dataclass(frozen=True, kw_only=True)
class RunState:
    """The state of a run."""

    run_id: str
    #: `scheduled`, `manual`.
    kind: str
    state: str
    tasks: dict[str, TaskState]


class Scheduler:
    """An Airflow for one lake's file; `with` starts it and stops it with all that it runs."""

    def __init__(
        self, folder: Path, lake_file: Path, *, jars: Path, more: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Take the folder of all that it writes, the lake's file, and the jars; `more` is of its environment."""
        self.folder = folder.absolute()
        self._database = self.folder / "airflow.db"
        port = free_port()
        self._environment = dict(environment(self.folder, lake_file.absolute(), jars.absolute())) | {
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
            "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "False",
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            **more,
        }
        serve = ["api-server", "--apps", "execution", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
        self._parts = {
            Process(self.folder / f"{part[0]}.json", self.log(part[0]), end_signal=signal.SIGTERM, detached=False): part
            for part in (serve, ["dag-processor"], ["scheduler"])
        }

    def log(self, part: str) -> Path:
        """Return the log of a part: `scheduler`, `dag-processor`, `api-server`."""
        return self.folder / f"{part}.log"

    def start(self) -> Self:
        """Make the metadata database and start all parts; raise NeedsOperator when it cannot be made."""
        self.folder.mkdir(parents=True, exist_ok=True)
        made = subprocess.run(
            [*_AIRFLOW, "db", "migrate"], env=self._environment, check=False, capture_output=True, text=True
        )
        if made.returncode:
            raise NeedsOperator(f"Airflow's database cannot be made:\n{(made.stdout + made.stderr)[-2000:]}")
        for process, part in self._parts.items():
            process.launch([*_AIRFLOW, *part], folder=self.folder, environment=self._environment)
        return self

    def stop(self) -> None:
        """Stop all parts, and the tasks that still run."""
        for part in reversed(list(self._parts)):
            part.end(signal.SIGTERM, _STOP_SECONDS)
        # Tasks lose their parent with the scheduler; some were begun after it was asked to end.
        left = self.processes()
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, _STOP_SECONDS)

    def runs(self, dag_id: str) -> list[RunState]:
        """Return the runs of a DAG, oldest first; none while the database is not there."""
        with self._read() as database:
            runs = database.execute(
                "SELECT run_id, run_type, state FROM dag_run WHERE dag_id = ? ORDER BY id", [dag_id]
            ).fetchall()
            # One of several that a task was mapped to has its number behind the name.
            tasks = database.execute(
                "SELECT run_id, task_id || CASE WHEN map_index >= 0 THEN '[' || map_index || ']' ELSE '' END, state, try_number "
                "FROM task_instance WHERE dag_id = ?",
                [dag_id],
            ).fetchall()
        return [
            RunState(
                run_id=run_id,
                kind=kind,
                state=state,
                tasks={name: TaskState(state=at, tries=tries) for of, name, at, tries in tasks if of == run_id},
            )
            for run_id, kind, state in runs
        ]

    def assets(self, dag_id: str) -> list[str]:
        """Return the names of the assets that runs of a DAG updated, an entry for each update."""
        with self._read() as database:
            rows = database.execute(
                "SELECT asset.name FROM asset_event JOIN asset ON asset.id = asset_event.asset_id "
                "WHERE asset_event.source_dag_id = ? ORDER BY asset_event.id",
                [dag_id],
            ).fetchall()
        return [name for (name,) in rows]

    def processes(self) -> list[psutil.Process]:
        """Return all that runs for this Airflow: its parts, tasks, and what tasks started."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def said(self) -> str:
        """Return the end of what each part, and each task, printed."""
        logs = [*(self.log(part[0]) for part in self._parts.values()), *sorted((self.folder / "logs").rglob("*.log"))]
        return "\n".join(f"--- {log}\n{log.read_text(errors='replace')[-3000:]}" for log in logs if log.exists())

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return bool(process.environ().get("AIRFLOW_HOME") == str(self.folder))
        except (psutil.Error, OSError):
            return False

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, timeout=30)) as database:
            yield database

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()


_AIRFLOW = [sys.executable, "-P", "-m", "airflow"]
