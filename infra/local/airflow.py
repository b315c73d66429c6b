"""A real Airflow in one folder: its metadata database, our DAGs, and runs of them, without its web server and scheduler.

A run is made by Airflow's own task runner (`DAG.test`): real operators, states, retries and asset events, recorded in the
metadata database. One process serves all runs, so Airflow's imports are paid once; it starts in the background and ends with its
owner, with all that it started. It is this module as a script: a line of JSON on standard input, a DAG's identifier and
parameters, makes one run; the answer is one line of JSON on standard output. All output of Airflow and the tasks goes to standard
error. Used by the demo and by tests.
"""

import json
import logging
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import dags
from headrace.errors import NeedsOperator
from infra.local.process import read_since, size

# Airflow prints while it is imported, so that comes after standard output was put aside.
# ruff: noqa: PLC0415

_DAGS = Path(dags.__file__).parent
_STOP_SECONDS = 10.0
#: How a line of Airflow's own log starts; what is raised has lines of its own.
_DATED = re.compile(r"\d{4}-\d\d-\d\dT")


@dataclass(frozen=True, kw_only=True)
class TaskRun:
    """How one task of a run ended."""

    name: str
    #: Airflow's own words: `success`, `failed`, `upstream_failed`, `skipped`.
    state: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class DagRun:
    """How a run of a DAG ended."""

    run_id: str
    state: str
    #: In the DAG's order.
    tasks: list[TaskRun]
    #: Names of the assets that the run updated.
    assets: list[str]
    #: What Airflow and the tasks printed during the run, the last 20,000 bytes at most.
    log: str

    @property
    def failure(self) -> str:
        """What the tasks that failed raised, without Airflow's own lines; the end of the log when nothing was raised."""
        errors: list[str] = []
        inside = False
        for line in self.log.splitlines():
            if line.startswith("Traceback "):
                inside = True
            elif _DATED.match(line):
                inside = False
            elif inside and not line.startswith(" "):
                errors.append(line)
        # The list of jars explains nothing.
        return re.sub(r" --jars \S+", "", "\n".join(errors))[-4000:].strip() or self.log[-2000:]

    def check(self) -> Self:
        """Return itself; raise NeedsOperator with what the tasks raised when the run failed."""
        if self.state != "success":
            states = ", ".join(f"{task.name} {task.state}" for task in self.tasks)
            raise NeedsOperator(f"Airflow run {self.run_id} failed ({states}):\n{self.failure}")
        return self


class Airflow:
    """An Airflow for one lake's file. `with` starts it in the background and stops it with all that it runs."""

    def __init__(self, folder: Path, lake_file: Path, *, jars: Path) -> None:
        self.folder = folder.absolute()
        #: The output of Airflow and the tasks.
        self.log = self.folder / "airflow.log"
        self._environment = environment(self.folder, lake_file.absolute(), jars.absolute())
        self._process: subprocess.Popen[str] | None = None
        self._ready = False

    def start(self) -> Self:
        """Begin to start, and return at once; the first run waits for it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "infra.local.airflow"],
                env=self._environment,
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                # A group of its own, which it ends as a whole.
                start_new_session=True,
            )
        return self

    def run(self, dag_id: str, *, seconds: float = 600, **params: Any) -> DagRun:
        """Make one run of a DAG, with parameters of its own, and return how it ended, failed or not.

        Raises NeedsOperator when no run could be made: the DAG file has an error, there is no such DAG, time is up.
        """
        assert self._process is not None, "start() comes first"
        before = size(self.log)
        if not self._ready:
            self._answer(seconds)
            self._ready = True
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"dag": dag_id, "params": params}) + "\n")
        self._process.stdin.flush()
        answer = self._answer(seconds)
        if "error" in answer:
            raise NeedsOperator(
                f"Airflow cannot run {dag_id}: {answer['error']}", hint=f"Its log is {self.log}; its DAGs are {_DAGS}."
            )
        return DagRun(
            run_id=answer["run_id"],
            state=answer["state"],
            tasks=[TaskRun(**task) for task in answer["tasks"]],
            assets=answer["assets"],
            log=read_since(self.log, before),
        )

    def stop(self) -> None:
        """Stop, with whatever still runs. Nothing happens when it does not run."""
        process, self._process, self._ready = self._process, None, False
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.wait()
        process.stdout.close()

    def _answer(self, seconds: float) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        # A timer that ends the process ends the wait for its line, too.
        timer = threading.Timer(seconds, _kill, [process])
        timer.start()
        try:
            line = process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            self.stop()
            raise NeedsOperator(
                f"Airflow ended, or did not answer within {seconds:.0f} seconds:\n{read_since(self.log, 0)[-2000:]}",
                hint=f"Read the end of {self.log}.",
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        """Begin to start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()


def _kill(process: "subprocess.Popen[str]") -> None:
    # With its tasks and their spark-submit, which are in its group.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def environment(folder: Path, lake_file: Path, jars: Path) -> Mapping[str, str]:
    """Return the environment of an Airflow in a folder, whose DAGs are those of one lake's file."""
    # Airflow reads every setting from its environment first; none of the caller's own may get in.
    mine = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    return mine | {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(_DAGS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(folder / "logs"),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "HEADRACE_LAKE_CONFIG": str(lake_file),
        "HEADRACE_JARS": str(jars),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }


_log = logging.getLogger(__name__)


def answer_requests() -> None:
    """Answer requests until standard input ends."""
    # Tasks print; the answers need standard output for themselves.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    # DAGs run on the main thread: Airflow handles signals there.
    threading.Thread(target=_read_requests, args=(requests,), daemon=True).start()
    _prepare_airflow()
    _send_answer(answers, {"ready": True})
    while True:
        request = json.loads(requests.get())
        try:
            _send_answer(answers, _run_dag(request["dag"], request["params"]))
        except Exception as error:  # noqa: BLE001 - whatever it is, the owner must get it.
            _log.exception("the run of %s could not be made", request["dag"])
            _send_answer(answers, {"error": f"{type(error).__name__}: {error}"})


def _read_requests(requests: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        requests.put(line.strip())
    # The group is this process's own: its tasks and their spark-submit are in it.
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _send_answer(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _prepare_airflow() -> None:
    """Make Airflow's metadata database, or bring it up to date, and the parts that the first task would wait for."""
    from airflow.sdk.execution_time.supervisor import in_process_api_server
    from airflow.utils.db import initdb

    initdb()
    # Tasks speak to Airflow through this; it takes seconds to make, once.
    assert in_process_api_server().app


def _run_dag(dag_id: str, params: dict[str, Any]) -> dict[str, Any]:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    bag = DagBag()
    if bag.import_errors:
        return {"error": "\n".join(f"{file}: {error}" for file, error in sorted(bag.import_errors.items()))}
    if dag_id not in bag.dags:
        return {"error": f"there is no DAG {dag_id!r}, only {', '.join(sorted(bag.dags))}"}
    run = bag.dags[dag_id].test(run_conf=params)
    with create_session() as session:
        instances = run.get_task_instances(session=session)
        order = {name: place for place, name in enumerate(bag.dags[dag_id].task_ids)}
        return {
            "run_id": run.run_id,
            "state": str(run.state),
            "tasks": [
                {
                    "name": it.task_id,
                    "state": str(it.state or "none"),
                    "seconds": (it.end_date - it.start_date).total_seconds() if it.start_date and it.end_date else 0.0,
                }
                for it in sorted(instances, key=lambda it: order[it.task_id])
            ],
            "assets": list(
                session.scalars(
                    select(AssetModel.name)
                    .join(AssetEvent, AssetEvent.asset_id == AssetModel.id)
                    .where(AssetEvent.source_run_id == run.run_id, AssetEvent.source_dag_id == dag_id)
                )
            ),
        }


if __name__ == "__main__":
    answer_requests()
