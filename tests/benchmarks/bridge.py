"""`make bench-bridge`: the bridge alone, fed over AMQP on this machine by the edge's own sender, without a database.

One source against a plain producer of the same records; many sources at a steady rate, and very many on two bridges; and how long
sources rest when the bridge that serves them is killed.
"""

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import click
import psutil
from rich.console import Console

from infra.local import files
from infra.local.kafka import Kafka
from infra.local.ports import free_port
from tests.benchmarks import feeder, producing, results
from tests.benchmarks.results import Result, compared
from tests.benchmarks.usage import usage
from tests.end_to_end.follower import Follower
from tests.end_to_end.pipeline import command, headrace
from tests.end_to_end.supervised import Supervised
from tests.waiting import eventually

FILE = Path("build/bench-bridge.json")
RUNS = 3
_CLOCK = re.compile(rb'"t":(\d+)')
_SHARING = '\n[sharing]\ngroup = "{group}"\nsession_seconds = {seconds}\n'


class Bench:
    """A broker, and what the measurements share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kafka = Kafka(folder / "kafka", heap_megabytes=1024, lasting=True)

    def bridge(self, name: str, sources: list[str], stream: str, *, more: str = "") -> tuple[Supervised, str]:
        """Return a bridge that is not started, and its URL."""
        port = free_port()
        path = files.bridge(
            self.folder / f"{name}.toml",
            bootstrap=self.kafka.bootstrap,
            listen=f"127.0.0.1:{port}",
            sources=sources,
            stream=stream,
        )
        path.write_text(path.read_text() + (more or _SHARING.format(group=f"bench-{stream}", seconds=8)))
        headrace("bridge", "init", "--config", str(path))
        run = command("bridge", "run", "--config", str(path))
        return Supervised(name, run, log=self.folder / f"{name}.log"), f"amqp://127.0.0.1:{port}"


class Feeder:
    """A feeding process that waits to be started."""

    def __init__(self, module: Any, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module.__name__, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> None:
        """Wait until it is prepared."""
        assert self._process.stdout
        assert self._process.stdout.readline() == "ready\n"

    def go(self) -> None:
        """Let it begin."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def told(self) -> list[float]:
        """Return what it told at its end."""
        assert self._process.stdout
        return [float(figure) for figure in self._process.stdout.readline().split()]

    def close(self) -> None:
        """End it, if it has not ended."""
        self._process.kill()
        self._process.communicate()


def alone(bench: Bench, console: Console, records: int) -> list[Result]:
    """Return records a second and CPU of one source, beside the plain producer, by turns."""
    ours, theirs, our_cpu, their_cpu = [], [], [], []
    for run in range(RUNS):
        with ExitStack() as ending:
            peer = Feeder(producing, bench.kafka.bootstrap, _topic(bench, f"plain{run}"), records)
            ending.callback(peer.close)
            peer.ready()
            peer.go()
            seconds, cpu = peer.told()
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
            (seconds,) = source.told()
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


class Load(NamedTuple):
    """What many sources do."""

    sources: int
    #: Of each source, a second.
    changes: int
    transactions: int
    seconds: int
    #: Of those, how many do not count: a broker that has just started compiles itself while it works.
    warming: int

    @property
    def title(self) -> str:
        """What it is called in the results."""
        return f"{self.sources:,} sources at {self.changes} change{'s' * (self.changes > 1)}/s"


def many(bench: Bench, load: Load) -> list[Result]:
    """Return the latency of many sources through one bridge, from a batch's making to a `read_committed` reader."""
    with ExitStack() as ending:
        names = [f"bench/many{number}" for number in range(load.sources)]
        bridge, url = bench.bridge("many", names, "many")
        bridge.start()
        ending.callback(bridge.stop)
        latencies = _latencies(bench, ending, load, "many", names, [bridge], url)
        cost = usage(bridge.pid)
    million = load.sources * load.changes * load.seconds / 1e6
    return [
        *_percentiles(load.title, latencies),
        Result(f"{load.title}, bridge's CPU", round(cost.cpu_seconds / million, 1), "s per million records"),
        Result(f"{load.title}, bridge's most memory", round(cost.peak_megabytes, 1), "MB"),
    ]


def crowd(bench: Bench, load: Load) -> list[Result]:
    """Return the latency of very many sources that two bridges share, and what the larger of the two takes."""
    stream = f"crowd{load.sources}"
    names = [f"bench/{stream}-{number}" for number in range(load.sources)]
    with ExitStack() as ending:
        made = [bench.bridge(f"{stream}-{number}", names, stream) for number in range(2)]
        began = time.monotonic()
        for bridge, _ in made:
            bridge.start()
            ending.callback(bridge.stop)
        bridges, urls = [bridge for bridge, _ in made], ",".join(url for _, url in made)
        eventually(
            lambda: all(bridge.tail(100_000).count("taken over at") >= load.sources // 2 for bridge in bridges),
            120,
            saying="each bridge serves its half",
        )
        started = time.monotonic() - began
        latencies = _latencies(bench, ending, load, stream, names, bridges, urls)
        processes = [psutil.Process(bridge.pid) for bridge in bridges]
        figures = {
            "start to all serving": (started, "s"),
            "most memory": (max(usage(bridge.pid).peak_megabytes for bridge in bridges), "MB"),
            "threads": (max(process.num_threads() for process in processes), "threads"),
            "descriptors": (max(process.num_fds() for process in processes), "descriptors"),
        }
    return [
        *_percentiles(f"{load.title}, two bridges", latencies),
        *(
            Result(f"{load.title}, two bridges, {name}", round(value, 1), unit)
            for name, (value, unit) in figures.items()
        ),
    ]


def _latencies(
    bench: Bench, ending: ExitStack, load: Load, topic: str, names: list[str], bridges: list[Supervised], urls: str
) -> list[float]:
    """Let two processes feed bridges that run; return each record's latency, in seconds, once all are warm."""
    latencies: list[float] = []

    def arrived(value: bytes, moment: float) -> None:
        if found := _CLOCK.search(value):
            latencies.append(moment - int(found[1]) / 1e9)

    feeders = [
        Feeder(feeder, urls, ",".join(names[part::2]), "steady", load.changes, load.seconds, load.transactions)
        for part in range(2)
    ]
    follower = Follower(bench.kafka.bootstrap, topic, load.sources, each=arrived)
    ending.callback(follower.stop)
    for each in feeders:
        ending.callback(each.close)
        each.ready()
    eventually(lambda: sum(bridge.tail(100_000).count("link up") for bridge in bridges) >= load.sources, 120)
    for each in feeders:
        each.go()
    for each in feeders:
        each.told()
    expected = load.sources * load.changes * load.seconds
    eventually(lambda: len(latencies) >= expected, 60, saying="all records arrived")
    return latencies[load.sources * load.changes * load.warming :]


def _percentiles(title: str, latencies: list[float]) -> list[Result]:
    percentiles = statistics.quantiles(latencies, n=100)
    return [Result(f"{title}, p{at}", round(percentiles[at - 1] * 1000, 1), "ms") for at in (50, 99)]


def take_over(bench: Bench, sources: int, session_seconds: int) -> list[Result]:
    """Return how long the sources of a killed bridge rest until another one has committed for all of them again."""
    names = [f"bench/over{number}" for number in range(sources)]
    more = _SHARING.format(group="bench-over", seconds=session_seconds)
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
    type=click.Choice(["one", "many", "crowd", "thousand", "take-over"]),
    help="Measure one part, and write nothing.",
)
def main(*, quick: bool, only: str | None) -> None:
    """Measure, print a table, and write build/bench-bridge.json."""
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    bench = Bench(folder)
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
        }
        found = []
        for name, part in parts.items():
            if only in {None, name}:
                console.rule(name)
                found += part()
    finally:
        bench.kafka.kill()
        shutil.rmtree(folder, ignore_errors=True)
    results.show(console, found)
    if only is None:
        results.write(found, FILE)
        console.print(f"Written to {FILE}")


if __name__ == "__main__":
    main()
