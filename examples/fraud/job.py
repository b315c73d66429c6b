"""The stream job: frauds among the transactions of all regions, with Spark Structured Streaming and its state.

    python examples/fraud/job.py --bootstrap kafka:9092 --topic cards --alerts alerts --checkpoint /srv/fraud

It reads what is committed, keeps for each card the few transactions that may be half of a fraud, and writes an alert for each
two that are one. After a kill it repeats the batch that was not completed, with the state of before: the same alerts come
again, with the same ids. It must run once at a time for a checkpoint.
"""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
# Spark's Python workers are of this environment, and import rule.py too.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))

import rule  # noqa: E402 - after the path.
from pyspark.sql import DataFrame, Row, SparkSession  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402, N812 - as everywhere.
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle  # noqa: E402

RECORD = """
    op string, source struct<name string, table string>, after struct<id string, card string, branch string, kind string,
    merchant string, place string, amount decimal(18, 2), made_at timestamp>
"""
STATE = "branch string, place string, amount string, at_ms long, is_test boolean"
SETTINGS = {
    # State of this kind is kept by RocksDB alone; a commit writes what changed.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Without it, batches without records would follow each other, to look for state that has expired.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # Of the state, fixed by a checkpoint's first batch: one writes a batch soonest, as long as its core can follow.
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class Pairs(StatefulProcessor):
    """Compares each new transaction of a card with those that are remembered."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: transactions of the card by id, each forgotten some time after it came."""
        self._transactions = handle.getMapState("transactions", "id string", STATE, ttlDurationMs=rule.KEPT_MS)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803 - Spark's.
        """Yield an alert for each fraud that a new row completes; a row that is known already completes none."""
        (card,) = key
        transactions = {
            number: rule.Transaction(number, card, *state) for (number,), state in self._transactions.iterator()
        }
        for row in rows:
            if row.id in transactions:
                continue
            new = rule.Transaction(row.id, card, row.branch, row.place, row.amount, row.at_ms, row.is_test)
            for old in transactions.values():
                if rule.is_fraud(new, old):
                    branch, body = rule.alert(new, old)
                    yield Row(key=branch, value=body)
            transactions[new.id] = new
            self._transactions.updateValue((new.id,), (new.branch, new.place, new.amount, new.at_ms, new.is_test))


def candidates(records: DataFrame) -> DataFrame:
    """Return the transactions that may be half of a fraud: rule.candidate, as a filter that needs no Python."""
    flagged = ", ".join(f"'{merchant}'" for merchant in rule.FLAGGED)
    changes = records.select(F.from_json(F.col("value").cast("string"), RECORD).alias("change"))
    return (
        changes.where("change.op IN ('c', 'r') AND change.source.table = 'transactions'")
        .selectExpr("concat(change.source.name, ':', change.after.id) AS id", "change.after.* EXCEPT (id)")
        .withColumn("is_test", F.expr(f"kind = 'payment' AND merchant IN ({flagged}) AND amount <= {rule.SMALL}"))
        .where(f"is_test OR (kind = 'withdrawal' AND amount >= {rule.LARGE})")
        .where("id IS NOT NULL AND card IS NOT NULL AND place IS NOT NULL AND made_at IS NOT NULL")
        .selectExpr(
            *("id", "card", "branch", "place", "CAST(amount AS string) AS amount"),
            *("unix_millis(made_at) AS at_ms", "coalesce(is_test, false) AS is_test"),
        )
    )


def frauds(transactions: DataFrame) -> DataFrame:
    """Return an alert for each fraud, as key and value of a Kafka record."""
    return transactions.groupBy("card").transformWithState(
        statefulProcessor=Pairs(),
        outputStructType="key string, value string",
        outputMode="Update",
        timeMode="ProcessingTime",
    )


def session() -> SparkSession:
    """Return a session: under spark-submit that of its arguments, else a local one with the jars of `headrace jars`."""
    builder = SparkSession.builder.appName("fraud")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        from headrace import process  # noqa: PLC0415 - not needed on a cluster.

        jars = sorted((process.jar_folder() / "spark").glob("*.jar"))
        # A few hundred records a batch do not repay the second compiler. Java unpacks RocksDB's library into TMPDIR too, and
        # a kill leaves it there.
        scratch = tempfile.gettempdir()
        options = [
            f"-Djava.io.tmpdir={scratch}",
            "-XX:TieredStopAtLevel=1",
            *(process.jvm_options(jars) if jars else ()),
        ]
        local = {
            "spark.master": "local[2]",
            "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
            "spark.driver.extraJavaOptions": " ".join(options),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": scratch,
            # On a local disk it takes a fraction of the time that Spark's usual one takes, several files a batch.
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
            ),
        }
        for name, value in local.items():
            builder = builder.config(name, value)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main() -> None:
    """Find frauds until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bootstrap", "topic", "alerts", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--every", default="200 milliseconds", help="the shortest time from batch to batch")
    parser.add_argument("--real-time", action="store_true", help="Spark's real-time mode, which 4.2 refuses with state")
    options = parser.parse_args()
    records = (
        session()
        .readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("subscribe", options.topic)
        # Nothing of a transaction that Headrace aborted.
        .option("kafka.isolation.level", "read_committed")
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = (
        frauds(candidates(records))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("topic", options.alerts)
        .option("checkpointLocation", options.checkpoint)
        .outputMode("update")
        .trigger(**({"realTime": "5 minutes"} if options.real_time else {"processingTime": options.every}))
    )
    query = writer.start()
    # Asked to end, it ends without a traceback: a batch that is cut off is repeated at the next start.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    query.awaitTermination()


if __name__ == "__main__":
    main()
