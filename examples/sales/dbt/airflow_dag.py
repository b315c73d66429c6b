"""Builds the models after each load that published something of the stream sales: for Airflow's folder of DAGs.

SALES_DBT is this folder, and `dbt` is on PATH, wherever Airflow's tasks run; LAKE and SALES_DATABASE are those of profiles.yml.
"""

import os
from datetime import UTC, datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Asset

with DAG(
    "sales_models",
    schedule=[Asset(name="headrace/sales", uri="headrace://lake/sales")],
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    BashOperator(task_id="build", bash_command="dbt build --profiles-dir .", cwd=os.environ["SALES_DBT"])
