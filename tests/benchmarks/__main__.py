"""`make bench`: everything that Headrace says about its speed, measured in one run as ratios against peers."""

import logging
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console

from infra.local.kafka import Kafka
from infra.local.postgres import Postgres
from tests.benchmarks import binlog, binlog_snapshot, distance, drain, impact, lake, latency, outage, results, snapshot
from tests.benchmarks.results import Result

#: The server's own habits, out of the way: no checkpoint in the middle of a run.
_POSTGRES = {"shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "1h"}


class Bench(NamedTuple):
    """What the parts share."""

    console: Console
    folder: Path
    postgres: Postgres
    kafka: Kafka
    quick: bool

    def size(self, whole: int) -> int:
        """Return a size, or a tenth of it."""
        return whole // 10 if self.quick else whole

    @property
    def seconds(self) -> int:
        """How long a part that runs at a steady rate does."""
        return 10 if self.quick else 30


def _drain(bench: Bench) -> list[Result]:
    return drain.measure(*bench[:4], drain.orders_backlog(bench.size(1_000_000)))


def _shapes(bench: Bench) -> list[Result]:
    backlogs = drain.shaped_backlogs(bench.size(400_000))
    return [result for backlog in backlogs for result in drain.measure(*bench[:4], backlog)]


def _latency(bench: Bench) -> list[Result]:
    return [result for rate in latency.RATES for result in latency.measure(*bench[:4], rate, bench.seconds)]


def _lake(bench: Bench) -> list[Result]:
    bench.postgres.stop()
    return lake.measure(*bench[:4])


#: The parts in their order; the lake reads what `drain` left in Kafka, and needs no PostgreSQL any more.
PARTS: dict[str, Callable[[Bench], list[Result]]] = {
    "drain": _drain,
    "shapes": _shapes,
    "latency": _latency,
    "snapshot": lambda bench: snapshot.measure(*bench[:4], bench.size(2_000_000)),
    "impact": lambda bench: impact.measure(*bench[:4], bench.seconds),
    "outage": lambda bench: outage.measure(*bench[:4], bench.size(1_000_000)),
    "binlog": lambda bench: binlog.measure(bench.console, bench.folder, bench.kafka, bench.size(500_000)),
    "binlog-snapshot": lambda bench: binlog_snapshot.measure(
        bench.console, bench.folder, bench.kafka, bench.size(2_000_000)
    ),
    "distance": lambda bench: distance.measure(bench.console),
    "lake": _lake,
}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="A tenth of everything: to see that it works, not to quote.")
@click.option("--only", type=click.Choice(list(PARTS)), multiple=True, help="Measure these parts alone.")
def main(*, quick: bool, only: tuple[str, ...]) -> None:
    """Measure, print a table, and write build/bench.json."""
    logging.basicConfig(level=logging.WARNING)
    console = Console()
    wanted = {*only, "drain"} if "lake" in only else set(only or PARTS)
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    postgres, kafka = (
        Postgres(folder / "postgres", settings=_POSTGRES),
        Kafka(folder / "kafka", heap_megabytes=1024, lasting=True),
    )
    found: list[Result] = []
    try:
        with console.status("starting PostgreSQL and Kafka"):
            postgres.start()
            kafka.start()
        for name, measure in PARTS.items():
            if name in wanted:
                console.rule(name)
                found += measure(Bench(console, folder, postgres, kafka, quick))
    finally:
        kafka.kill()
        postgres.kill()
        postgres.delete()
        shutil.rmtree(folder, ignore_errors=True)
    results.write(found)
    results.show(console, found)
    console.print(f"Written to {results.FILE}")


if __name__ == "__main__":
    main()
