"""From a change's commit at its source to the first answer that shows it, while the continuous job runs and is warm.

Four tables change; a reader asks one of them again and again, by turns as published and live, and waits for each answer. A
change's delay ends when the first answer that has it is there, so it includes the question itself. Only what the lake adds is
measured: changes are committed straight to Kafka.
"""

import json
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Producer
from pyspark.sql import SparkSession
from rich.console import Console

from headrace.configuration.lake import LakeFile
from spark_jobs import load, sql
from tests.benchmarks import lake_records
from tests.benchmarks.results import Result

_TABLES = [f"t{n}" for n in range(4)]
#: Commits a second; each holds as many changes as the rate asks for.
_TICKS = 10
_EVERY = 5
#: Seconds of the same load ahead of those that count: a JVM compiles what it runs for minutes, and the job runs for days.
_WARM = 240


def measure(
    console: Console, spark: SparkSession, lake: LakeFile, stream: str, *, seconds: int, rate: int
) -> list[Result]:
    """Return middle and 99th percentile of the delays, as published and live."""
    feed = Feed(lake.kafka.bootstrap, lake.topic(stream), max(1, rate // _TICKS // len(_TABLES)))
    feed.begin()
    load.run(spark, lake, stream)
    desk = sql.Desk(spark.newSession(), lake)
    stopped = threading.Event()
    answers: dict[str, list[tuple[float, int]]] = {"silver": [], "silver_live": []}
    with ThreadPoolExecutor(2) as pool, console.status("loading, writing and asking"):
        running = pool.submit(load.follow, spark, lake, stream, every=_EVERY, stopped=stopped, tell=lambda report: None)
        writing = pool.submit(feed.write, _WARM + seconds)
        try:
            # The last changes need a while longer to be seen.
            end = time.monotonic() + _WARM + 3 * seconds
            while not running.done() and time.monotonic() < end and not _seen(answers, feed, writing.done()):
                for database, seen in answers.items():
                    (row,) = desk.ask(f"SELECT max(tick) AS tick FROM {database}.t0").collect()
                    seen.append((time.time(), row["tick"] or 0))
        finally:
            stopped.set()
        writing.result()
        running.result()
    desk.close()
    found = []
    for database, seen in answers.items():
        counted = {tick: at for tick, at in feed.committed.items() if tick > _WARM * _TICKS}
        delays = sorted(_delays(counted, seen))
        middle, worst = statistics.median(delays), delays[min(len(delays) - 1, int(len(delays) * 0.99))]
        answers_then = sum(at >= min(counted.values()) for at, _ in seen)
        asked = f"{rate:,} changes/s, {answers_then} answers"
        found += [
            Result(f"freshness of {database}, p50", round(middle, 2), f"s ({asked})"),
            Result(f"freshness of {database}, p99", round(worst, 2), f"s ({asked})"),
        ]
    return found


def _seen(answers: dict[str, list[tuple[float, int]]], feed: "Feed", written: bool) -> bool:
    return written and all(seen and seen[-1][1] == max(feed.committed) for seen in answers.values())


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
        #: When each tick was committed.
        self.committed: dict[int, float] = {}

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
        self._tick(0)

    def write(self, seconds: int) -> None:
        """Commit a tick every so often."""
        began = time.monotonic()
        for tick in range(1, seconds * _TICKS + 1):
            time.sleep(max(0.0, began + tick / _TICKS - time.monotonic()))
            self._tick(tick)
            self.committed[tick] = time.time()

    def _tick(self, tick: int) -> None:
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
