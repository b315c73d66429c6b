"""Two processes that commit to one table on S3 (L5): every commit that was reported as done is there.

Not among the tests, since it takes minutes and Delta's own log stores for S3 fail it: `make prove-log-store` proves ours, and
with `LOG_STORE=CLASS` another.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.object_store.conftest import ROOT, commits


@pytest.mark.timeout(3600)
def test_no_commit_of_two_processes_is_lost(spark, s3_lake):
    # given two processes with drivers of their own, and a table
    lake, count = s3_lake(bank="bank"), commits()
    spark.createDataFrame([("given", 0)], "writer string, number int").write.format("delta").save(f"{lake.root}/proof")
    command = [sys.executable, "-m", "tests.object_store.appender", str(lake.path)]

    def append(writer):
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            try:
                assert process.stdout.readline().strip() == "ready"
                print(writer, count, file=process.stdin, flush=True)
                return process.stdout.readline().strip()
            finally:
                process.kill()

    # when they commit at the same time
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(append, ("one", "other")))
    # then
    assert ended == [f"done {count}"] * 2
    result = spark.read.format("delta").load(f"{lake.root}/proof").filter("writer != 'given'")
    assert result.count() == result.distinct().count() == 2 * count
