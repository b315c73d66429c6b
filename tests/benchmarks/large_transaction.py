"""One transaction of millions of changes, from WAL to Kafka: `python -m tests.benchmarks.large_transaction`.

What counts is the edge's and the bridge's memory: batches are cut within a transaction and leave as they are acknowledged, so it
does not grow with the transaction. The server keeps what has not committed: it writes it to its own disk beyond
`logical_decoding_work_mem`.
"""

import logging
import shutil
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from infra.local.kafka import Kafka
from infra.local.postgres import Postgres
from tests.benchmarks import drain, orders, results
from tests.benchmarks.drain import Backlog
from tests.benchmarks.results import Result
from tests.benchmarks.usage import usage

_FILL = """
    INSERT INTO orders
    SELECT i, i %% 9973, 'SKU-' || i %% 100000, 1 + i %% 9, (i %% 100000) / 100.0, 'placed',
           'to be delivered between nine and five, ring twice, floor ' || i %% 10, clock_timestamp()
    FROM generate_series(1, %s) AS i
"""
#: What the edge has to stay below, in megabytes.
LIMIT = 300


def _fill(connection: Any, changes: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_FILL, [changes])


def measure(console: Console, folder: Path, postgres: Postgres, kafka: Kafka, changes: int) -> list[Result]:
    """Return changes per second and the most memory of edge and bridge."""
    backlog = Backlog("large", f"one transaction of {changes:,} changes", orders.create, _fill, changes, runs=1)
    with drain.prepared(folder, postgres, kafka, backlog) as (bridge, (edge,), connection):
        end = drain.written(console, connection, backlog)
        bridge.start()
        seconds = drain.drained(connection, edge, "large0", end)
        costs = {"edge": usage(edge.pid), "bridge": usage(bridge.pid)}
        assert edge.stop() == 0, edge.tail()
    drain.count(kafka, backlog)
    return [
        Result(backlog.title, round(changes / seconds), "changes/s"),
        *(
            Result(f"{backlog.title}: {part}, most memory", round(cost.peak_megabytes, 1), "MB")
            for part, cost in costs.items()
        ),
        *(Result(f"{backlog.title}: {part}, CPU", round(cost.cpu_seconds, 1), "s") for part, cost in costs.items()),
    ]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--changes", default=5_000_000, show_default=True, help="Changes in the transaction.")
def large_transaction(changes: int) -> None:
    """Measure and print; exit with 1 when the edge grew beyond its limit."""
    logging.basicConfig(level=logging.WARNING)
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    postgres, kafka = (
        Postgres(folder / "postgres", settings={"max_wal_size": "16GB"}),
        Kafka(folder / "kafka", lasting=True),
    )
    try:
        postgres.start()
        kafka.start()
        result = measure(console, folder, postgres, kafka, changes)
    finally:
        kafka.kill()
        postgres.kill()
        postgres.delete()
        shutil.rmtree(folder, ignore_errors=True)
    results.show(console, result)
    peak = next(each.value for each in result if each.name.endswith("edge, most memory"))
    if peak > LIMIT:
        raise click.ClickException(f"the edge took {peak} MB, more than {LIMIT}")


if __name__ == "__main__":
    large_transaction()
