"""The process in which Airflow runs DAGs, one after the other, for infra/local/airflow.py.

A line of JSON on standard input, a DAG's identifier and parameters, makes one run of the DAG with Airflow's own task runner
and metadata database; the answer is one line of JSON on standard output. All output of Airflow and the tasks goes to standard
error. When standard input ends, this process and all that it started end at once, so nothing outlives the owner.
"""
# Airflow prints while it is imported, so that comes after standard output was put aside.
# ruff: noqa: PLC0415

import json
import logging
import os
import queue
import signal
import sys
import threading
from typing import Any, TextIO

_log = logging.getLogger(__name__)


def main() -> None:
    """Answer requests until standard input ends."""
    # Tasks print; the answers need standard output for themselves.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    # DAGs run on the main thread: Airflow handles signals there.
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    _prepare()
    _answer(answers, {"ready": True})
    while True:
        request = json.loads(requests.get())
        try:
            _answer(answers, _run(request["dag"], request["params"]))
        except Exception as error:  # noqa: BLE001 - whatever it is, the owner must get it.
            _log.exception("the run of %s could not be made", request["dag"])
            _answer(answers, {"error": f"{type(error).__name__}: {error}"})


def _read(requests: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        requests.put(line.strip())
    # The group is this process's own: its tasks and their spark-submit are in it.
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _answer(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _prepare() -> None:
    """Make Airflow's metadata database, or bring it up to date, and the parts that the first task would wait for."""
    from airflow.sdk.execution_time.supervisor import in_process_api_server
    from airflow.utils.db import initdb

    initdb()
    # Tasks speak to Airflow through this; it takes seconds to make, once.
    assert in_process_api_server().app


def _run(dag_id: str, params: dict[str, Any]) -> dict[str, Any]:
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
    main()
