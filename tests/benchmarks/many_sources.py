"""Many sources through one bridge, and very many that two bridges share, at a steady rate."""

import os
import re
import statistics
import time
from contextlib import ExitStack
from typing import NamedTuple

import psutil

from tests.benchmarks import crowd_feeder, stalls
from tests.benchmarks.bridge_setup import Bench, Feeder
from tests.benchmarks.results import Result
from tests.benchmarks.stalls import Arrival
from tests.benchmarks.usage import usage
from tests.end_to_end.follower import Follower
from tests.end_to_end.supervised import Supervised
from tests.rules.waiting import eventually

_CLOCK = re.compile(rb'"t":(\d+)')


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
        eventually(lambda: bridge.tail(100_000).count("taken over at") >= load.sources, saying="all sources are served")
        seen = _carry(bench, ending, load, "many", names, [bridge], url)
        most = usage(bridge.pid).peak_megabytes
    return [
        *seen.results(load.title, load),
        Result(f"{load.title}, bridge's most memory", round(most, 1), "MB"),
    ]


def crowd(bench: Bench, load: Load) -> list[Result]:
    """Return the latency of very many sources that two bridges share, and what the larger of the two takes."""
    stream = f"crowd{load.sources}"
    names = [f"bench/{stream}-{number}" for number in range(load.sources)]
    with ExitStack() as ending:
        numbers = [bench.bridge(f"{stream}-{number}", names, stream) for number in range(2)]
        began = time.monotonic()
        for bridge, _ in numbers:
            bridge.start()
            ending.callback(bridge.stop)
        bridges, urls = [bridge for bridge, _ in numbers], ",".join(url for _, url in numbers)
        eventually(
            lambda: all(bridge.tail(100_000).count("taken over at") >= load.sources // 2 for bridge in bridges),
            120,
            saying="each bridge serves its half",
        )
        started = time.monotonic() - began
        seen = _carry(bench, ending, load, stream, names, bridges, urls)
        processes = [psutil.Process(bridge.pid) for bridge in bridges]
        figures = {
            "start to all serving": (started, "s"),
            "most memory": (max(usage(bridge.pid).peak_megabytes for bridge in bridges), "MB"),
            "threads": (max(process.num_threads() for process in processes), "threads"),
            "descriptors": (max(process.num_fds() for process in processes), "descriptors"),
        }
    return [
        *seen.results(f"{load.title}, two bridges", load),
        *(
            Result(f"{load.title}, two bridges, {name}", round(value, 1), unit)
            for name, (value, unit) in figures.items()
        ),
    ]


class Seen(NamedTuple):
    """What was seen once all were warm."""

    #: From the making of each record to the reader, in seconds.
    latencies: list[float]
    #: CPU seconds of the bridges, the broker, the simulated edges and the reader.
    cpu: dict[str, float]

    def results(self, title: str, load: Load) -> list[Result]:
        """Return the percentiles, and how much of a core each part took: they share the machine."""
        percentiles = statistics.quantiles(self.latencies, n=100)
        counted = load.seconds - load.warming
        records = load.sources * load.changes * counted
        return [
            *(Result(f"{title}, p{at}", round(percentiles[at - 1] * 1000, 1), "ms") for at in (50, 99)),
            Result(f"{title}, CPU of bridges", round(self.cpu["bridges"] * 1e6 / records, 1), "s per million records"),
            *(
                Result(f"{title}, processor taken by {name}", round(seconds / counted, 2), "cores")
                for name, seconds in self.cpu.items()
            ),
        ]


def _carry(
    bench: Bench, ending: ExitStack, load: Load, topic: str, names: list[str], bridges: list[Supervised], urls: str
) -> Seen:
    """Let two processes feed bridges that run."""
    arrivals: list[Arrival] = []

    def arrived(value: bytes, moment: float, partition: int) -> None:
        if match := _CLOCK.search(value):
            arrivals.append(Arrival(int(match[1]) / 1e9, moment, partition))

    feeders = [
        Feeder(crowd_feeder, urls, ",".join(names[part::2]), "steady", load.changes, load.seconds, load.transactions)
        for part in range(2)
    ]
    for each in feeders:
        ending.callback(each.close)
    follower = Follower(bench.kafka.bootstrap, topic, load.sources, each=arrived)
    ending.callback(follower.stop)
    for each in feeders:
        each.ready()
    eventually(lambda: sum(bridge.tail(100_000).count("link up") for bridge in bridges) >= load.sources, 120, every=0.5)
    parts = {
        "bridges": [bridge.pid for bridge in bridges],
        "broker": [bench.kafka.pid],
        "simulated edges": [each.pid for each in feeders],
        "reader": [os.getpid()],
    }

    def taken() -> dict[str, float]:
        return {name: sum(usage(pid).cpu_seconds for pid in pids) for name, pids in parts.items()}

    for each in feeders:
        each.go()
    time.sleep(load.warming)
    before = taken()
    time.sleep(load.seconds - load.warming)
    after = taken()
    for each in feeders:
        each.figures(120)
    expected = load.sources * load.changes * load.seconds
    eventually(lambda: len(arrivals) >= expected, 60, saying="all records arrived")
    stalls.show(bench.console, arrivals, [bridge.log for bridge in bridges])
    counted = arrivals[load.sources * load.changes * load.warming :]
    return Seen([each.came - each.made for each in counted], {name: after[name] - before[name] for name in parts})
