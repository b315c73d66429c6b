"""What the JVM writes to standard error next to its log, and settings that follow the cores."""

import os

import pytest

from spark_jobs import session


def test_what_the_jvm_says_goes_on_but_for_the_notice_of_modules_that_spark_asks_for(capfd):
    ours, its = os.pipe()
    os.write(its, b"WARNING: Using incubator modules: jdk.incubator.vector\nout of memory\n")
    os.close(its)

    session._pass_on(ours)

    assert capfd.readouterr().err == "out of memory\n"


# L26, L35
@pytest.mark.parametrize(
    ("master", "partitions", "of_log"),
    [
        ("local", "8", "1"),
        ("local[2]", "8", "1"),
        ("local[16,4]", "32", "4"),
        ("spark://host:7077", "64", "16"),
        ("yarn", "64", "16"),
    ],
)
def test_tasks_follow_the_cores(master, partitions, of_log):
    found = session._for_cores(master)
    assert found["spark.sql.shuffle.partitions"] == partitions
    assert found["spark.databricks.delta.snapshotPartitions"] == of_log
