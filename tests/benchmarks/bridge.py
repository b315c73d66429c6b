"""`make bench-bridge`: the bridge alone, fed over AMQP on this machine, without a database.

One source against a plain producer of the same records; many sources at a steady rate, and very many on two bridges; and how long
sources rest when the bridge that serves them is killed; and how slow they get while a rogue edge attacks it.
"""

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console

from tests.benchmarks import feeder, producing, results
from tests.benchmarks.attacked import attacked
from tests.benchmarks.bridge_setup import SHARING, Bench, Feeder
from tests.benchmarks.many_sources import Load, crowd, many
from tests.benchmarks.results import Result, compared
from tests.benchmarks.usage import usage
from tests.end_to_end.follower import Follower
from tests.rules.waiting import eventually

FILE = Path("build/bench-bridge.json")
RUNS = 3


def alone(bench: Bench, console: Console, records: int) -> list[Result]:
    """Return records a second and CPU of one source, beside the plain producer, by turns."""
    ours, theirs, our_cpu, their_cpu = [], [], [], []
    for run in range(RUNS):
        with ExitStack() as ending:
            peer = Feeder(producing, bench.kafka.bootstrap, _topic(bench, f"plain{run}"), records)
            ending.callback(peer.close)
            peer.ready()
            peer.go()
            seconds, cpu = peer.figures(300)
        theirs.append(records / seconds)
        their_cpu.append(cpu)
        with ExitStack() as ending:
            bridge, url = bench.bridge(f"alone{run}", [f"bench/alone{run}"], f"alone{run}")
            bridge.start()
            ending.callback(bridge.stop)
            source = Feeder(feeder, url, f"bench/alone{run}", "backlog", records)
            ending.callback(source.close)
            source.ready()
            # Started and attached before the clock runs: its start is no part of what it carries.
            eventually(lambda bridge=bridge: "link up" in bridge.tail(200), 30)
            before = usage(bridge.pid).cpu_seconds
            source.go()
            (seconds,) = source.figures(300)
            our_cpu.append(usage(bridge.pid).cpu_seconds - before)
        ours.append(records / seconds)
        console.print(f"run {run + 1}: bridge {ours[-1]:,.0f} records/s, plain producer {theirs[-1]:,.0f}")
    million = records / 1e6
    return [
        compared("one source through the bridge", statistics.median(ours), "records/s", statistics.median(theirs)),
        compared(
            "one source through the bridge, CPU",
            statistics.median(our_cpu) / million,
            "s per million records",
            statistics.median(their_cpu) / million,
        ),
    ]


def take_over(bench: Bench, sources: int, session_seconds: int) -> list[Result]:
    """Return how long the sources of a killed bridge rest until another one has committed for all of them again."""
    names = [f"bench/over{number}" for number in range(sources)]
    more = SHARING.format(group="bench-over", seconds=session_seconds)
    with ExitStack() as ending:
        bridges = [bench.bridge(f"over{number}", names, "over", more=more) for number in range(2)]
        for bridge, _ in bridges:
            bridge.start()
            ending.callback(bridge.stop)
        urls = ",".join(url for _, url in bridges)
        source = Feeder(feeder, urls, ",".join(names), "steady", 100, 60, 20)
        ending.callback(source.close)
        source.ready()
        source.go()

        follower = Follower(bench.kafka.bootstrap, "over", sources)
        ending.callback(follower.stop)
        (first, _), (second, _) = bridges
        eventually(lambda: "link up" in first.tail(10_000) and "link up" in second.tail(10_000), 60)
        eventually(lambda: len(follower.changes) == sources, 60, saying="every source moves")
        killed = time.monotonic()
        first.stop_at_once()
        before = dict(follower.changes)
        # What was on its way to the reader counts for nothing: every source has to move by a second's worth.
        eventually(
            lambda: all(follower.changes[number] > before[number] + 100 for number in range(sources)),
            120,
            every=0.02,
            saying="every source moves again",
        )
        rested = time.monotonic() - killed
    return [
        Result(f"take-over after kill -9, session {session_seconds} s", round(rested, 1), "s until all sources move")
    ]


def _topic(bench: Bench, name: str) -> str:
    bench.bridge(name, [f"bench/{name}"], name)
    return name


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="A tenth of everything: to see that it works, not to quote.")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(["one", "many", "crowd", "thousand", "take-over", "attacked"]),
    help="Measure this part, or several, in the usual order, and write nothing.",
)
@click.option("--keep", is_flag=True, help="Keep the folder with the logs of broker and bridges, and print its name.")
def main(*, quick: bool, only: tuple[str, ...], keep: bool) -> None:
    """Measure, print a table, and write build/bench-bridge.json."""
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    bench = Bench(folder, console)
    try:
        with console.status("starting Kafka"):
            bench.kafka.start()
        seconds, warming = (8, 4) if quick else (60, 30)
        parts: dict[str, Callable[[], list[Result]]] = {
            "one": lambda: alone(bench, console, 40_000 if quick else 400_000),
            "many": lambda: many(bench, Load(50, 200, 20, seconds, warming)),
            "crowd": lambda: crowd(bench, Load(200, 10, 2, seconds, warming)),
            "thousand": lambda: crowd(bench, Load(1000, 1, 1, seconds, warming)),
            "take-over": lambda: take_over(bench, 10, 6),
            "attacked": lambda: attacked(bench, 8 if quick else 30),
        }
        found = []
        for name, part in parts.items():
            if not only or name in only:
                console.rule(name)
                found += part()
    finally:
        bench.kafka.kill()
        if keep:
            console.print(f"Kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    results.show(console, found)
    if not only:
        results.write(found, FILE)
        console.print(f"Written to {FILE}")


if __name__ == "__main__":
    main()
