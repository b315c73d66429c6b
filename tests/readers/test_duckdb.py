"""DuckDB with its own extension for Delta: all that loads write, at the version that it is given (issue 33)."""

import json
import subprocess
from pathlib import Path

import pytest

from spark_jobs.silver import table_task
from tests.integration.lake.test_lake_reader import SHAPES

PYTHON = Path(__file__).parents[2] / ".setup" / "readers" / "bin" / "python"
PROGRAM = """
import json, pathlib, sys, duckdb, duckdb_ext
(extension,) = pathlib.Path(next(iter(duckdb_ext.__path__))).rglob("delta.duckdb_extension")
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
connection.execute(f"LOAD '{extension}'")
path, version = sys.argv[1:]
connection.execute(f"ATTACH '{path}' AS published (TYPE delta, VERSION {version})")
queries = "SELECT id FROM published ORDER BY id", f"SELECT id FROM delta_scan('{path}') ORDER BY id"
print(json.dumps([[row[0] for row in connection.sql(query).fetchall()] for query in queries]))
"""
pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("shape", ["vectors", *SHAPES])
def test_duckdb_shows_the_published_version_and_without_one_the_newest(read_lake, shape):
    name = "accounts" if shape == "vectors" else shape
    ours = read_lake.opened.table(f"silver.{name}")
    path = table_task.path(read_lake.lake.file, "bank", f"public.{name}")
    command = [PYTHON, "-c", PROGRAM, path, str(ours.version)]
    published, newest = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert published == sorted(ours.to_arrow()["id"].to_pylist())
    assert newest == (published if shape == "vectors" else [])
