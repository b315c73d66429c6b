"""How much slower honest sources get while a rogue edge attacks their bridge as fast as it can: both in one run."""

import re
import statistics
from contextlib import ExitStack
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.benchmarks import attacker, crowd_feeder
from tests.benchmarks.bridge_setup import Bench, Feeder
from tests.benchmarks.results import Result, compared
from tests.benchmarks.usage import usage
from tests.end_to_end.follower import Follower
from tests.rules.waiting import eventually

_CLOCK = re.compile(rb'"t":(\d+)')
_SOURCES, _CHANGES, _TRANSACTIONS = 10, 100, 20


class _Arrival(NamedTuple):
    """A record's making and its coming, by the monotonic clock in seconds."""

    made: float
    came: float


def attacked(bench: Bench, seconds: int) -> list[Result]:
    """Return the latency of honest sources under attack beside that of the same sources before, and the bridge's most memory."""
    names = [f"bench/attacked{number}" for number in range(_SOURCES + 1)]
    *honest, rogue = names
    arrivals: list[_Arrival] = []

    def arrived(value: bytes, moment: float, _partition: int) -> None:
        if clock := _CLOCK.search(value):
            arrivals.append(_Arrival(int(clock[1]) / 1e9, moment))

    with ExitStack() as ending:
        bridge, url = bench.bridge("attacked", names, "attacked")
        bridge.start()
        ending.callback(bridge.stop)
        eventually(lambda: bridge.tail(1000).count("taken over at") >= len(names), saying="all sources are served")
        follower = Follower(bench.kafka.bootstrap, "attacked", _SOURCES, each=arrived)
        ending.callback(follower.stop)

        def carry(title: str) -> float:
            """Return the 99th percentile of what all sources send meanwhile, in milliseconds."""
            del arrivals[:]
            feeder = Feeder(crowd_feeder, url, ",".join(honest), "steady", _CHANGES, seconds, _TRANSACTIONS)
            ending.callback(feeder.close)
            feeder.ready()
            feeder.go()
            feeder.figures(seconds + 120)
            eventually(lambda: len(arrivals) >= _SOURCES * _CHANGES * seconds, 60, saying="all records arrived")
            latencies = [each.came - each.made for each in arrivals]
            percentile = statistics.quantiles(latencies, n=100)[98] * 1000
            bench.console.print(f"{title}: p50 {statistics.median(latencies) * 1000:.1f} ms, p99 {percentile:.1f} ms")
            return percentile

        carry("warming")
        undisturbed = carry("undisturbed")
        attack = Feeder(attacker, urlsplit(url).port, rogue, honest[0], seconds)
        ending.callback(attack.close)
        attack.ready()
        attack.go()
        disturbed = carry("attacked")
        (sent,) = attack.figures(60)
        most = usage(bridge.pid).peak_megabytes
    title = f"{_SOURCES} sources at {_CHANGES} changes/s, attacked"
    return [
        compared(f"{title}, p99 beside that before", disturbed, "ms", undisturbed),
        Result(f"{title}, hostile deliveries", sent, "deliveries"),
        Result(f"{title}, bridge's most memory", round(most, 1), "MB"),
    ]
