"""A DAG for each stream of the lake's file that loads it; one maintains, one verifies, one replays: schedules, no logic.

Airflow imports this file often, so it reads the file that HEADRACE_LAKE_CONFIG names with the standard library alone and
imports nothing heavy. What a run loads is computed by the load from committed offsets, never from a date of Airflow's, so
every task can be run again at any point. A file that is missing or wrong is an import error that names what is wrong.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections import deque
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Asset, AssetAlias, Param, task
from airflow.sdk.exceptions import AirflowFailException

_START = datetime(2026, 1, 1, tzinfo=UTC)
_STREAM = re.compile(r"[a-z0-9][a-z0-9_-]*")
#: A schedule's fields and what they are when the file does not set them.
_SCHEDULE = {"cron": "", "retries": 2, "retry_seconds": 60, "timeout_minutes": 120, "pool": "default_pool"}
#: The same of a load, which alone has groups of tables.
_LOAD = _SCHEDULE | {"table_groups": 1}
#: Exit codes that another try cannot change: not equal, wrong configuration, an operator's decision, corrupt input.
_FINAL = {1, 2, 3, 4}
_JAVA = "spark.driver.extraJavaOptions"
#: As the session of a command has it: spark_jobs/session.py has the reason (T10).
_CODE_CACHE = "-XX:ReservedCodeCacheSize=240m"
#: Airflow's connection for spark-submit, which this file makes of [spark] in the lake's file, so that loads run where every other
#: command of the lake does: where Spark is is set in one place.
_CONNECTION = "headrace_spark"
#: What a driver or a cluster must know before the job starts; the job sets the rest itself. Nothing of Hadoop's, which may
#: hold keys, gets into a command line.
_AHEAD = ("spark.driver.", "spark.executor.", "spark.kubernetes.", "spark.yarn.", "spark.submit.", "spark.pyspark.")
_AHEAD_TOO = {"spark.files", "spark.archives", "spark.cores.max", "spark.jars.packages"}
#: Settings by which a user brings jars of his own for an object store, as the session of a command knows them.
_OWN_JARS = {"spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"}


def _lake_file() -> tuple[Path, dict[str, Any]]:
    """Return the lake's file and what it holds; raise ValueError saying what is wrong with it."""
    name = os.environ.get("HEADRACE_LAKE_CONFIG")
    if not name:
        raise ValueError(
            "HEADRACE_LAKE_CONFIG is not set. Set it to the path of the lake's file (TOML) wherever Airflow runs."
        )
    path = Path(name).absolute()
    try:
        return path, tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} (HEADRACE_LAKE_CONFIG) cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path} (HEADRACE_LAKE_CONFIG) is not TOML: {error}") from error


def _streams(path: Path, document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the schedule of each stream; raise ValueError naming file, field and rule."""
    streams = document.get("streams")
    if not isinstance(streams, dict) or not streams:
        raise ValueError(f"{path}: streams: the file has no [streams.NAME]")
    schedules = {}
    for name, stream in streams.items():
        if not isinstance(stream, dict) or not _STREAM.fullmatch(name):
            raise ValueError(
                f"{path}: streams.{name}: a stream is a table, named in lower-case letters, digits, - and _"
            )
        schedules[name] = _schedule(path, f"streams.{name}", stream, _LOAD)
        if schedules[name]["table_groups"] < 1:
            raise ValueError(f"{path}: streams.{name}.schedule.table_groups: expected 1 or more")
    return schedules


def _schedule(path: Path, where: str, section: dict[str, Any], defaults: dict[str, Any] = _SCHEDULE) -> dict[str, Any]:
    """Return a section's schedule with the defaults filled in; raise ValueError naming file, field and rule."""
    schedule = section.get("schedule", {})
    if not isinstance(schedule, dict):
        raise ValueError(f"{path}: {where}.schedule: expected a table")  # noqa: TRY004 - the file is wrong.
    for field, value in schedule.items():
        if field not in defaults:
            raise ValueError(f"{path}: {where}.schedule.{field}: no such field, only {', '.join(defaults)}")
        if type(value) is not type(defaults[field]):
            raise ValueError(f"{path}: {where}.schedule.{field}: expected {type(defaults[field]).__name__}")
    return defaults | schedule


def _spark(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    """Return how the jobs run; raise ValueError naming file, field and rule."""
    section = document.get("spark", {})
    if not isinstance(section, dict):
        raise ValueError(f"{path}: spark: expected a table")  # noqa: TRY004 - the file is wrong.
    settings = section.get("settings", {})
    if not isinstance(settings, dict) or not all(isinstance(value, str) for value in settings.values()):
        raise ValueError(f"{path}: spark.settings: expected a table of texts")
    for field in ("master", "deploy_mode"):
        if not isinstance(section.get(field, ""), str):
            raise ValueError(f"{path}: spark.{field}: expected a text")  # noqa: TRY004 - the file is wrong.
    master, mode = section.get("master", "local[2]"), section.get("deploy_mode", "client")
    if mode not in {"client", "cluster"}:
        raise ValueError(f"{path}: spark.deploy_mode: expected 'client' or 'cluster'")
    if mode == "cluster" and not master.startswith(("k8s://", "yarn")):
        raise ValueError(
            f"{path}: spark.deploy_mode: 'cluster' goes with a master of YARN or Kubernetes: Spark's standalone clusters run no "
            "driver in Python."
        )
    connection = {"conn_type": "spark", "host": master, "extra": {"deploy-mode": mode}}
    os.environ[f"AIRFLOW_CONN_{_CONNECTION.upper()}"] = json.dumps(connection)
    return section


def _loads(path: Path, document: dict[str, Any]) -> str | None:
    """Return the folder in which a running server takes loads; None where none does. Raises ValueError naming field and rule."""
    section = document.get("serve", {})
    folder = section.get("loads") if isinstance(section, dict) else ""
    if folder is not None and (not isinstance(folder, str) or not folder or folder.startswith(("env:", "file:"))):
        raise ValueError(f"{path}: serve.loads: expected a text, and no reference")
    return None if folder is None else str(path.parent / folder)


def _jars(document: dict[str, Any]) -> list[Path]:
    """Return the jars for Spark, for the lake's log and its file system; raise ValueError when they were not fetched."""
    folder = _jar_folder()
    jars = sorted((folder / "spark").glob("*.jar"))
    if not jars:
        raise ValueError(
            f"no Spark jars in {folder / 'spark'}. Run 'headrace jars' ('make setup' in a checkout), or set "
            "HEADRACE_JARS to the folder that holds spark/*.jar."
        )
    root, settings = str(document.get("lake", {}).get("root", "")), document.get("spark", {}).get("settings", {})
    on_s3 = root.startswith(("s3:", "s3a:", "s3n:"))
    # The wheel has ours; in a checkout they were made next to the others. The archive of classes is for no other ones.
    for name in ["headrace-file-log-store.jar", *(["headrace-log-store.jar"] if on_s3 else [])]:
        places = (_spark_jobs() / "log_store" / name, folder / "log-store" / name)
        jars += [place for place in places if place.exists()][:1]
    if on_s3 and not _OWN_JARS & settings.keys():
        jars += sorted((folder / "object-store").glob("*.jar"))
    return jars


def _jar_folder() -> Path:
    """Return where jars are: the same places as headrace/process.py has."""
    if home := os.environ.get("HEADRACE_JARS"):
        return Path(home)
    checkout = _spark_jobs().resolve().parent
    if (checkout / "pyproject.toml").exists():
        return checkout / ".setup" / "jars"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "headrace" / "jars"


def _known_ahead(jars: list[Path], settings: dict[str, str]) -> dict[str, str]:
    """Return what must be known before the JVM starts; the job sets the rest. The session of a command does the same."""
    java = [f"-Dlog4j2.configurationFile={(_spark_jobs() / 'log4j2.properties').as_uri()}", "-Duser.timezone=UTC"]
    java.append(_CODE_CACHE)
    archive = jars[0].parent / "classes.jsa"
    if archive.exists():
        java += [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"]
    kept = {name: value for name, value in settings.items() if name.startswith(_AHEAD) or name in _AHEAD_TOO}
    # Added to ours, not in their place: ours name the log settings.
    options = " ".join(filter(None, [*java, kept.get(_JAVA)]))
    return {"spark.driver.extraClassPath": os.pathsep.join(map(str, jars))} | kept | {_JAVA: options}


def _spark_jobs() -> Path:
    """Return the folder of the package with the jobs, without importing it."""
    spec = find_spec("spark_jobs")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(
            "the package spark_jobs is not installed next to Airflow. Install the wheel of Headrace with its extra 'spark' there."
        )
    return Path(spec.submodule_search_locations[0])


def _command(*arguments: str) -> str:
    """Run a headrace command, its output in the task's log as it comes; return its last line.

    A failure that stays fails without another try.
    """
    command, last = [sys.executable, "-m", "headrace", *arguments], deque[str](maxlen=20)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as running:
        try:
            for line in running.stdout or ():
                print(line, end="", flush=True)
                last.append(line)
        except BaseException:
            # The task ends, and with it the command.
            running.kill()
            raise
    if running.returncode:
        message = f"headrace {' '.join(arguments)} ended with exit code {running.returncode}:\n{''.join(last)[-2000:]}"
        raise AirflowFailException(message) if running.returncode in _FINAL else RuntimeError(message)
    return last[-1] if last else ""


def _load(
    stream: str, schedule: dict[str, Any], path: Path, spark: dict[str, Any], jars: list[Path], loads: str | None
) -> DAG:
    """Return the DAG that loads a stream: check, bronze, groups of tables side by side where there are several, silver."""
    operator = SparkSubmitOperator
    if loads is not None:
        from dags.warm_load import WarmLoadOperator  # noqa: PLC0415 - of the wheel, and needed here alone.

        operator = WarmLoadOperator
    spark_submit: dict[str, Any] = {
        "conn_id": _CONNECTION,
        "application": str(_spark_jobs() / "submit.py"),
        "jars": ",".join(map(str, jars)),
        "driver_memory": spark.get("driver_memory", "2g"),
        "conf": _known_ahead(jars, spark.get("settings", {})),
        # The spark-submit of the Python that Airflow runs on comes first.
        "env_vars": {"PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"},
    }

    def task_options(task_id: str) -> dict[str, Any]:
        own = {"loads": loads} if loads is not None else {}
        return spark_submit | own | {"task_id": task_id, "name": f"headrace_{stream}_{task_id}"}

    def arguments_of(step: str, *more: str) -> list[str]:
        return [stream, "--config", str(path), "--step", step, *more]

    with _dag(
        f"headrace_load_{stream}",
        f"Load what came since the last run of stream {stream} from Kafka into Delta.",
        schedule,
    ) as dag:

        @task(task_id="check")
        def check() -> None:
            _command("lake", "check", stream, "--config", str(path))

        checked, count = check(), schedule["table_groups"]
        bronze = operator(**task_options("bronze"), application_args=arguments_of("bronze"))
        silver = operator(
            **task_options("silver"),
            # What is published is published, whatever table stopped: the task after this one reports it.
            application_args=arguments_of("silver", "--report-stopped"),
            outlets=[Asset(name=f"headrace/{stream}", uri=f"headrace://lake/{stream}")],
        )

        @task(task_id="stopped_tables")
        def stopped_tables() -> None:
            _command("lake", "tables", stream, "--stopped", "--config", str(path))

        # Which tables went on is known behind the load alone.
        every = AssetAlias(name=f"headrace/{stream}/tables")

        @task(task_id="table_assets", inlets=[every], outlets=[every])
        def table_assets(*, inlet_events: Any, outlet_events: Any) -> None:
            newest = list(inlet_events[every].ascending(False).limit(1))
            since = [f"--since={newest[0].extra['published']}"] if newest else []
            changed = json.loads(_command("lake", "changed", stream, *since, "--config", str(path)))
            for table, extra in changed["tables"].items():
                asset = Asset(
                    name=f"headrace/{stream}/{table}", uri=f"headrace://lake/{stream}/{quote(table, safe='')}"
                )
                outlet_events[every].add(asset, extra=extra | {"published": changed["load"]})

        silver >> [stopped_tables(), table_assets()]
        if count > 1:
            each = [arguments_of("silver", "--group", f"{number}/{count}") for number in range(1, count + 1)]
            tables = operator.partial(**task_options("tables")).expand(application_args=each)
            checked >> bronze >> tables >> silver
        else:
            checked >> bronze >> silver
    return dag


def _dag(dag_id: str, description: str, schedule: dict[str, Any], **more: Any) -> DAG:
    """Return a DAG with a schedule of the lake's file; one run at a time, and none for times that were missed."""
    return DAG(
        dag_id=dag_id,
        description=description,
        schedule=schedule["cron"] or None,
        start_date=_START,
        catchup=False,
        max_active_runs=1,
        tags=["headrace"],
        default_args={
            "retries": schedule["retries"],
            "retry_delay": timedelta(seconds=schedule["retry_seconds"]),
            "execution_timeout": timedelta(minutes=schedule["timeout_minutes"]),
            "pool": schedule["pool"],
        },
        **more,
    )


def _verify(path: Path, section: dict[str, Any], streams: list[str]) -> DAG:
    """Return the DAG that proves the lake equal to the sources, while both are written to."""
    params = {
        "stream": Param("", type="string", enum=["", *streams], description="One stream; all when empty."),
        "source": Param("", type="string", description="One source, region/name; all when empty."),
        "table": Param("", type="string", description="One table; all when empty."),
        "sample": Param(
            section.get("sample", 100),
            type="number",
            exclusiveMinimum=0,
            maximum=100,
            description="Percent of each table.",
        ),
    }
    with _dag(
        "headrace_verify",
        "Prove that the lake's tables equal the databases', at one place of each source's log.",
        _schedule(path, "verify", section),
        params=params,
    ) as dag:

        @task(task_id="verify")
        def verify(params: dict[str, Any]) -> None:
            options = [f"--{name}={params[name]}" for name in ("source", "table") if params[name]]
            options += [f"--sample={params['sample']}"] if params["sample"] != 100 else []
            _command("verify", *filter(None, [params["stream"]]), *options, "--config", str(path))

        verify()
    return dag


def _maintain(path: Path, section: Any, streams: list[str]) -> DAG:
    """Return the DAG that compacts each stream's tables and removes old files, one stream after another, next to loads."""
    if not isinstance(section, dict):
        raise ValueError(f"{path}: maintenance: expected a table")  # noqa: TRY004 - the file is wrong.
    with _dag(
        "headrace_maintain",
        "Compact the lake's tables, and remove files that were replaced longer ago than keep_days.",
        _schedule(path, "maintenance", section, _SCHEDULE | {"cron": "@daily"}),
        max_active_tasks=1,
    ) as dag:

        def planned(stream: str) -> None:
            @task(task_id=f"maintain_{stream}")
            def maintain() -> None:
                _command("lake", "maintain", stream, "--config", str(path))

            maintain()

        for stream in streams:
            planned(stream)
    return dag


def _replay(path: Path, streams: dict[str, dict[str, Any]]) -> DAG:
    """Return the DAG that does a layer of a stream again, on demand; readers see the old rows until new ones are published."""
    params = {
        "stream": Param(next(iter(streams)), type="string", enum=list(streams)),
        "layer": Param("silver", type="string", enum=["silver", "bronze"]),
        "from": Param("", type="string", description="An offset, a time or a position; the beginning when empty."),
    }
    with _dag(
        "headrace_replay",
        "Do silver again from bronze, or bronze from Kafka. Pause the stream's load meanwhile.",
        _SCHEDULE | {"timeout_minutes": max(schedule["timeout_minutes"] for schedule in streams.values())},
        params=params,
    ) as dag:

        @task(task_id="replay")
        def replay(params: dict[str, Any]) -> None:
            since = [f"--from={params['from']}"] if params["from"] else []
            _command("lake", "replay", params["stream"], "--layer", params["layer"], *since, "--config", str(path))

        replay()
    return dag


_path, _given = _lake_file()
_session = _spark(_path, _given)
_jar_list = _jars(_given)
_folder = _loads(_path, _given)
_all = _streams(_path, _given)
for _stream, _planned in _all.items():
    globals()[f"headrace_load_{_stream}"] = _load(_stream, _planned, _path, _session, _jar_list, _folder)
headrace_verify = _verify(_path, _given.get("verify", {}), list(_all))
headrace_maintain = _maintain(_path, _given.get("maintenance", {}), list(_all))
headrace_replay = _replay(_path, _all)
