"""A lake of which a person's rows are erased, and where these are looked for."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from spark_jobs.bronze import quarantine
from spark_jobs.maintenance import erase
from spark_jobs.maintenance.erase import EraseReport
from spark_jobs.state import published
from tests.lake.logged import LoggedFeed, LoggedLake

ACCOUNTS = "public.accounts"
J, L = "jakarta/bank", "london/bank"
#: What is looked for in files.
NAME, FORMER = "Amelia-Quillfeather", "Amelia-Vandersteen"


class KilledError(BaseException):
    """In place of the end of the process."""


def make(spark: SparkSession, folder: Path) -> LoggedLake:
    """Return a lake of two sources, whose rows of key 7 are of two persons."""
    made = LoggedLake(spark, folder, "history = true\n")
    one, other = made.feeds
    for feed in made.feeds:
        feed.commit(feed.schema())
    one.commit(one.insert(id=1, name="kept", balance="1"), one.insert(id=7, name=FORMER, balance="2"))
    other.commit(other.insert(id=7, name="another person", balance="3"))
    made.load()
    one.commit(one.update(id=7, name=NAME, balance="4"))
    made.load()
    return made


def history_of(lake: LoggedLake, condition: str) -> int:
    """Return how many published versions of rows meet a condition."""
    version = published.latest(lake.spark, lake.file, "bank").tables[ACCOUNTS].history
    path = f"{lake.file.root}/history/bank/{ACCOUNTS}"
    return lake.spark.read.format("delta").option("versionAsOf", version).load(path).filter(condition).count()


def keep_in_quarantine(lake: LoggedLake, key: str, value: str) -> None:
    """Put a record of a source into quarantine."""
    record = lake.spark.sql(
        f"""SELECT 'bank' AS topic, 0 AS partition, 99L AS offset, current_timestamp() AS timestamp,
        CAST('{key}' AS binary) AS key, CAST('{value}' AS binary) AS value,
        '{J}' AS source, 'no/such' AS named_source, 'source' AS reason"""
    )
    quarantine.keep(lake.spark, lake.file, "bank", record)


def files_with(lake: LoggedLake, *texts: str) -> list[str]:
    """Return the files of the lake in which one of the texts is."""
    found = []
    for path in Path(lake.file.root).rglob("*"):
        if not path.is_file():
            continue
        content = path.read_bytes()
        if path.suffix == ".parquet":
            content += str(pq.read_table(path).to_pylist()).encode()
        if any(text.encode() in content for text in texts):
            found.append(str(path.relative_to(lake.file.root)))
    return sorted(found)


def add_tombstone(feed: LoggedFeed) -> None:
    """Write what follows the delete of a row."""
    feed.waiting.append(("bank", feed._partition, feed.offset, datetime.now(UTC), b'{"id":7}', None))
    feed.offset += 1


def run(lake: LoggedLake, *keys: str, **options: Any) -> EraseReport:
    """Erase rows of one source."""
    options = {"sources": [J], "reason": "request 12"} | options
    return erase.erase(lake.spark, lake.file, "bank", ACCOUNTS, keys, **options)
