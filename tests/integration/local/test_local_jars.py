"""The jars that set-up fetched, and what it made of them."""

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


def test_set_up_has_left_the_archive_of_classes_with_which_spark_starts_sooner():
    archive = process.class_archive(jars.spark())

    assert archive.exists()
    assert not archive.with_suffix(".partial").exists()
