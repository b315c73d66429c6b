"""Spark Structured Streaming, without Headrace's lake: a table's changes by from_json, and its rows as the newest of each key.

spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 spark_rows.py --bootstrap kafka:9092 \
    --topic bank.public.accounts --key id --columns "id INT, owner STRING, balance STRING" --folder /srv/accounts

Takes what is new, and ends; run it again for more. Rows are right where records have whole rows: REPLICA IDENTITY FULL, or no
large columns.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f


def changes(spark: SparkSession, bootstrap: str, topic: str, columns: str) -> DataFrame:
    """Return the changes in a topic, as a stream."""
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    read = read.option("startingOffsets", "earliest").option("kafka.isolation.level", "read_committed")
    row = f"STRUCT<{columns}>"
    form = f"op STRING, before {row}, after {row}, source STRUCT<name: STRING, position: STRING>"
    # A tombstone has no value, and comes out without `op`.
    value = f.from_json(f.col("value").cast("string"), form)
    return read.load().select(f.col("offset"), value.alias("value")).select("offset", "value.*").where("op is not null")


def rows(kept: DataFrame, key: list[str]) -> DataFrame:
    """Return the rows that changes make: the newest of each key and source, but for those that were removed since."""
    removed = kept.where("op = 't'").groupBy("source.name").agg(f.max("source.position").alias("emptied"))
    present = kept.where("op <> 't'").select(
        "source", "offset", "op", f.coalesce("after", "before").alias("row"), "after"
    )
    # Where a key changed, its old one has lost its row.
    differs = [f"before.{name} <> after.{name}" for name in key]
    moved = kept.where(f"op = 'u' and before is not null and ({' or '.join(differs)})").select(
        "source", "offset", f.lit("d").alias("op"), f.col("before").alias("row"), f.lit(None).alias("after")
    )
    whole = present.unionByName(moved.withColumn("after", f.col("after").cast(present.schema["after"].dataType)))
    newest = Window.partitionBy("source.name", *(f"row.{name}" for name in key)).orderBy(
        f.desc("source.position"), f.desc("offset")
    )
    last = whole.withColumn("number", f.row_number().over(newest)).where("number = 1 and op <> 'd'")
    last = last.withColumn("name", f.col("source.name")).join(removed, "name", "left")
    return last.where("emptied is null or source.position > emptied").select("after.*")


def main() -> None:
    """Take what is new in the topic, and write the table's rows."""
    options = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap", "topic", "key", "columns", "folder"):
        options.add_argument(f"--{name}", required=True)
    arguments = options.parse_args()
    spark = SparkSession.builder.appName("rows").getOrCreate()
    stream = changes(spark, arguments.bootstrap, arguments.topic, arguments.columns).writeStream.format("parquet")
    stream = stream.option("path", f"{arguments.folder}/changes").option(
        "checkpointLocation", f"{arguments.folder}/checkpoint"
    )
    stream.trigger(availableNow=True).start().awaitTermination()
    kept = spark.read.parquet(f"{arguments.folder}/changes")
    rows(kept, arguments.key.split(",")).write.mode("overwrite").json(
        f"{arguments.folder}/rows", ignoreNullFields=False
    )


if __name__ == "__main__":
    main()
