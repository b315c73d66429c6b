"""Several drivers on S3 (L5) and on files (L53): what is refused, since it loses commits, and what is a file system of this
machine.
"""

from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JJavaError

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError, NeedsOperator
from spark_jobs.log_store import choice as log_store

STORE = "spark.delta.logStore.s3a.impl"


@pytest.fixture
def lake(tmp_path):
    """Return a function that returns the lake's file with a root and settings."""

    def make(root, settings=""):
        file = tmp_path / "lake.toml"
        file.write_text(
            f'[lake]\nroot = "{root}"\n[kafka]\nbootstrap = "k:1"\n[spark.settings]\n{settings}\n[streams.s]\nsources = ["a/b"]\n'
        )
        return load(file, LakeFile)

    return make


@pytest.mark.parametrize("root", ["/lake", "file:///lake", "hdfs://names/lake", "abfss://c@a.dfs.core.windows.net/l"])
def test_file_systems_with_a_safe_default_need_no_setting(root):
    log_store.check(root, {})


@pytest.mark.parametrize("store", ["S3DynamoDBLogStore", "S3SingleDriverLogStore"])
def test_on_s3_a_store_that_somebody_has_chosen_is_taken(store):
    log_store.check("s3a://bucket/lake", {STORE: f"io.delta.storage.{store}"})


@pytest.mark.parametrize(
    "given",
    [
        {},
        {STORE: "io.delta.storage.GCSLogStore", "spark.hadoop.fs.s3a.create.conditional.enabled": "true"},
        {"spark.delta.logStore.class": "org.apache.spark.sql.delta.storage.HDFSLogStore"},
    ],
)
def test_on_s3_stores_that_lose_commits_are_refused(given):
    with pytest.raises(ConfigurationError, match="lose a commit") as refused:
        log_store.check("s3a://bucket/lake", given)
    assert "make object-store-jars" in refused.value.hint
    assert "S3DynamoDBLogStore" in refused.value.hint


def has_class(name):
    return True


@pytest.mark.parametrize("root", ["/lake", "file:///lake", "lake"])
def test_l53_on_files_our_log_store_is_taken_where_the_jvm_has_its_class_and_none_is_named(tmp_path, root, caplog):
    setting, jar = "spark.delta.logStore.file.impl", tmp_path / "log-store" / "headrace-file-log-store.jar"
    jar.parent.mkdir()
    jar.touch()
    assert log_store.settings(root, tmp_path, {}, has_class) == {setting: log_store.LINKING}
    assert log_store.settings(root, tmp_path, {}, lambda name: False) == {}
    assert log_store.settings(root, tmp_path, {setting: "another"}, has_class) == {}
    assert log_store.settings(root, tmp_path, {"spark.delta.logStore.class": "another"}, has_class) == {}
    assert log_store.settings("hdfs://names/lake", tmp_path, {}, has_class) == {}
    assert log_store.jars(root, tmp_path, {}) == log_store.jars("hdfs://names/lake", tmp_path, {}) == [jar]
    log_store.check(root, {setting: log_store.LINKING})
    assert caplog.text == ""
    log_store.check(root, {})
    assert "could lose its commit" in caplog.text


def test_on_s3_our_log_store_is_taken_where_it_was_made_and_none_is_named(tmp_path):
    root = "s3a://bucket/lake"
    # Delta's own listing from a name on (L41) is of an earlier Hadoop: with it each second commit failed
    assert log_store.settings(root, tmp_path, {}, has_class) == {}
    (tmp_path / "log-store").mkdir()
    (tmp_path / "log-store" / "headrace-log-store.jar").touch()
    assert log_store.settings(root, tmp_path, {}, has_class) == {STORE: log_store.CONDITIONAL}
    assert log_store.settings(root, tmp_path, {STORE: "another"}, has_class) == {}
    log_store.check(root, {STORE: log_store.CONDITIONAL})
    assert [jar.name for jar in log_store.jars(root, tmp_path, {"spark.jars.packages": "mine"})] == [
        "headrace-log-store.jar"
    ]


class JavaError(Exception):
    """What py4j returns of an exception in the JVM, as far as it is looked at."""

    def __init__(self, text):
        super().__init__(text)
        self._target_id, self._gateway_client = "o1", None


def test_l52_keys_that_may_not_write_are_named_before_a_load_begins():
    """L52: each session tried the server by a PUT, and a 403 was a traceback."""
    text = "java.nio.file.AccessDeniedException: s3a://b/l/scratch/x: PUT 0-byte object: (Status Code: 403)"
    spark = MagicMock()
    spark._jvm.headrace.ConditionalLogStore.excludes.side_effect = Py4JJavaError("", JavaError(text))

    with pytest.raises(NeedsOperator, match="403") as refused:
        log_store.check_server(spark, "s3a://bucket/lake", {STORE: log_store.CONDITIONAL})

    assert "s3a://bucket/lake" in refused.value.message


def test_jars_of_an_object_store_are_asked_for_where_they_are_needed(tmp_path, monkeypatch):
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert log_store.jars("/lake", tmp_path, {}) == []
    with pytest.raises(NeedsOperator, match="no jars") as refused:
        log_store.jars("s3a://bucket/lake", tmp_path, {})
    assert "make object-store-jars" in refused.value.hint
    assert log_store.jars("s3a://bucket/lake", tmp_path, {"spark.jars": "mine.jar"}) == []
    (tmp_path / "object-store").mkdir()
    (tmp_path / "object-store" / "hadoop-aws.jar").touch()
    assert [jar.name for jar in log_store.jars("s3a://bucket/lake", tmp_path, {})] == ["hadoop-aws.jar"]


@pytest.mark.parametrize(
    ("root", "kept", "local"),
    [
        ("s3a://bucket/lake", "s3a://bucket/lake", None),
        ("file:/data/my%20lake", "file:/data/my%20lake", "/data/my%20lake"),
        ("file:///data/my#lake?", "file:///data/my#lake?", "/data/my#lake?"),
        ("hdfs:/lake", "hdfs:/lake", None),
        ("/data/lake", "/data/lake", "/data/lake"),
    ],
)
def test_a_root_is_this_machine_s_by_its_file_system(lake, monkeypatch, root, kept, local):
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    file = lake(root)
    assert file.root == kept
    assert (str(file.folder) if file.folder else None) == local


def test_a_path_is_not_this_machine_s_where_hadoop_has_another_default(lake, monkeypatch, tmp_path):
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    assert lake("lake").folder == tmp_path / "lake"
    assert lake("lake", '"spark.hadoop.fs.defaultFS" = "hdfs://names"').folder is None
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert lake("lake").folder is None
