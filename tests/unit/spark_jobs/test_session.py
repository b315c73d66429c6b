"""What Spark's JVM is started with, and what it writes to standard error next to its log."""

import os

import msgspec

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

    settings = session._launch(lake, str(tmp_path))

    assert "-XX:ReservedCodeCacheSize=240m" in settings["spark.driver.extraJavaOptions"].split()
