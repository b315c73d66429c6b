"""What Spark's JVM is started with, and what it writes to standard error next to its log."""

import os
from types import SimpleNamespace
from unittest.mock import Mock

import msgspec
import pytest
from pyspark import SparkContext, java_gateway

from headrace.configuration.lake import LakeFile
from spark_jobs import session


def test_what_the_jvm_says_goes_on_but_for_the_notice_of_modules_that_spark_asks_for(capfd):
    ours, its = os.pipe()
    os.write(its, b"WARNING: Using incubator modules: jdk.incubator.vector\nout of memory\n")
    os.close(its)

    session._pass_on(ours)

    assert capfd.readouterr().err == "out of memory\n"


# T10
def test_a_jvm_has_room_for_the_compiled_code_of_many_tables(tmp_path, monkeypatch):
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "a.jar").touch()
    monkeypatch.setenv("HEADRACE_JARS", str(tmp_path))
    given = {
        "lake": {"root": str(tmp_path)},
        "kafka": {"bootstrap": "k:9092"},
        "streams": {"bank": {"sources": ["a/b"]}},
    }
    lake = msgspec.convert(given, LakeFile)

    settings = session._launch(lake, str(tmp_path), ())

    assert "-XX:ReservedCodeCacheSize=240m" in settings["spark.driver.extraJavaOptions"].split()


_OPTIONS = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


def _own_options_of_a_small_load(folder, monkeypatch, settings, variables=None, files=None):
    """Return the options that the JVM of a load of few changes has beyond that of another."""
    for name in ("spark", "conf"):
        (folder / name).mkdir()
    (folder / "spark" / "a.jar").touch()
    for name, text in (files or {}).items():
        (folder / "conf" / name).write_text(text, encoding="latin-1")
    for name in _OPTIONS:
        monkeypatch.delenv(name, raising=False)
    for name, text in {
        "HEADRACE_JARS": str(folder),
        "SPARK_CONF_DIR": str(folder / "conf"),
        **(variables or {}),
    }.items():
        monkeypatch.setenv(name, text)
    file = {
        "lake": {"root": str(folder)},
        "kafka": {"bootstrap": "k:9092"},
        "spark": {"settings": settings},
        "streams": {"bank": {"sources": ["a/b"]}},
    }
    lake = msgspec.convert(file, LakeFile)
    many, few = (
        session._launch(lake, str(folder), (), few=few)["spark.driver.extraJavaOptions"].split()
        for few in (False, True)
    )
    return [option for option in few if option not in many]


def test_the_jvm_of_a_load_of_few_changes_compiles_quickly_and_has_one_collector(tmp_path, monkeypatch):
    # Spark's own files need not be UTF-8.
    files = {
        "spark-defaults.conf": "# für alle\nspark.driver.memory 2g\n# spark.driver.defaultJavaOptions -XX:+UseZGC\n"
    }

    assert _own_options_of_a_small_load(tmp_path, monkeypatch, {}, files=files) == [
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
    ]


# A JVM does not start with two collectors: "Multiple garbage collectors selected".
@pytest.mark.parametrize(
    ("settings", "variables", "files"),
    [
        ({"spark.driver.extraJavaOptions": "-Xss8m -XX:+UseZGC"}, {}, {}),
        ({"spark.driver.defaultJavaOptions": "-XX:+UseZGC"}, {}, {}),
        *(({}, {name: "-XX:+UseZGC"}, {}) for name in _OPTIONS),
        ({}, {"JDK_JAVA_OPTIONS": "@/etc/java.options"}, {}),
        ({}, {}, {"spark-defaults.conf": "# für alle\nspark.driver.defaultJavaOptions  -XX:+UseZGC\n"}),
        ({}, {}, {"java-opts": "-XX:+UseZGC\n"}),
    ],
)
def test_a_jvm_that_is_given_options_elsewhere_has_no_collector_of_ours(
    tmp_path, monkeypatch, settings, variables, files
):
    own = _own_options_of_a_small_load(tmp_path, monkeypatch, settings, variables, files)

    assert own == ["-XX:TieredStopAtLevel=1"]


def test_settings_of_a_load_of_few_changes_give_way_to_the_users_own_and_are_taken_back_for_many_rows():
    adaptive, whole, mode = (
        f"spark.sql.{name}" for name in ("adaptive.enabled", "codegen.wholeStage", "codegen.factoryMode")
    )

    def sessions(given):
        brief = session.few_changes(given) | given
        return brief, brief | compiled(brief)

    def compiled(conf):
        return session._for_many_rows(SimpleNamespace(conf=conf, sparkContext=SimpleNamespace(defaultParallelism=4)))

    # when a user has set nothing
    few, many = sessions({})
    assert (few[adaptive], few[whole], few[mode]) == ("false", "false", "NO_CODEGEN")
    assert few["spark.databricks.delta.snapshotPartitions"] == "1"
    assert (many[adaptive], many[whole], many[mode]) == ("true", "true", "FALLBACK")
    files = "spark.sql.files.minPartitionNum"
    assert (few[files], many[files]) == ("1", "4")
    # when a user has, then it stays in both
    given = {adaptive: "false", whole: "true", files: "7"}
    few, many = sessions(given)
    assert few | given == few
    assert many | given == many
    assert many[mode] == "FALLBACK"
    # and a process for any number of changes has nothing of it
    assert compiled({}) == {}


@pytest.mark.parametrize("own", [{}, {"spark.sql.codegen.factoryMode": "CODEGEN_ONLY"}])
def test_a_session_for_few_changes_suits_many_rows_meanwhile(own):
    given = {"spark.sql.codegen.wholeStage": "false"} | own
    conf = session.few_changes(given) | given
    spark = SimpleNamespace(
        conf=SimpleNamespace(get=conf.get, set=conf.__setitem__),
        sparkContext=SimpleNamespace(defaultParallelism=4),
        _jsc=Mock(**{"sc.return_value.conf.return_value.contains": own.__contains__}),
    )
    before = dict(conf)
    with session.plan_for_many(spark):
        within = dict(conf)
    changed = {name: value for name, value in within.items() if value != before[name]}
    # the user's own stays
    assert changed == ({} if own else {"spark.sql.codegen.factoryMode": "FALLBACK"}) | {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.leafNodeDefaultParallelism": "4",
        "spark.sql.files.minPartitionNum": "4",
    }
    assert conf == before


class Started(BaseException):
    """The JVM would be started now."""


def test_s9_secrets_are_no_arguments_of_the_jvm(tmp_path, monkeypatch):
    """S9: keys of [spark.settings] were on the command line, where every user of the machine reads them."""
    for folder in ("spark", "object-store", "log-store"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jar").touch()
    monkeypatch.setenv("HEADRACE_JARS", str(tmp_path))
    monkeypatch.setenv("OF_A_BUCKET", "THE-OTHER-SECRET")
    monkeypatch.setattr(SparkContext, "_gateway", None)
    s3a = "spark.hadoop.fs.s3a."
    settings = {
        f"{s3a}endpoint": "s3.example",
        f"{s3a}secret.key": "THE-SECRET",
        f"{s3a}bucket.lake.anything": "env:OF_A_BUCKET",
    }
    given = {
        "lake": {"root": "s3a://lake/tables"},
        "kafka": {"bootstrap": "k:9092"},
        "spark": {"settings": settings},
        "streams": {"bank": {"sources": ["a/b"]}},
    }
    commands = []

    def popen(command, **_):
        commands.append(command)
        raise Started

    monkeypatch.setattr(java_gateway, "Popen", popen)

    with pytest.raises(Started):
        session.session(msgspec.convert(given, LakeFile))

    assert f"{s3a}endpoint=s3.example" in commands[0]
    assert "SECRET" not in " ".join(commands[0])
