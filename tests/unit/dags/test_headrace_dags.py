"""The DAGs' structure, their errors, and that parsing them imports nothing heavy. They are parsed in a process of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dags
from headrace.configuration.lake import LoadSchedule

DAG_FILE = Path(dags.__file__).parent / "headrace_dags.py"
#: Parses the file once for each line of settings, and answers with what it defines and what is imported by then.
PARSER = """
import json, os, runpy, sys

def describe(made):
    found = {value.dag_id: value for value in made.values() if isinstance(value, made["DAG"])}
    return {
        name: {
            "schedule": None if dag.schedule is None else str(dag.schedule),
            "catchup": dag.catchup,
            "runs": dag.max_active_runs,
            "params": dag.params.dump(),
            "tasks": {
                task.task_id: {
                    "kind": task.task_type,
                    "after": sorted(task.upstream_task_ids),
                    "outlets": [outlet.name for outlet in task.outlets],
                    "retries": task.retries,
                    "retry_seconds": task.retry_delay.total_seconds(),
                    "pool": task.pool,
                    "timeout": task.execution_timeout and task.execution_timeout.total_seconds(),
                    "application": getattr(task, "application", None),
                    "arguments": getattr(task, "application_args", None),
                    "jars": getattr(task, "jars", None),
                    "connection": getattr(task, "_conn_id", None),
                    "loads": getattr(task, "loads", None),
                    "conf": getattr(task, "conf", None),
                    "mapped": list(task.expand_input.value["application_args"]) if task.is_mapped else None,
                }
                for task in dag.tasks
            },
        }
        for name, dag in found.items()
    }

path = list(sys.path)
for line in sys.stdin:
    settings = json.loads(line)
    sys.path[:] = [*settings.pop("packages", []), *path]
    os.environ.update(settings)
    try:
        answer = {"dags": describe(runpy.run_path(sys.argv[1])), "modules": sorted(sys.modules)}
        answer["connections"] = {name: json.loads(text) for name, text in os.environ.items() if name.startswith("AIRFLOW_CONN_")}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture(scope="module")
def parser(tmp_path_factory):
    """Yield a process that parses: Airflow takes seconds to import, so there is one."""
    settings = {"AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow")), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PARSER, str(DAG_FILE)],
        env=os.environ | settings,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def parse(parser, tmp_path):
    """Return a function that parses the DAG file with a lake's file of the given text, and returns what came of it."""
    spark = tmp_path / "jars" / "spark"
    spark.mkdir(parents=True)
    (spark / "b.jar").touch()
    (spark / "a.jar").touch()

    def run(text: str | None, packages: tuple[str, ...] = (), **environment: str):
        path = tmp_path / "lake.toml"
        if text is not None:
            path.write_text(text)
        settings = {"HEADRACE_LAKE_CONFIG": str(path), "HEADRACE_JARS": str(tmp_path / "jars")}
        parser.stdin.write(json.dumps(settings | {"packages": packages} | environment) + "\n")
        parser.stdin.flush()
        return json.loads(parser.stdout.readline())

    return run


def stream(name: str, schedule: str = "") -> str:
    return f'[streams.{name}]\nsources = ["a/{name}"]\n[streams.{name}.schedule]\n{schedule}\n'


def test_a_hundred_streams_make_a_dag_each_and_import_nothing_heavy(parse):
    result = parse("".join(stream(f"s{number}") for number in range(100)))

    assert set(result["dags"]) == {f"headrace_load_s{number}" for number in range(100)} | {
        "headrace_maintain",
        "headrace_verify",
        "headrace_replay",
    }
    heavy = {"pyspark", "delta", "confluent_kafka", "proton", "psycopg", "psycopg2", "pandas", "headrace", "spark_jobs"}
    assert heavy.isdisjoint(result["modules"])


def test_a_stream_is_checked_then_loaded_to_bronze_then_to_silver_which_updates_its_asset(parse, tmp_path):
    schedule = 'cron = "@hourly"\nretries = 5\nretry_seconds = 7\ntimeout_minutes = 3\npool = "lake"'

    dag = parse(stream("bank", schedule))["dags"]["headrace_load_bank"]

    assert (dag["runs"], dag["catchup"], dag["schedule"]) == (1, False, "@hourly")
    check, bronze, silver = (dag["tasks"][name] for name in ("check", "bronze", "silver"))
    assert (check["after"], bronze["after"], silver["after"]) == ([], ["check"], ["bronze"])
    assert (check["outlets"], bronze["outlets"], silver["outlets"]) == ([], [], ["headrace/bank"])
    assert dag["tasks"]["table_assets"]["outlets"] == ["headrace/bank/tables"]
    for task in (check, bronze, silver):
        assert (task["retries"], task["retry_seconds"], task["timeout"], task["pool"]) == (5, 7.0, 180.0, "lake")
    for name, task in (("bronze", bronze), ("silver", silver)):
        assert task["kind"] == "SparkSubmitOperator"
        assert task["application"].endswith("/spark_jobs/submit.py")
        arguments = ["bank", "--config", str(tmp_path / "lake.toml"), "--step", name]
        # A table that stopped withholds the asset of all others from nobody, and is reported behind (L11).
        assert task["arguments"] == [*arguments, *(["--report-stopped"] if name == "silver" else [])]
        assert task["jars"] == f"{tmp_path}/jars/spark/a.jar,{tmp_path}/jars/spark/b.jar"


def test_tables_are_brought_up_group_by_group_ahead_of_silver_where_there_are_several_groups(parse, tmp_path):
    schedule = 'retries = 5\npool = "lake"\ntable_groups = 3'

    tasks = parse(stream("bank", schedule))["dags"]["headrace_load_bank"]["tasks"]

    assert {name: task["after"] for name, task in tasks.items()} == {
        "check": [],
        "bronze": ["check"],
        "tables": ["bronze"],
        "silver": ["tables"],
        "stopped_tables": ["silver"],
        "table_assets": ["silver"],
    }
    common = ["bank", "--config", str(tmp_path / "lake.toml"), "--step", "silver"]
    assert tasks["tables"]["mapped"] == [[*common, "--group", f"{number}/3"] for number in (1, 2, 3)]
    assert (tasks["tables"]["retries"], tasks["tables"]["pool"], tasks["tables"]["outlets"]) == (5, "lake", [])
    assert (tasks["silver"]["arguments"], tasks["silver"]["outlets"]) == (
        [*common, "--report-stopped"],
        ["headrace/bank"],
    )


def test_steps_go_to_a_server_that_takes_loads(parse, tmp_path):
    text = stream("bank", "table_groups = 2") + '[serve]\nloads = "run/loads"\n'

    tasks = parse(text)["dags"]["headrace_load_bank"]["tasks"]

    assert {name: tasks[name]["kind"] for name in ("bronze", "tables", "silver")} == dict.fromkeys(
        ("bronze", "tables", "silver"), "WarmLoadOperator"
    )
    assert {tasks[name]["loads"] for name in ("bronze", "silver")} == {f"{tmp_path}/run/loads"}
    assert len(tasks["tables"]["mapped"]) == 2


# T10
def test_what_the_lakes_file_sets_for_the_driver_is_known_before_its_jvm_starts(parse, tmp_path):
    settings = (
        '[spark.settings]\n"spark.driver.extraJavaOptions" = "-Xint"\n'
        '"spark.driver.cores" = "3"\n"spark.sql.shuffle.partitions" = "2"\n'
    )
    for text, ends, more in (
        ("", "-XX:ReservedCodeCacheSize=240m", {}),
        (settings, " -Xint", {"spark.driver.cores": "3"}),
    ):
        tasks = parse(text + stream("bank"))["dags"]["headrace_load_bank"]["tasks"]

        for conf in (tasks["bronze"]["conf"], tasks["silver"]["conf"]):
            java = conf.pop("spark.driver.extraJavaOptions")
            assert "/spark_jobs/log4j2.properties" in java
            assert "-Duser.timezone=UTC" in java
            assert java.endswith(ends)
            jars = tmp_path / "jars" / "spark"
            assert conf == {"spark.driver.extraClassPath": f"{jars}/a.jar:{jars}/b.jar"} | more


# O2
def test_loads_run_on_the_master_of_the_lakes_file_as_commands_do(parse):
    other = {"AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "yarn"}'}
    for text, host, mode in (
        ("", "local[2]", "client"),
        ('[spark]\nmaster = "spark://spark:7077"\n', "spark://spark:7077", "client"),
        ('[spark]\nmaster = "k8s://https://k:6443"\ndeploy_mode = "cluster"\n', "k8s://https://k:6443", "cluster"),
    ):
        result = parse(text + stream("bank"), **other)

        assert result["connections"]["AIRFLOW_CONN_HEADRACE_SPARK"] == {
            "conn_type": "spark",
            "host": host,
            "extra": {"deploy-mode": mode},
        }
        tasks = result["dags"]["headrace_load_bank"]["tasks"]
        assert {tasks[name]["connection"] for name in ("bronze", "silver")} == {"headrace_spark"}


def test_what_executors_and_a_cluster_must_know_is_known_ahead_and_keys_are_in_no_command_line(parse):
    settings = {
        "spark.executor.memory": "3g",
        "spark.kubernetes.namespace": "lake",
        "spark.cores.max": "8",
        "spark.hadoop.fs.s3a.secret.key": "a-secret",
        "spark.sql.shuffle.partitions": "2",
    }
    text = "[spark.settings]\n" + "".join(f'"{name}" = "{value}"\n' for name, value in settings.items())
    conf = parse(text + stream("bank"))["dags"]["headrace_load_bank"]["tasks"]["bronze"]["conf"]

    assert {name: conf.get(name) for name in settings} == dict.fromkeys(settings) | {
        name: settings[name] for name in ("spark.executor.memory", "spark.kubernetes.namespace", "spark.cores.max")
    }


def test_a_lake_on_s3_brings_the_jars_of_its_file_system(parse, tmp_path):
    for name in ("spark/a.jar", "spark/b.jar", "object-store/hadoop-aws.jar"):
        (tmp_path / "jars" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "jars" / name).touch()
    own = '[spark.settings]\n"spark.jars.packages" = "org.example:s3:1"\n'
    for text, brought in (("", True), (own, False)):
        dag = parse(text + '[lake]\nroot = "s3a://bucket/lake"\n' + stream("bank"))["dags"]["headrace_load_bank"]

        assert dag["tasks"]["bronze"]["jars"].endswith("/hadoop-aws.jar") == brought


@pytest.mark.parametrize(("root", "count"), [("s3a://bucket/lake", 2), ("/lake", 1)])
def test_a_lake_brings_its_log_stores_from_the_wheel(parse, tmp_path, root, count):
    """Spark, which found no such class, failed each load of a lake on S3 where Airflow had the wheel."""
    folder = tmp_path / "packages" / "spark_jobs" / "log_store"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    jars = [folder / name for name in ("headrace-file-log-store.jar", "headrace-log-store.jar")]
    for jar in jars:
        jar.touch()
    text = f'[lake]\nroot = "{root}"\n' + stream("bank")

    dag = parse(text, (str(tmp_path / "packages"),))["dags"]["headrace_load_bank"]

    wanted = list(map(str, jars[:count]))
    assert [it for it in dag["tasks"]["bronze"]["jars"].split(",") if "log-store" in it] == wanted
    # Behind Delta's own, as in the session of a command: the archive of classes is for this order.
    assert dag["tasks"]["bronze"]["conf"]["spark.driver.extraClassPath"].split(os.pathsep)[2:] == wanted


def test_a_stream_without_a_schedule_runs_by_hand_and_has_the_defaults_of_the_lakes_file(parse):
    dag = parse('[streams.bank]\nsources = ["a/b"]\n')["dags"]["headrace_load_bank"]

    default = LoadSchedule()
    assert default.table_groups == 1
    assert dag["schedule"] is None
    assert set(dag["tasks"]) == {"check", "bronze", "silver", "stopped_tables", "table_assets"}
    for task in dag["tasks"].values():
        assert task["retries"] == default.retries
        assert task["retry_seconds"] == default.retry_seconds
        assert task["timeout"] == default.timeout_minutes * 60
        assert task["pool"] == default.pool


def test_verification_has_a_schedule_of_its_own_and_can_be_asked_for_less(parse):
    text = stream("bank") + stream("sales") + '[verify]\nsample = 5\n[verify.schedule]\ncron = "@daily"\nretries = 1\n'

    dag = parse(text)["dags"]["headrace_verify"]

    assert (dag["schedule"], dag["runs"], dag["tasks"]["verify"]["retries"]) == ("@daily", 1, 1)
    assert dag["params"] == {"stream": "", "source": "", "table": "", "sample": 5}


def test_l15_every_stream_is_maintained_daily_one_after_another(parse):
    dag = parse(stream("bank") + stream("sales"))["dags"]["headrace_maintain"]

    assert (dag["schedule"], dag["runs"], set(dag["tasks"])) == ("@daily", 1, {"maintain_bank", "maintain_sales"})
    dag = parse(stream("bank") + '[maintenance.schedule]\ncron = ""\nretries = 1\n')["dags"]["headrace_maintain"]
    assert (dag["schedule"], dag["tasks"]["maintain_bank"]["retries"]) == (None, 1)


def test_a_replay_is_asked_for_with_stream_layer_and_where_from(parse):
    dag = parse(stream("bank") + stream("sales"))["dags"]["headrace_replay"]

    assert (dag["schedule"], dag["runs"]) == (None, 1)
    assert dag["params"] == {"stream": "bank", "layer": "silver", "from": ""}


@pytest.mark.parametrize(
    ("text", "environment", "said"),
    [
        (None, {}, "cannot be read: No such file or directory"),
        ("", {"HEADRACE_LAKE_CONFIG": ""}, "HEADRACE_LAKE_CONFIG is not set"),
        ("[streams", {}, "lake.toml (HEADRACE_LAKE_CONFIG) is not TOML"),
        ("", {}, "lake.toml: streams: the file has no [streams.NAME]"),
        (stream("bank", "cron = 5"), {}, "streams.bank.schedule.cron: expected str"),
        (stream("bank", "retries = true"), {}, "streams.bank.schedule.retries: expected int"),
        (stream("bank", "tries = 3"), {}, "streams.bank.schedule.tries: no such field"),
        (stream("bank", "table_groups = 0"), {}, "streams.bank.schedule.table_groups: expected 1 or more"),
        (stream("bank") + "[verify.schedule]\ntable_groups = 2", {}, "verify.schedule.table_groups: no such field"),
        ('[streams."Bank/1"]\n', {}, "streams.Bank/1: "),
        (stream("bank") + "[maintenance.schedule]\ncron = 1", {}, "maintenance.schedule.cron: expected str"),
        (stream("bank") + "[verify.schedule]\ncron = 1", {}, "verify.schedule.cron: expected str"),
        ("[streams.bank]\nschedule = 3", {}, "streams.bank.schedule: expected a table"),
        ("streams = 1", {}, "streams: "),
        ("[serve]\nloads = 1\n" + stream("bank"), {}, "lake.toml: serve.loads: expected a text"),
        ("spark = 1\n" + stream("bank"), {}, "lake.toml: spark: expected a table"),
        ("[spark]\nmaster = 1\n" + stream("bank"), {}, "lake.toml: spark.master: expected a text"),
        ('[spark]\ndeploy_mode = "near"\n' + stream("bank"), {}, "lake.toml: spark.deploy_mode: expected 'client'"),
        (
            '[spark]\nmaster = "spark://h:7077"\ndeploy_mode = "cluster"\n' + stream("bank"),
            {},
            "standalone clusters run no driver in Python",
        ),
        (
            '[spark.settings]\n"spark.driver.cores" = 1\n' + stream("bank"),
            {},
            "lake.toml: spark.settings: expected a table of texts",
        ),
        (stream("bank"), {"HEADRACE_JARS": "/nowhere"}, "no Spark jars in /nowhere/spark"),
    ],
)
def test_a_wrong_file_is_an_error_that_says_what_is_wrong(parse, text, environment, said):
    result = parse(text, **environment)

    assert result["error"].startswith("ValueError: ")
    assert said in result["error"]
