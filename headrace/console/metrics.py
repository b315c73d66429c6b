"""What the console knows of the lake, for Prometheus: freshness, loads, tables by state. A lake has no endpoint of its own.

docs/metrics.md explains each; infra/monitoring/alerts/lake.yml has the rules.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace import doors
from headrace.console.bridges import BridgesView
from headrace.console.lake import RetentionView
from headrace.console.lake_view import EXPECTATION_STATES, LakeView
from headrace.console.sources import SourceRow
from headrace.lake.own_tables import TABLE_STATES
from headrace.metrics.collector import RefusedCollector, build_info, text_of

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: The names of all metrics, with what each means.
HELP = {
    "headrace_console_bridge_up": "1 while the bridge answers the console, 0 while not.",
    "headrace_lake_up": "1 while the lake's tables can be read, 0 while not.",
    "headrace_lake_published_time_seconds": "When the stream was published last, in seconds since 1970.",
    "headrace_lake_load_time_seconds": "When a step of a load that brought something ended last, in seconds since 1970.",
    "headrace_lake_load_duration_seconds": "How long that step took.",
    "headrace_lake_tables": "Tables of the stream in each state.",
    "headrace_lake_freshness_seconds": "How old what readers of silver lack of the source may be; 0 when they lack nothing.",
    "headrace_lake_kafka_up": "1 while Kafka can be asked what it holds of the streams, 0 while not.",
    "headrace_lake_kafka_headroom_seconds": "How long it takes until Kafka may remove a record that bronze lacks.",
    "headrace_lake_kafka_retention_seconds": "How long Kafka keeps a record of the stream at least; absent: no limit.",
    "headrace_lake_expectations": "Expectations of the stream's tables in each state.",
    "headrace_lake_tables_not_equal": "Tables of the stream whose last verification found a difference.",
}


def text(bridges: BridgesView, lake: LakeView, kafka: RetentionView, found: Sequence[SourceRow]) -> bytes:
    """Return all metrics in Prometheus's text format."""
    return text_of(_Metrics(bridges, lake, kafka, found))


class _Metrics(Collector):
    def __init__(self, bridges: BridgesView, lake: LakeView, kafka: RetentionView, found: Sequence[SourceRow]) -> None:
        self._bridges, self._lake, self._kafka, self._found = bridges, lake, kafka, found

    def collect(self) -> Iterator[Metric]:
        """Yield every metric of which something is known."""
        yield build_info("headrace_console")
        yield from RefusedCollector("headrace_console", doors.refused).collect()
        up = _gauge("headrace_console_bridge_up", "bridge")
        for bridge in self._bridges.bridges:
            up.add_metric([bridge.address], int(not bridge.problem))
        yield up
        if self._lake.configured:
            yield from self._of_lake()
            yield from self._of_kafka()

    def _of_lake(self) -> Iterator[GaugeMetricFamily]:
        lake = self._lake
        readable = _gauge("headrace_lake_up")
        readable.add_metric([], int(not lake.problem))
        yield readable
        published = _gauge("headrace_lake_published_time_seconds", "stream")
        tables = _gauge("headrace_lake_tables", "stream", "state")
        differing = _gauge("headrace_lake_tables_not_equal", "stream")
        expected = _gauge("headrace_lake_expectations", "stream", "state")
        met = Counter((table.stream, one.state) for table in lake.tables for one in table.expectations)
        counted = Counter((table.stream, table.state) for table in lake.tables)
        wrong = Counter(stream for (stream, _, _), one in lake.verdicts.items() if one.verdict == "not equal")
        for name, stream in lake.streams.items():
            if stream.finished_at is not None:
                published.add_metric([name], stream.finished_at.timestamp())
            for state in TABLE_STATES:
                tables.add_metric([name, state], counted[name, state])
            for state in EXPECTATION_STATES:
                expected.add_metric([name, state], met[name, state])
            differing.add_metric([name], wrong[name])
        yield from (published, tables, expected, differing)
        ended = _gauge("headrace_lake_load_time_seconds", "stream", "step")
        took = _gauge("headrace_lake_load_duration_seconds", "stream", "step")
        seen = set()
        for load in lake.loads:
            if (load.stream, load.step) not in seen:
                seen.add((load.stream, load.step))
                ended.add_metric([load.stream, load.step], load.finished_at.timestamp())
                took.add_metric([load.stream, load.step], load.seconds)
        yield from (ended, took)
        fresh = _gauge("headrace_lake_freshness_seconds", "stream", "source")
        for row in self._found:
            if row.freshness is not None:
                fresh.add_metric([row.stream, row.source], row.freshness)
        yield fresh

    def _of_kafka(self) -> Iterator[GaugeMetricFamily]:
        """Yield for how long Kafka keeps what is not loaded; the time goes down while Kafka does not answer, too."""
        if not self._kafka.asked:
            return
        answers = _gauge("headrace_lake_kafka_up")
        answers.add_metric([], int(not self._kafka.problem))
        yield answers
        headroom = _gauge("headrace_lake_kafka_headroom_seconds", "stream")
        retention = _gauge("headrace_lake_kafka_retention_seconds", "stream")
        now = time.time()
        for name, stream in self._kafka.streams.items():
            left = stream.headroom(now)
            if left is not None and stream.retention is not None:
                headroom.add_metric([name], left)
                retention.add_metric([name], stream.retention)
        yield from (headroom, retention)


def _gauge(name: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, HELP[name], labels=labels)
