"""Bronze's rows of Kafka records: as they came, with the envelope's fields that everything later is chosen by beside them.

Fails, by its place in Kafka, at a value that is no record of ours (docs/records.md). Called by bronze.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from spark_jobs.failures import corrupt

_POSITION_LENGTH = 34
_ENVELOPE = (
    "source struct<name: string, schema: string, `table`: string, ts_ms: bigint, position: string>, op string, "
    "unchanged array<string>, transaction struct<id: string, last: boolean>"
)
COLUMNS = [
    *("topic", "partition", "offset", "timestamp", "key", "value"),
    *("source", "table", "op", "position", "transaction_id", "last", "commit_time"),
    *("partial", "rekeyed", "loaded_at"),
]


def rows(source: DataFrame) -> DataFrame:
    """Return bronze's rows of Kafka records: as they came, with the envelope's fields beside them."""
    value = F.col("value").cast("string")
    return (
        source.select(
            *("topic", "partition", "offset", "timestamp"),
            F.col("key").cast("string").alias("key"),
            value.alias("value"),
            # One parse with a small schema: other fields are skipped, not built.
            F.from_json(value, _ENVELOPE).alias("envelope"),
        )
        .select(
            *("topic", "partition", "offset", "timestamp", "key", "value"),
            F.col("envelope.source.name").alias("source"),
            # Logical messages and the ends of transactions name no table.
            F.when(
                F.col("envelope.source.table") != "",
                F.concat("envelope.source.schema", F.lit("."), "envelope.source.table"),
            ).alias("table"),
            F.col("envelope.op").alias("op"),
            _position(F.col("envelope.source.position")).alias("position"),
            F.col("envelope.transaction.id").alias("transaction_id"),
            F.coalesce(F.col("envelope.transaction.last"), F.lit(False)).alias("last"),
            F.timestamp_millis(F.col("envelope.source.ts_ms")).alias("commit_time"),
            F.col("envelope.unchanged").isNotNull().alias("partial"),
            _rekeyed(F.col("envelope.op"), F.col("value")).alias("rekeyed"),
        )
        .withColumn("loaded_at", F.current_timestamp())
    )


def _position(position: Column) -> Column:
    """Return the position; fail at a value that is not a record of ours, by its place. A tombstone has none."""
    return F.when(F.length(position) == _POSITION_LENGTH, position).when(
        F.col("value").isNotNull(), corrupt("envelope")
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
