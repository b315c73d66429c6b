"""The dbt project of examples/sales, built by dbt over the lake's files at one publication (issue 33)."""

import json
import os
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.console.lineage import DbtModels
from headrace.process import jar_folder
from spark_jobs import load
from spark_jobs.command import lake as command
from tests.rules.waiting import eventually
from tests.servers.airflow_scheduler import Scheduler

ROOT = Path(__file__).parents[2]
BIN = ROOT / ".setup" / "readers" / "bin"
J, L = "jakarta/sales", "london/sales"
#: In place of a load in Airflow, which updates this asset when it published (tests/integration/airflow).
PUBLISHED = """
from datetime import UTC, datetime
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset
with DAG("published", schedule="@once", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False):
    EmptyOperator(task_id="silver", outlets=[Asset(name="headrace/sales", uri="headrace://lake/sales")])
"""
pytestmark = pytest.mark.timeout(900)


class Project:
    """A copy of the example, with the sources of a lake."""

    def __init__(self, folder, lake):
        self.folder = shutil.copytree(ROOT / "examples" / "sales" / "dbt", folder / "dbt")
        printed = CliRunner().invoke(command, ["sources", "--dbt", "-c", str(lake.path)], catch_exceptions=False)
        (self.folder / "models" / "sources.yml").write_text(printed.stdout)
        self.database = folder / "sales.duckdb"
        self.environment = {
            "LAKE": str(lake.path),
            "SALES_DATABASE": str(self.database),
            "PYTHONPATH": str(ROOT),
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
        }

    def dbt(self, *arguments, results="run_results.json"):
        """Run dbt; return how each node ended."""
        ended = subprocess.run(
            [BIN / "dbt", "--quiet", *arguments, "--profiles-dir", "."],
            cwd=self.folder, env=os.environ | self.environment, capture_output=True, text=True, timeout=300, check=False,
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


@pytest.mark.long
def test_airflow_builds_the_models_after_a_load_by_its_asset(spark, sales, tmp_path):
    project = Project(tmp_path, sales)
    dags = tmp_path / "dags"
    dags.mkdir()
    shutil.copy(project.folder / "airflow_dag.py", dags)
    (dags / "published.py").write_text(PUBLISHED)
    more = project.environment | {
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "SALES_DBT": str(project.folder),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], str(BIN)]),
    }
    with Scheduler(tmp_path / "airflow", Path(sales.path), jars=jar_folder(), more=more) as airflow:
        try:
            (run,) = eventually(
                lambda: [each for each in airflow.runs("sales_models") if each.state in {"success", "failed"}],
                480,
                every=0.5,
                saying="the models are built",
            )
        except BaseException:
            print(airflow.said())
            raise
    assert (run.kind, run.state) == ("asset_triggered", "success")
    assert project.rows("SELECT count(*) FROM revenue") == [(2,)]
