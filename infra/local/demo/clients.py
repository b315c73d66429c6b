"""How others ask the demo's lake: command lines for DuckDB, Spark's client as a notebook has it, and Hive's beeline."""

import json
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import pyspark


class Addresses(NamedTuple):
    """`host:port` of what a browser or a client of SQL connects to, and of the bridge's endpoint."""

    console: str
    connect: str
    thrift: str
    metrics: str


#: What all of them ask: how much money the orders moved.
QUESTION = "SELECT count(*) AS orders, sum(amount) AS moved FROM silver.pay_orders"


def command_lines(lake_file: Path, addresses: Addresses) -> list[str]:
    """Return a line of a shell for each of them."""
    python, jars = shlex.quote(sys.executable), shlex.quote(f"{Path(pyspark.__file__).parent}/jars/*")
    views = f'lake.open({json.dumps(str(lake_file))}).views("duckdb")'
    of_duckdb = f'import duckdb, headrace.lake as lake; duckdb.execute({views}); print(duckdb.sql("{QUESTION}"))'
    session = f'SparkSession.builder.remote("sc://{addresses.connect}").getOrCreate()'
    of_notebook = f'from pyspark.sql import SparkSession; {session}.sql("{QUESTION}").show()'
    beeline = f"java -cp {jars} org.apache.hive.beeline.BeeLine -u jdbc:hive2://{addresses.thrift}/silver"
    return [
        f"{python} -c {shlex.quote(of_duckdb)}",
        f"{python} -c {shlex.quote(of_notebook)}",
        f"{beeline} -e {shlex.quote(QUESTION)}",
    ]
