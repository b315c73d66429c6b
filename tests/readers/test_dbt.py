"""The dbt project of examples/sales, built by dbt over the lake's files at one publication (issue 33)."""

import json
import os
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.console.dbt_models import DbtModels
from spark_jobs import load
from spark_jobs.command import lake as command

ROOT = Path(__file__).parents[2]
BIN = ROOT / ".setup" / "readers" / "bin"
J, L = "jakarta/sales", "london/sales"
pytestmark = pytest.mark.timeout(900)


class Project:
    """A copy of the example, with the sources of a lake."""

    def __init__(self, folder, lake):
        self.folder = shutil.copytree(ROOT / "examples" / "sales" / "dbt", folder / "dbt")
        printed = CliRunner().invoke(command, ["sources", "--dbt", "-c", str(lake.path)], catch_exceptions=False)
        (self.folder / "models" / "sources.yml").write_text(printed.stdout)
        self.database = folder / "sales.duckdb"
        self._environment = os.environ | {
            "LAKE": str(lake.path),
            "SALES_DATABASE": str(self.database),
            "PYTHONPATH": str(ROOT),
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
        }

    def dbt(self, *arguments, results="run_results.json"):
        """Run dbt; return how each node ended."""
        ended = subprocess.run(
            [BIN / "dbt", "--quiet", *arguments, "--profiles-dir", "."],
            cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout
        nodes = json.loads((self.folder / "target" / results).read_text())["results"]
        return {node["unique_id"].split(".", 2)[-1]: node["status"] for node in nodes}

    def rows(self, query):
        """Return the rows of a query over what the models made, without the lake."""
        program = """import duckdb, sys
with duckdb.connect(sys.argv[1], read_only=True) as database:
    print(database.sql(sys.argv[2]).fetchall())"""
        command = [BIN / "python", "-c", program, self.database, query]
        shown = subprocess.run(command, capture_output=True, text=True, check=True)
        return eval(shown.stdout, {"Decimal": Decimal})


def test_models_are_built_of_one_publication_and_go_on_from_the_next(spark, sales, tmp_path):
    project = Project(tmp_path, sales)
    assert set(project.dbt("build").values()) <= {"success", "pass"}
    orders = "SELECT region, id, status, ended_at IS NULL FROM status_changes ORDER BY ALL"
    assert project.rows("SELECT region, CAST(day AS text), orders, pounds FROM revenue ORDER BY region") == [
        (J, "2026-01-31", 1, Decimal("22.50")),
        (L, "2026-01-31", 1, Decimal("37.50")),
    ]
    first = [(J, 1, "placed", False), (J, 1, "shipped", True), (L, 1, "paid", True), (L, 2, "cancelled", True)]
    assert project.rows(orders) == first

    # the console's picture of a table goes on to what they make of it
    models = DbtModels(project.folder / "target" / "manifest.json")
    assert models.of("orders") == (("dbt.revenue", "table"), ("dbt.status_changes", "incremental"))
    assert models.of("customers") == ()

    load.run(spark, sales, "sales")
    assert set(project.dbt("build").values()) <= {"success", "pass"}
    assert project.rows(orders) == sorted([*first, (J, 2, "paid", True)])
    fresh = project.dbt("source", "freshness", results="sources.json")
    assert (fresh["silver.orders"], set(fresh.values())) == ("pass", {"pass"})
