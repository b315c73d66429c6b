"""From a change's commit at its source to its publication, and to the first answer that shows it, while the continuous job runs
and is warm.

Four tables change. First nobody asks; then a reader asks one of them again and again, live and as published, and waits for each
answer. There a change's delay ends when the first answer that has it is there, so it includes the question itself. Only what the
lake adds is measured: changes are committed straight to Kafka.
"""

import json
import statistics
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

from confluent_kafka import Producer
from pyspark.sql import SparkSession
from rich.console import Console

from headrace.configuration.lake import LakeFile
from spark_jobs import continuous, load
from spark_jobs.query import engine
from tests.benchmarks import lake_records
from tests.benchmarks.results import Result

_TABLES = [f"t{n}" for n in range(4)]
_DATABASES = ("silver_live", "silver")
#: Commits a second; each holds as many changes as the rate asks for.
_TICKS = 10
_EVERY = 5
#: Seconds of the same load ahead of those that count: a JVM compiles what it runs for minutes, and the job runs for days.
_WARM = 240


def measure(
    console: Console, spark: SparkSession, lake: LakeFile, stream: str, *, seconds: int, rate: int
) -> list[Result]:
    """Return middle and 99th percentile of the delays, until published, and until shown, as published and live."""
    feed = Feed(lake.kafka.bootstrap, lake.topic(stream), max(1, rate // _TICKS // len(_TABLES)))
    feed.begin()
    load.run(spark, lake, stream)
    sql_engine = engine.SqlEngine(spark.newSession(), lake)
    # A reader elsewhere would not queue behind the tasks of a load either.
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "reader")
    stopped = threading.Event()
    found = []
    published: list[tuple[float, int]] = []

    def note(report: load.Report) -> None:
        if report.silver is not None and report.silver.ranges:
            ((_, upto),) = report.silver.ranges.values()
            published.append((time.time(), Feed.tick_at(upto)))

    with ThreadPoolExecutor(2) as pool, console.status("loading, writing and asking"):
        running = pool.submit(continuous.load, spark, lake, stream, every=_EVERY, stopped=stopped, on_report=note)
        writing = pool.submit(feed.write, stopped)
        try:
            warm = time.monotonic() + _WARM
            while time.monotonic() < warm and not running.done():
                for database in _DATABASES:
                    _ask(sql_engine, database)
            found += _unwatched(feed, running, published, seconds, rate)
            for database in _DATABASES:
                found += _watched(sql_engine, feed, running, database, seconds, rate)
        finally:
            stopped.set()
        writing.result()
        running.result()
    sql_engine.close()
    return found


def _ask(sql_engine: engine.SqlEngine, database: str) -> tuple[float, int]:
    """Return the newest tick that a table shows, and when the answer was there."""
    (row,) = sql_engine.ask(f"SELECT max(tick) AS tick FROM {database}.t0").collect()
    return time.time(), row["tick"] or 0


def _unwatched(
    feed: "Feed", running: "Future[None]", published: list[tuple[float, int]], seconds: int, rate: int
) -> list[Result]:
    """Wait until what was committed in so many seconds is published; return its delays."""
    first, loads = feed.newest, len(published)
    time.sleep(seconds)
    last, ends = feed.newest, time.monotonic() + 3 * seconds
    while not published or published[-1][1] < last:
        if running.done() or time.monotonic() > ends:
            raise RuntimeError(f"what was committed after tick {first} is not published")
        time.sleep(0.1)
    return _results(
        "until published", feed, range(first + 1, last + 1), published[loads:], f"{rate:,} changes/s, no reader"
    )


def _results(what: str, feed: "Feed", ticks: range, seen: list[tuple[float, int]], said: str) -> list[Result]:
    delays = sorted(_delays({tick: at for tick, at in list(feed.committed.items()) if tick in ticks}, seen))
    return [
        Result(f"freshness {what}, p50", round(statistics.median(delays), 2), f"s ({said})"),
        Result(f"freshness {what}, p99", round(delays[int(len(delays) * 0.99)], 2), f"s ({said})"),
    ]


def _watched(
    sql_engine: engine.SqlEngine, feed: "Feed", running: "Future[None]", database: str, seconds: int, rate: int
) -> list[Result]:
    """Ask one database without a pause until what was committed in so many seconds is seen; return its delays."""
    first, last, answers = feed.newest, None, []
    began = time.monotonic()
    while last is None or answers[-1][1] < last:
        # The last changes need a while longer to be seen.
        if running.done() or time.monotonic() > began + 4 * seconds:
            why = running.exception() if running.done() else None
            raise RuntimeError(f"{database} does not show all that was committed after tick {first}") from why
        answers.append(_ask(sql_engine, database))
        if last is None and time.monotonic() >= began + seconds:
            last = feed.newest
    asked = f"{rate:,} changes/s, {len(answers)} answers"
    return _results(f"of {database}", feed, range(first + 1, last + 1), answers, asked)


def _delays(committed: dict[int, float], seen: list[tuple[float, int]]) -> list[float]:
    """Return, for each tick, the time from its commit to the end of the first answer that shows it."""
    delays, answers = [], iter(seen)
    at, shown = next(answers)
    for tick, moment in sorted(committed.items()):
        while shown < tick:
            try:
                at, shown = next(answers)
            except StopIteration:
                return delays
        delays.append(at - moment)
    return delays


class Feed:
    """Commits changes of four tables, and notes when."""

    def __init__(self, bootstrap: str, topic: str, changes: int) -> None:
        self._topic, self._changes = topic, changes
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": "fresh", "linger.ms": 5, "log_level": 0}
        )
        self._producer.init_transactions(30)
        self._lsn = 1
        #: When each tick was committed, and the newest of them.
        self.committed: dict[int, float] = {}
        self.newest = 0

    @staticmethod
    def tick_at(position: str) -> int:
        """Return the tick that a position belongs to."""
        return int(position.split("/")[1], 16) - 1

    def begin(self) -> None:
        """Commit the tables' schema records and first rows."""
        columns = [
            {"name": n, "typeName": "int8", "length": None, "scale": None, "position": p, "optional": n != "id"}
            for p, n in enumerate(("id", "tick"), 1)
        ]
        self._producer.begin_transaction()
        for table in _TABLES:
            change = {"type": "CREATE", "id": table, "table": {"primaryKeyColumnNames": ["id"], "columns": columns}}
            record = {"source": self._source(table, 0), "ts_ms": 0, "tableChanges": [change]}
            self._producer.produce(self._topic, json.dumps(record, separators=(",", ":")), None, 0)
        self._producer.commit_transaction(30)
        self.tick(0)

    def write(self, stopped: threading.Event) -> None:
        """Commit a tick every so often."""
        began = time.monotonic()
        while not stopped.wait(max(0.0, began + (self.newest + 1) / _TICKS - time.monotonic())):
            self.tick(self.newest + 1)
            self.committed[self.newest + 1] = time.time()
            self.newest += 1

    def tick(self, tick: int) -> None:
        """Commit changes of each table."""
        self._producer.begin_transaction()
        ordinal, last = 0, self._changes * len(_TABLES) - 1
        for table in _TABLES:
            for change in range(self._changes):
                row = {"id": (tick * self._changes + change) % 100_000, "tick": tick}
                transaction = {"id": str(self._lsn), "total_order": ordinal + 1}
                record = {
                    "before": None,
                    "after": row,
                    "source": self._source(table, ordinal),
                    "op": "u",
                    "ts_ms": 0,
                    "transaction": transaction | ({"last": True} if ordinal == last else {}),
                }
                key = json.dumps({"id": row["id"]}, separators=(",", ":"))
                self._producer.produce(self._topic, json.dumps(record, separators=(",", ":")), key, 0)
                ordinal += 1
        self._producer.commit_transaction(30)
        self._lsn += 1

    def _source(self, table: str, ordinal: int) -> dict[str, object]:
        position = f"692010c0/{self._lsn:016x}/{ordinal:08x}"
        said: dict[str, object] = {"version": "0", "connector": "postgresql", "name": lake_records.SOURCE}
        said |= {"ts_ms": int(time.time() * 1000), "snapshot": "false", "db": "bench", "schema": "public"}
        return said | {"table": table, "txId": 761, "lsn": 27262976, "position": position}
