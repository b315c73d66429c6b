"""The jars that set-up fetched, and what it made of them."""

import os
import subprocess
import sys

import pytest

from headrace import process
from infra.local import jars


def test_jars_beside_spark_repeat_none_of_its_own():
    ours = {jar.name for jar in jars.spark()}

    assert not [it for it in ours if it.startswith(("jackson-core", "jackson-databind", "scala-library", "hadoop-"))]
    assert any(name.startswith("delta-spark_") for name in ours)
    assert any(name.startswith("spark-sql-kafka-") for name in ours)


def test_broker_has_every_codec_that_a_producer_may_use():
    names = " ".join(jar.name for jar in jars.kafka())

    assert all(codec in names for codec in ("snappy-java-", "lz4-java-", "zstd-jni-"))


@pytest.mark.parametrize("jars_of", [jars.spark, jars.kafka])
def test_set_up_has_left_an_archive_of_classes_with_which_its_jvm_starts_sooner(jars_of):
    archive = process.class_archive(jars_of())

    assert archive.exists()
    assert not archive.with_suffix(".partial").exists()


def test_a_session_takes_its_classes_from_the_archive(tmp_path):
    """One jar more on its class path than the archive was made with, and a JVM takes none, without a word."""
    file, log = tmp_path / "lake.toml", tmp_path / "classes.txt"
    file.write_text(
        f'[lake]\nroot = "{tmp_path}/lake"\n[kafka]\nbootstrap = "none:1"\n[streams.bank]\nsources = ["a/b"]\n'
    )
    made = "from headrace.configuration import lake, load; from spark_jobs.session import session; "
    made += f"session(load.load({str(file)!r}, lake.LakeFile)).stop()"
    options = {"SPARK_SUBMIT_OPTS": f"-Xlog:class+load:file={log}"}

    subprocess.run([sys.executable, "-c", made], check=True, env=os.environ | options, timeout=240)

    of_archive = [line for line in log.read_text().splitlines() if line.endswith("source: shared objects file (top)")]
    assert any("org.apache.spark.sql.classic.SparkSession " in line for line in of_archive)


def test_a_broker_takes_its_classes_from_the_archive():
    command = ["java", "-cp", ":".join(map(str, jars.kafka())), *process.jvm_options(jars.kafka())]
    # The options keep a JVM silent about its archive; this one lists where each class comes from.
    shown = subprocess.run(
        [*command, "-Xlog:class+load", "kafka.tools.StorageTool", "random-uuid"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout

    loaded = [line for line in shown.splitlines() if " org.apache.kafka." in line]
    assert loaded
    assert sum("shared objects file (top)" in line for line in loaded) > len(loaded) // 2
