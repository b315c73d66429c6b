"""The demo's last screen: each hop's position, lag and rate, the loads' ranges, the verdict and a few answers; and how others ask
its lake: command lines for DuckDB, Spark's client as a notebook has it, and Hive's beeline.
"""

import json
import shlex
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
from rich import box
from rich.table import Table

from headrace.terminal import Terminal, in_style, styled
from infra.local.airflow import DagRun
from infra.local.demo.bank import OPENING
from infra.local.demo.region import Region, headrace_json
from spark_jobs.query.engine import RemoteEngine

#: What the demo asks the lake: SQL that an analyst would type at `headrace lake sql`.
_QUESTIONS = {
    # The offsets that each load took from each partition.
    "RANGES": """
    SELECT load, partition, min(offset) AS first, max(offset) AS last, count(*) AS records
    FROM bronze.bank
    JOIN (SELECT load, finished_at, lag(finished_at, 1, timestamp'1970-01-01') OVER (ORDER BY load) AS before
          FROM lake.published)
      ON loaded_at > before AND loaded_at <= finished_at
    GROUP BY load, partition ORDER BY load, partition
""",
    # Which loads were published, and up to where.
    "LOADS": "SELECT load, changes, positions FROM lake.published ORDER BY load",
    # From commit at the source to the bridge writing to Kafka. A binlog has whole seconds, so an order has its own moment.
    "LAG": """
    SELECT source,
           count(*) AS changes,
           percentile(unix_millis(timestamp) - unix_millis(committed), 0.5) AS p50,
           percentile(unix_millis(timestamp) - unix_millis(committed), 0.99) AS p99
    FROM (
        SELECT source, timestamp,
               coalesce(CAST(get_json_object(value, '$.after.placed_at') AS TIMESTAMP), commit_time) AS committed
        FROM bronze.bank
        WHERE table IN ('public.pgbench_history', 'pay.orders') AND op = 'c'
    )
    GROUP BY source ORDER BY source
""",
    # TPC-B's invariant: every transaction moves one amount through an account, a teller, a branch and the history.
    "INVARIANT": """
    SELECT region,
           max(sum) FILTER (WHERE what = 'accounts') AS accounts,
           max(sum) FILTER (WHERE what = 'tellers') AS tellers,
           max(sum) FILTER (WHERE what = 'branches') AS branches,
           max(sum) FILTER (WHERE what = 'history') AS history
    FROM (
        SELECT _source AS region, 'accounts' AS what, sum(abalance) AS sum FROM silver.pgbench_accounts GROUP BY 1
        UNION ALL SELECT _source, 'tellers', sum(tbalance) FROM silver.pgbench_tellers GROUP BY 1
        UNION ALL SELECT _source, 'branches', sum(bbalance) FROM silver.pgbench_branches GROUP BY 1
        UNION ALL SELECT _source, 'history', sum(delta) FROM silver.pgbench_history GROUP BY 1
    )
    GROUP BY region ORDER BY region
""",
    # What orders guarantee: money only moves, so the wallets hold together what they held at first (500 each), and each one what
    # it earned less what it spent; an order costs what its lines cost.
    "WALLETS": """
    SELECT w._source AS region,
           count(*) AS wallets,
           sum(w.balance) AS balance,
           (SELECT count(*) FROM silver.pay_orders) AS orders,
           (SELECT sum(amount) FROM silver.pay_orders) AS ordered,
           (SELECT sum(amount) FROM silver.pay_order_lines) AS lines,
           count_if(w.balance <> 500 + coalesce(earned.amount, 0) - coalesce(spent.amount, 0)) AS wrong
    FROM silver.pay_wallets w
    LEFT JOIN (SELECT _source, seller AS id, sum(amount) AS amount FROM silver.pay_orders GROUP BY 1, 2) earned
      ON earned._source = w._source AND earned.id = w.id
    LEFT JOIN (SELECT _source, buyer AS id, sum(amount) AS amount FROM silver.pay_orders GROUP BY 1, 2) spent
      ON spent._source = w._source AND spent.id = w.id
    GROUP BY w._source ORDER BY region
""",
    # The busiest tellers of both banks together.
    "BUSIEST": """
    SELECT _source AS region, tid AS teller, count(*) AS transactions, sum(delta) AS moved
    FROM silver.pgbench_history GROUP BY 1, 2 ORDER BY transactions DESC, region, teller LIMIT 3
""",
}


class Screen:
    """What was found, and how it is shown."""

    def __init__(self, console: Terminal, bridge_file: Path, lake_file: Path) -> None:
        self._console = console
        self._bridge_file, self._lake_file = bridge_file, lake_file
        self._verdict: dict[str, Any] = {}
        self._answers: dict[str, list[Any]] = {}

    def verify(self) -> None:
        """Compare every table with its source."""
        self._verdict = headrace_json("verify", "--config", str(self._lake_file), accept=(0, 1, 3))

    def ask(self, server: str) -> None:
        """Ask all questions of a running `headrace lake serve`."""
        with closing(RemoteEngine(server)) as engine:
            self._answers = {name: engine.ask(text).collect() for name, text in _QUESTIONS.items()}

    def show(self, regions: list[Region], runs: list[DagRun], written: dict[str, tuple[int, float]]) -> bool:
        """Print everything; return whether the lake equals the databases and what each workload keeps holds in it."""
        print_ = self._console.print
        print_()
        print_(self._hops(regions, written))
        print_(self._loads(runs))
        print_(self._tables())
        print_(self._sums())
        print_(self._wallets())
        print_(self._busiest())
        balanced = all(len(set(row[1:])) == 1 for row in self._answers["INVARIANT"])
        paid = all(_adds_up(row) for row in self._answers["WALLETS"])
        equal = bool(self._verdict["equal"])
        print_(
            styled("[bold green]The lake equals the databases: every table, every row.[/]")
            if equal
            else styled("[bold red]The lake does not equal the databases.[/] headrace verify shows where.")
        )
        if not balanced:
            print_(styled("[bold red]TPC-B's sums differ within a region.[/]"))
        if not paid:
            print_(styled("[bold red]The wallets do not add up.[/]"))
        return equal and balanced and paid

    def _hops(self, regions: list[Region], written: dict[str, tuple[int, float]]) -> Table:
        table = _table("The path of the changes", "", *(f">{region.source}" for region in regions))
        committed = {
            each["source"]: each for each in headrace_json("bridge", "positions", "--config", str(self._bridge_file))
        }
        published = self._answers["LOADS"][-1]["positions"]
        lag = {row["source"]: row for row in self._answers["LAG"]}
        hops: dict[str, Callable[[Region], str]] = {
            "transactions, a second": lambda r: f"{written[r.name][0]:,}, {written[r.name][1]:,.0f}",
            "to Kafka p50, p99": lambda r: f"{lag[r.source]['p50']:,.0f} ms, {lag[r.source]['p99']:,.0f} ms",
            "source: its log ends at": lambda r: _log_place(r.log_position()),
            "source: may discard to": lambda r: _log_place(r.confirmed()),
            "Kafka: committed": lambda r: _short(committed[r.source]["position"]),
            "lake: published": lambda r: _short(published[r.source]),
        }
        for hop, of in hops.items():
            table.add_row(hop, *(of(region) for region in regions))
        return table

    def _loads(self, runs: list[DagRun]) -> Table:
        table = _table("The loads, by Airflow", "load", ">partition", ">offsets", ">records", ">changes published")
        took = []
        for run, done in zip(runs, self._answers["LOADS"], strict=False):
            seconds = ", ".join(f"{task.name} {task.seconds:.0f} s" for task in run.tasks)
            took.append(f"load {done['load']}: {seconds}")
            ranges = [row for row in self._answers["RANGES"] if row["load"] == done["load"]]
            for row in ranges:
                changes = f"{done['changes']:,}" if row is ranges[0] else ""
                offsets = f"{row['first']:,}-{row['last']:,}"
                table.add_row(str(done["load"]), str(row["partition"]), offsets, f"{row['records']:,}", changes)
        table.caption = "\n".join(took)
        return table

    def _tables(self) -> Table:
        table = _table("headrace verify", "table", *self._sources(), "verdict")
        names = sorted({each["table"] for each in self._verdict["tables"]})
        for name in names:
            by_source = {each["source"]: each for each in self._verdict["tables"] if each["table"] == name}
            rows = [_rows(by_source.get(source)) for source in self._sources()]
            wrong = [each["verdict"] for each in by_source.values() if not each["equal"]]
            verdict = in_style(wrong[0], "bold red") if wrong else in_style("equal", "green")
            table.add_row(name.removeprefix("public."), *rows, verdict)
        return table

    def _sums(self) -> Table:
        table = _table(
            "TPC-B in Spark SQL: four sums, one number", "region", ">accounts", ">tellers", ">branches", ">history", ""
        )
        for row in self._answers["INVARIANT"]:
            agree = in_style("agree", "green") if len(set(row[1:])) == 1 else in_style("differ", "bold red")
            table.add_row(row[0], *(f"{value:,}" for value in row[1:]), agree)
        return table

    def _wallets(self) -> Table:
        table = _table(
            "Orders in Spark SQL: money moves, none is made",
            "region", ">wallets", ">they hold", ">orders", ">they cost", "",
        )  # fmt: skip
        for row in self._answers["WALLETS"]:
            agree = in_style("adds up", "green") if _adds_up(row) else in_style("does not add up", "bold red")
            table.add_row(row[0], *(f"{value or 0:,}" for value in row[1:5]), agree)
        return table

    def _busiest(self) -> Table:
        table = _table("The busiest tellers of both banks", "region", ">teller", ">transactions", ">moved")
        for row in self._answers["BUSIEST"]:
            table.add_row(row[0], *(f"{value:,}" for value in row[1:]))
        return table

    def _sources(self) -> list[str]:
        return sorted({each["source"] for each in self._verdict["tables"]})


def _adds_up(row: Any) -> bool:
    """Return whether the wallets hold their first total, each what its orders left it, and orders cost what their lines do."""
    return bool(row["wrong"] == 0 and row["ordered"] == row["lines"] and row["balance"] == row["wallets"] * OPENING)


def _rows(verdict: dict[str, Any] | None) -> str:
    """Return how many rows the lake has of a source's table."""
    return "-" if verdict is None or verdict["rows_lake"] is None else f"{verdict['rows_lake']:,} rows"


def _log_place(text: str) -> str:
    """Return a place of a source's log without what all of them begin with."""
    return text.removeprefix("binlog.")


def _short(position: str) -> str:
    """Return a position without its epoch, which is the same all through the demo."""
    return position.partition("/")[2].lstrip("0")


def _table(title: str, *columns: str) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        caption_style="",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in columns:
        table.add_column(
            column.removeprefix(">"), justify="right" if column.startswith(">") else "left", overflow="fold"
        )
    return table


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
