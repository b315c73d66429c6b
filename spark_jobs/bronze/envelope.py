"""Kafka's records, and bronze's rows of them: as they came, with the fields of their envelope that all later is chosen by.

Fails, by its place in Kafka, at a value that is no record of ours (docs/records.md). Called by bronze and its replay.
"""

from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.kafka import KafkaConnection
from spark_jobs.bronze import envelope_fast_path
from spark_jobs.bronze.batches import Batch, bounds, partitions
from spark_jobs.errors import AVRO, corrupt

#: Most records of a partition that one task reads, so that a topic of one partition keeps all cores busy.
_RECORDS_PER_TASK = 250_000
#: Spark requests both ends of a partition after each poll, of 500 records by default: a seventh of a load's time.
_LARGE_POLLS = {"kafka.max.poll.records": "10000", "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024)}
_POSITION_LENGTH = 34
_ENVELOPE = (
    "source struct<name: string, schema: string, `table`: string, ts_ms: bigint, position: string>, op string, "
    "unchanged array<string>, transaction struct<id: string, last: boolean>"
)
#: Texts of any length: Spark's parser ends at 20 million characters otherwise.
_JSON_OPTIONS = {"maxStringLen": "2147483647"}
COLUMNS = [
    *("topic", "partition", "offset", "timestamp", "key", "value"),
    *("source", "table", "op", "position", "transaction_id", "last", "commit_time"),
    *("partial", "rekeyed", "loaded_at"),
]


def records(spark: SparkSession, connection: KafkaConnection, batch: Batch, *, group: str = "") -> DataFrame:
    """Return Kafka's committed records in some ranges; reading fails where Kafka does not have them.

    Readings with the same `group` use the same connections; nothing is committed for it.
    """
    reader = (
        spark.read.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in connection.java().items()})
        .options(**_LARGE_POLLS)
        .option("kafka.isolation.level", "read_committed")
        .option("failOnDataLoss", "true")
        .option("maxRecordsPerPartition", _RECORDS_PER_TASK)
        .option("assign", partitions(batch))
        .option("startingOffsets", bounds(batch, 0))
        .option("endingOffsets", bounds(batch, 1))
    )
    return (reader.option("kafka.group.id", group) if group else reader).load()


def rows(source: DataFrame) -> DataFrame:
    """Return bronze's rows of Kafka records, but for when they are loaded: as they came, with the envelope's fields."""
    value = F.col("value").cast("string")
    records = source.select(
        *("topic", "partition", "offset", "timestamp"),
        F.col("key").cast("string").alias("key"),
        value.alias("value"),
        *envelope_fast_path.pieces(F.col("value")),
    )
    plain = F.col(envelope_fast_path.PLAIN)
    known = envelope_fast_path.read(records).withColumn(
        # One parse with a small schema, of values that do not end as our edges write them: other fields are skipped, not built.
        "envelope",
        F.from_json(F.when(~plain, F.col("value")), _ENVELOPE, _JSON_OPTIONS),
    )
    found = {name: F.when(plain, F.col(name)).otherwise(slow) for name, slow in _parsed(F.col("envelope")).items()}
    return known.select(
        *("topic", "partition", "offset", "timestamp", "key", "value"), *(c.alias(n) for n, c in found.items())
    ).select(
        *("topic", "partition", "offset", "timestamp", "key", "value"),
        F.col("source_name").alias("source"),
        # Logical messages and the ends of transactions name no table.
        F.when(F.col("table_name") != "", F.concat("schema_name", F.lit("."), "table_name")).alias("table"),
        "op",
        _position(F.col("place")).alias("position"),
        "transaction_id",
        F.coalesce("last", F.lit(False)).alias("last"),
        F.timestamp_millis("ts_ms").alias("commit_time"),
        "partial",
        _rekeyed(F.col("op"), F.col("value")).alias("rekeyed"),
    )


def ordered(batch: DataFrame) -> DataFrame:
    """Return bronze's rows in the order of its files: by table within each partition, with the moment of their loading."""
    # A number is part of the code that Spark generates, so each batch would compile its own. An array is passed by
    # reference, if it is folded; and its only element is not taken before there are rows.
    loaded_at = F.get(F.array(F.lit(datetime.now(UTC))), F.col("partition").bitwiseAND(0))
    # A hash sorts by radix and keeps the order of the log within a table. Sorted last, rows are not copied once more.
    return batch.withColumn("loaded_at", loaded_at).sortWithinPartitions(F.xxhash64("table"))


def _parsed(envelope: Column) -> dict[str, Column]:
    return {
        "source_name": envelope["source"]["name"],
        "schema_name": envelope["source"]["schema"],
        "table_name": envelope["source"]["table"],
        "op": envelope["op"],
        "place": envelope["source"]["position"],
        "transaction_id": envelope["transaction"]["id"],
        "last": envelope["transaction"]["last"],
        "ts_ms": envelope["source"]["ts_ms"],
        "partial": envelope["unchanged"].isNotNull(),
    }


def _position(position: Column) -> Column:
    """Return the position; fail at a value that is not a record of ours, by its place. A tombstone has none."""
    return (
        F.when(F.octet_length(position) == _POSITION_LENGTH, position)
        .when(F.col("value").startswith("\0"), corrupt(AVRO))
        .when(F.col("value").isNotNull(), corrupt("envelope"))
    )


def _rekeyed(op: Column, value: Column) -> Column:
    """Return whether an update may have changed the key: it has an old row that does not begin with the record's key.

    True for some that did not (a whole old row whose key is not its first columns): silver then looks closer.
    """
    key = F.col("key").substr(F.lit(1), F.length("key") - 1)
    old = F.concat(F.lit('{"before":'), key)
    same = value.startswith(F.lit('{"before":null')) | (
        value.startswith(F.concat(old, F.lit(","))) | value.startswith(F.concat(old, F.lit("}")))
    )
    return (op == "u") & F.col("key").isNotNull() & ~same
