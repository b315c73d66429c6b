"""A lake whose bronze is written without Kafka, for tests of what silver makes of it: they need no server but Spark."""

import json
import math
import shutil
from collections.abc import Sequence
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from spark_jobs.bronze import envelope, increment
from spark_jobs.bronze import load as bronze
from spark_jobs.query import published_tables
from spark_jobs.silver import load as silver
from spark_jobs.silver.load import SilverReport
from spark_jobs.state import offsets
from spark_jobs.state.offsets import Held, Progress
from tests.lake.feed import Feed

_FILE = """
[lake]
root = "lake"
[kafka]
bootstrap = "{kafka}"
[spark.settings]
"spark.sql.shuffle.partitions" = "2"
[streams.bank]
sources = {sources}
"""
#: Nobody answers there.
_KAFKA = "127.0.0.1:2"
#: Of Arrow: from Python's own rows Spark would make them by a process of Python.
_RECORD = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)


class LoggedFeed(Feed):
    """A feed whose records wait until bronze takes them."""

    def __init__(self, source: str, partition: int) -> None:
        self.topic, self.source, self._partition = "bank", source, partition
        self._per_table = False
        self._records, self._withheld, self._keys = [], [], {}
        self._lsn, self._ordinal, self._at = 0x1A00000, 0, 0
        self.waiting: list[tuple[Any, ...]] = []
        self.offset = 0

    def _begin(self) -> None:
        pass

    def _end(self, position: str, *, abort: bool = False) -> None:
        for topic, value, key in self._records:
            self.waiting.append((topic, self._partition, self.offset, datetime.now(UTC), key, value))
            self.offset += 1
        self._records = []


class LoggedLake:
    """A lake with one stream of a few sources."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        settings: str = "",
        sources: Sequence[str] = ("jakarta/bank", "london/bank"),
    ) -> None:
        self.spark = spark
        self._path = folder / "lake.toml"
        folder.mkdir(parents=True, exist_ok=True)
        # Live rows are those of bronze, without five seconds of waiting for Kafka each minute.
        increment._resting[_KAFKA, "bank"] = math.inf
        self.feeds = tuple(LoggedFeed(source, partition) for partition, source in enumerate(sources))
        self.file = self.set(settings)

    def set(self, settings: str) -> LakeFile:
        """Set more of the stream in the lake's file."""
        self._settings = settings
        listed = json.dumps([feed.source for feed in self.feeds])
        self._path.write_text(_FILE.format(sources=listed, kafka=_KAFKA) + settings)
        self.file = load_file(self._path, LakeFile)
        return self.file

    def copy_to(self, folder: Path) -> "LoggedLake":
        """Return the same lake in another folder, as if everything that was loaded had been loaded there."""
        shutil.copytree(self._path.parent, folder)
        copy = LoggedLake(self.spark, folder, self._settings, [feed.source for feed in self.feeds])
        copy.feeds = deepcopy(self.feeds)
        return copy

    def to_bronze(self) -> None:
        """Commit what the feeds wrote to bronze."""
        feeds = [dict(zip(_RECORD.names, record, strict=True)) for feed in self.feeds for record in feed.waiting]
        for feed in self.feeds:
            feed.waiting = []
        progress = Progress(topics={"bank": Held({i: feed.offset for i, feed in enumerate(self.feeds)}, "id")})
        rows = envelope.ordered(envelope.rows(self.spark.createDataFrame(pa.Table.from_pylist(feeds, _RECORD))))
        writer = rows.coalesce(1).write.format("delta").mode("append").option(increment.FEED, "true")
        writer.option("userMetadata", offsets.note("bank", progress)).save(bronze.table_path(self.file, "bank"))

    def load(self) -> SilverReport:
        """Load what the feeds wrote; return silver's report."""
        if any(feed.waiting for feed in self.feeds):
            self.to_bronze()
        return silver.load(self.spark, self.file, "bank")

    def rows(self, *columns: str, table: str = "public.accounts") -> list[tuple[Any, ...]]:
        """Return the published rows of a table, sorted, each with its source ahead."""
        frame = published_tables.frame(self.spark, self.file, "bank", table)
        assert frame is not None, f"{table} is published"
        return sorted(map(tuple, frame.selectExpr("_source", *columns).collect()), key=str)
