"""Noted schemas of records in Avro: what two processes note at the same time is there for both, and for those that come later."""

import subprocess
import sys

import pytest

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from spark_jobs.state import schema_texts

STREAM, OTHER = "bank", "pay"
ROUNDS = 4
#: Notes a schema of its own and one that the other process notes as well, in turns: a line comes out, a line goes in.
OTHER_PROCESS = f"""
import sys
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from spark_jobs.session import session
from spark_jobs.state import schema_texts

lake = load(sys.argv[1], LakeFile)
spark = session(lake)
for number in range({ROUNDS}):
    print(number, flush=True)
    sys.stdin.readline()
    schema_texts.keep_avro(spark, lake, "{STREAM}", {{100 + number: "theirs", number: "both"}})
    schema_texts.keep_avro(spark, lake, "{OTHER}", {{number: "of another stream"}})
spark.stop()
"""


@pytest.fixture
def lake_file(tmp_path):
    """Return a lake's file with a registry, which nothing asks."""
    path = tmp_path / "lake.toml"
    path.write_text(f"""
[lake]
root = "{tmp_path}/lake"
[kafka]
bootstrap = "127.0.0.1:1"
[registry]
url = "http://127.0.0.1:1"
[streams.{STREAM}]
topic = "{STREAM}"
sources = ["jakarta/bank"]
[streams.{OTHER}]
topic = "{OTHER}"
sources = ["singapore/pay"]
""")
    return path


@pytest.mark.long
def test_what_two_processes_note_at_once_is_there_for_both(lake_file, spark):
    lake = load(lake_file, LakeFile)
    with subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, str(lake_file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        try:
            for number in range(ROUNDS):
                assert other.stdout.readline().strip() == str(number)
                other.stdin.write("go\n")
                other.stdin.flush()
                schema_texts.keep_avro(spark, lake, STREAM, {200 + number: "ours", number: "both"})
            other.stdin.close()
            assert other.wait(60) == 0
        finally:
            other.kill()
    expected = {
        first + number: text
        for first, text in ((0, "both"), (100, "theirs"), (200, "ours"))
        for number in range(ROUNDS)
    }
    assert schema_texts.read_avro(spark, lake, STREAM).keys() < expected.keys()
    assert schema_texts.renew_avro(spark, lake, STREAM) == expected
    assert schema_texts.renew_avro(spark, lake, OTHER) == dict.fromkeys(range(ROUNDS), "of another stream")
