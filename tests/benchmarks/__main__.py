"""`make bench`: everything that Headrace says about its speed, measured in one run as ratios against peers."""

import logging
import shutil
import tempfile
from pathlib import Path

import click
from rich.console import Console

from infra.local.kafka import Kafka
from infra.local.postgres import Postgres
from tests.benchmarks import distance, drain, impact, lake, latency, outage, results, snapshot

#: The server's own habits, out of the way: no checkpoint in the middle of a run.
_POSTGRES = {"shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "1h"}
PARTS = ("drain", "shapes", "latency", "snapshot", "impact", "outage", "distance", "lake")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="A tenth of everything: to see that it works, not to quote.")
@click.option("--only", type=click.Choice(PARTS), multiple=True, help="Measure these parts alone.")
def bench(*, quick: bool, only: tuple[str, ...]) -> None:
    """Measure, print a table, and write build/bench.json."""
    logging.basicConfig(level=logging.WARNING)
    console = Console()
    parts = only or PARTS
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    postgres, kafka = Postgres(folder / "postgres", settings=_POSTGRES), Kafka(folder / "kafka", heap_megabytes=1024)
    found: list[results.Result] = []
    try:
        with console.status("starting PostgreSQL and Kafka"):
            postgres.start()
            kafka.start()
        if "drain" in parts or "lake" in parts:
            console.rule("WAL to Kafka")
            found += drain.measure(
                console, folder, postgres, kafka, drain.orders_backlog(100_000 if quick else 1_000_000)
            )
        if "shapes" in parts:
            console.rule("WAL to Kafka, other shapes")
            for backlog in drain.shaped_backlogs(40_000 if quick else 400_000):
                found += drain.measure(console, folder, postgres, kafka, backlog)
        if "latency" in parts:
            console.rule("Latency")
            for rate in latency.RATES:
                found += latency.measure(console, folder, postgres, kafka, rate, 10 if quick else 30)
        if "snapshot" in parts:
            console.rule("Snapshot")
            found += snapshot.measure(console, folder, postgres, kafka, 200_000 if quick else 2_000_000)
        if "impact" in parts:
            console.rule("Impact on the source")
            found += impact.measure(console, folder, postgres, kafka, 10 if quick else 30)
        if "outage" in parts:
            console.rule("Outage")
            found += outage.measure(console, folder, postgres, kafka, 100_000 if quick else 1_000_000)
        if "distance" in parts:
            console.rule("Distance")
            found += distance.measure(console)
        if "lake" in parts:
            console.rule("Lake")
            postgres.stop()
            found += lake.measure(console, folder, postgres, kafka)
    finally:
        kafka.kill()
        postgres.kill()
        postgres.delete()
        shutil.rmtree(folder, ignore_errors=True)
    results.write(found)
    results.show(console, found)
    console.print(f"Written to {results.FILE}")


if __name__ == "__main__":
    bench()
