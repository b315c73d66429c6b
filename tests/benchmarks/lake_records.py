"""Records of docs/records.md by the million, made by Spark: changes of one table, in transactions of fifty.

Written to a topic, or put into bronze as its own load would put them, where Kafka is not what is measured.
"""

import json

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from spark_jobs.bronze import increment
from spark_jobs.bronze import load as bronze
from spark_jobs.bronze.envelope import ordered, rows
from spark_jobs.state import offsets
from spark_jobs.state.offsets import Held, Progress

SOURCE = "bench/lake"
_A_TRANSACTION = 50
_COLUMNS = {
    "id": "int8",
    "customer": "text",
    "state": "text",
    "total": "text",
    "placed_at": "timestamptz",
    "note": "text",
    "quantity": "int4",
    "paid": "bool",
}
_OPS = {"c": 20, "u": 4, "d": 1}


def changes(spark: SparkSession, first: int, count: int, keys: int = 0) -> DataFrame:
    """Return records, four inserts to one update or delete; with `keys`, updates of so many keys, spread evenly."""
    i = F.col("i")
    if keys:
        op, key = F.lit("u"), (i * 7919) % keys
    else:
        place = i % sum(_OPS.values())
        op = F.when(place < _OPS["c"], "c").when(place < _OPS["c"] + _OPS["u"], "u").otherwise("d")
        # Some row that came shortly before.
        key = F.when(op == "c", i).otherwise(i - 25)
    frame = spark.range(first, first + count, 1, max(2, count // 500_000)).withColumnRenamed("id", "i")
    frame = frame.withColumns({"op": op, "id": F.greatest(key, F.lit(0))})
    last = ((i % _A_TRANSACTION) == _A_TRANSACTION - 1) | (i == first + count - 1)
    return frame.select(
        F.concat(F.lit('{"id":'), F.col("id"), F.lit("}")).alias("key"),
        F.concat(_row(), _source(i), F.lit('"op":"'), "op", F.lit('","ts_ms":1769850900261,'), _end(i, last)).alias(
            "value"
        ),
    )


def schema_record() -> str:
    """Return the value that goes ahead of the first change."""
    columns = [
        {"name": n, "typeName": t, "length": None, "scale": None, "position": p, "optional": n != "id"}
        for p, (n, t) in enumerate(_COLUMNS.items(), 1)
    ]
    change = {"type": "CREATE", "id": "orders", "table": {"primaryKeyColumnNames": ["id"], "columns": columns}}
    source = {"version": "0", "connector": "postgresql", "name": SOURCE, "ts_ms": 1769850900250, "schema": "public"}
    source |= {"table": "orders", "position": f"692010c0/{0:016x}/{0:08x}"}
    return json.dumps({"source": source, "ts_ms": 1769850900261, "tableChanges": [change]}, separators=(",", ":"))


def to_topic(records: DataFrame, bootstrap: str, topic: str) -> None:
    """Write records to a topic's first partition, in order."""
    ordered = records.coalesce(1).withColumn("partition", F.lit(0))
    ordered.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()


def to_bronze(spark: SparkSession, lake: LakeFile, stream: str, records: DataFrame, first: int, count: int) -> None:
    """Append records to bronze as a load would; the first ones bring the table's schema record along."""
    kafka = records.select(
        F.lit(stream).alias("topic"),
        F.lit(0).alias("partition"),
        (F.monotonically_increasing_id() + first).alias("offset"),
        F.current_timestamp().alias("timestamp"),
        F.col("key").cast("binary").alias("key"),
        F.col("value").cast("binary").alias("value"),
    )
    if not first:
        schema = kafka.limit(1).withColumns(
            {"key": F.lit(None).cast("binary"), "value": F.lit(schema_record()).cast("binary")}
        )
        kafka = kafka.unionByName(schema)
    note = offsets.note(stream, Progress(topics={stream: Held({0: first + count + 1})}))
    writer = ordered(rows(kafka)).write.format("delta").mode("append").option("userMetadata", note)
    writer.option("delta.dataSkippingStatsColumns", "source,table,op,position").option(increment.FEED, "true").save(
        bronze.table_path(lake, stream)
    )


def _row() -> Column:
    new = F.concat(
        F.lit('{"id":'),
        "id",
        F.lit(',"customer":"customer number '),
        "i",
        F.lit('","state":"paid","total":"12.50","placed_at":"2026-01-31T09:15:00.25Z","note":"the order of '),
        "i",
        F.lit(', which goes out on Monday","quantity":3,"paid":true}'),
    )
    old = F.concat(F.lit('{"id":'), "id", F.lit("}"))
    gone = F.col("op") == "d"
    return F.concat(
        F.lit('{"before":'),
        F.when(gone, old).otherwise("null"),
        F.lit(',"after":'),
        F.when(gone, "null").otherwise(new),
    )


def _source(i: Column) -> Column:
    commit = F.lower(F.lpad(F.hex(F.floor(i / _A_TRANSACTION) + 1), 16, "0"))
    ordinal = F.lower(F.lpad(F.hex(i % _A_TRANSACTION), 8, "0"))
    return F.concat(
        F.lit(f',"source":{{"version":"0","connector":"postgresql","name":"{SOURCE}","ts_ms":1769850900250,'),
        F.lit('"snapshot":"false","db":"bench","schema":"public","table":"orders","txId":761,"lsn":27262976,'),
        F.lit('"position":"692010c0/'),
        *(commit, F.lit("/"), ordinal, F.lit('"},')),
    )


def _end(i: Column, last: Column) -> Column:
    return F.concat(
        F.lit('"transaction":{"id":"'),
        F.floor(i / _A_TRANSACTION).cast("string"),
        F.lit('","total_order":'),
        (i % _A_TRANSACTION + 1).cast("string"),
        F.when(last, ',"last":true}}').otherwise("}}"),
    )
