"""A DAG that loads a stream by the command, of a Python of its own: for Airflow 2, and where pip finds no versions for both."""

from datetime import datetime, timedelta

from airflow import DAG
from airflow.operators.bash import BashOperator  # Airflow 3: airflow.providers.standard.operators.bash

with DAG(
    "bank_load",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1), "execution_timeout": timedelta(hours=2)},
):
    BashOperator(task_id="load", bash_command="/opt/headrace/bin/headrace lake load bank -c /etc/headrace/lake.toml")
