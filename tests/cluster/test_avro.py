"""Records in Avro are read on executors that have Python and PySpark, and no package of ours."""

import json
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import pyspark
import pytest

from tests.unit.headrace.schemas.test_avro_json import CHANGES, OF_POSTGRESQL, column, written

SCRIPT = """
import importlib.util, json, sys
from base64 import b64decode
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from spark_jobs.bronze.avro_records import as_json
from spark_jobs.session import session
from pyspark.sql import functions as F

given = json.load(sys.stdin)
spark = session(load(given["lake"], LakeFile))
rows = [("t", 0, number, *map(b64decode, pair)) for number, pair in enumerate(given["rows"])]
frame = spark.createDataFrame(rows, "topic string, partition int, offset long, key binary, value binary").repartition(2)
found = as_json(frame, {int(number): text for number, text in given["schemas"].items()}).orderBy("offset").collect()
is_there = F.udf(lambda _: [importlib.util.find_spec(name) is not None for name in ("headrace", "spark_jobs", "msgspec")],
                 "array<boolean>", useArrow=False)
packages = [row[0] for row in frame.select(is_there("offset")).collect()]
print(json.dumps({"rows": [[row["key"].decode(), row["value"].decode()] for row in found], "packages": packages}))
spark.stop()
"""


@pytest.fixture
def bare_python(tmp_path):
    """Return the settings of executors whose Python has PySpark alone."""
    folder, there = tmp_path / "packages", Path(pyspark.__file__).parents[1]
    folder.mkdir()
    for name in ("pyspark", "py4j"):
        (folder / name).symlink_to(there / name)
    python = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    return f'"spark.pyspark.python" = "{python}"\n"spark.executorEnv.PYTHONPATH" = "{folder}"\n'


@pytest.mark.timeout(600)
def test_executors_read_avro_without_a_package_of_ours(cluster_lake, bare_python, tmp_path):
    lake = Path(cluster_lake(bank="t").path)
    lake.write_text(lake.read_text().replace("[spark.settings]\n", f"[spark.settings]\n{bare_python}", 1))
    columns = [column("int8", name="id"), column("text", name="a b", position=2), column("text", name="c", position=3)]
    changes = [change | {"source": OF_POSTGRESQL, "ts_ms": 5, "transaction": None} for change in CHANGES]
    keys, values, _, records = written(columns, *changes, key=["id"], source=OF_POSTGRESQL)
    given = {
        "lake": str(lake),
        "rows": [[encoded(key), encoded(value)] for key, value in zip(keys, values, strict=True)],
        "schemas": records._schemas,
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(given),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["rows"] == [
        [records.key(key).decode(), records.value(value).decode()] for key, value in zip(keys, values, strict=True)
    ]
    assert result["packages"] == [[False] * 3] * len(changes)


def encoded(data):
    return b64encode(data).decode()
