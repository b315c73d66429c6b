"""Kafka's records, and bronze's rows of them: as they came, with the fields of their envelope that all later is chosen by.

A value that is no record of ours (docs/records.md), and a record that names another source than that of its partition, fails by
its place in Kafka, or is kept apart. Called by bronze and its replay.

A record's envelope read from the record's end, where our edges write it, without parsing the row ahead of it.

    {"before":B,"after":A,"source":{"version":…,"connector":…,"name":…,"ts_ms":…,"snapshot":…,"db":…,"schema":…,"table":…,
    …,"position":…},"op":…,"ts_ms":…,"transaction":{"id":…,"total_order":…,"last":true}}

The end is cut at its commas, and every piece must be where it is there, from the source to the record's last brace: inside
a row the quotes of such text would be escaped. A value of any other form is not plain, and its envelope is parsed as JSON,
which costs several times as much. Called by envelope.py.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.kafka import KafkaConnection
from spark_jobs.errors import AVRO, AVRO_FORM, corrupt
from spark_jobs.kafka.topics import Batch, bounds, partitions

#: Whether a record was read here; otherwise none of the other columns counts.
PLAIN = "plain"
_LAST = ',"last":true}}'
#: Bytes at the end that hold the source, unless its names are very long.
_BYTES = 512
#: Pieces from the end: of PostgreSQL's source block the table's name is the eighth, of MariaDB's and MySQL's the eleventh.
_TRANSACTION, _READ, _OP, _POSITION = -2, -3, -4, -5
_TABLE = (-8, -11)
#: From the table's name back.
_SCHEMA, _COMMITTED, _NAME, _SOURCE, _AHEAD, _BEFORE = -1, -4, -5, -7, -8, -9
_HEADS = {
    "transaction": '"transaction":{"id":"',
    "read": '"ts_ms":',
    "op": '"op":"',
    "position": '"position":"',
    "table": '"table":"',
    "schema": '"schema":"',
    "committed": '"ts_ms":',
    "name": '"name":"',
}


def pieces(value: Column) -> list[Column]:
    """Return the pieces of a record's end, as columns next to the record; `value` is binary."""
    last = value.cast("string").endswith(_LAST)
    upto = F.octet_length(value) - F.when(last, len(_LAST)).otherwise(0)
    end = F.substring(value, F.greatest(upto - _BYTES, F.lit(0)) + 1, F.least(upto, F.lit(_BYTES)))
    return [F.split(end.cast("string"), ",").alias("_pieces"), last.alias("last")]


def read(records: DataFrame) -> DataFrame:
    """Return the records with the fields of their ends, and whether these count."""
    near, far = (_piece(F.lit(place)).startswith(_HEADS["table"]) for place in _TABLE)
    placed = records.withColumn("_table", F.when(near, _TABLE[0]).when(far, _TABLE[1]))
    table = F.col("_table")
    pieces = placed.select(
        *(column for column in records.columns if column != "_pieces"),
        _piece(F.lit(-1)).alias("_order"),
        *(
            _piece(place).alias(f"_{name}")
            for name, place in {
                "transaction": F.lit(_TRANSACTION),
                "read": F.lit(_READ),
                "op": F.lit(_OP),
                "position": F.lit(_POSITION),
                "table": table,
                "schema": table + _SCHEMA,
                "committed": table + _COMMITTED,
                "name": table + _NAME,
                "source": table + _SOURCE,
                "ahead": table + _AHEAD,
                "before": table + _BEFORE,
            }.items()
        ),
    )
    return pieces.select(
        *(column for column in records.columns if column != "_pieces"),
        F.coalesce(_plain(), F.lit(False)).alias(PLAIN),
        _inside("name", 1).alias("source_name"),
        _inside("schema", 1).alias("schema_name"),
        _inside("table", 1).alias("table_name"),
        _inside("op", 1).alias("op"),
        _inside("position", 2).alias("place"),
        _inside("transaction", 1).alias("transaction_id"),
        _inside("committed", 0).try_cast("bigint").alias("ts_ms"),
        # Names of columns that the log did not carry are directly before the source.
        F.col("_ahead").endswith("]").alias("partial"),
    )


def _piece(place: Column) -> Column:
    return F.try_element_at("_pieces", place)


def _inside(name: str, after: int) -> Column:
    """Return what a piece holds behind its head, without so many characters at its end."""
    # As bytes: a text is counted from its beginning, character by character, for each cut.
    piece, head = F.col(f"_{name}").cast("binary"), len(_HEADS[name])
    return F.substring(piece, F.lit(head + 1), F.octet_length(piece) - (head + after)).cast("string")


def _plain() -> Column:
    """Return whether every piece is where our edges' records have it, and no name holds an escape.

    A piece whose next one begins with its own quote has ended with one: its end needs no further check.
    """
    value = F.col("value")
    condition = value.startswith('{"before":') & F.col("_source").startswith('"source":{"version":"')
    for name, head in _HEADS.items():
        condition &= F.col(f"_{name}").startswith(head)
    condition &= F.col("_table").endswith('"')
    condition &= F.col("_position").endswith('"}') & F.col("_order").startswith('"total_order":')
    condition &= F.col("last") | F.col("_order").endswith("}}")
    names = F.concat(*(f"_{name}" for name in ("name", "schema", "table", "transaction")))
    condition &= ~names.contains("\\")
    # What was too large is listed between the names of columns and the source; the first piece may be the end of one.
    too_large = F.when(F.col("_before").isNull(), value.contains(',"too_large":{')).otherwise(
        F.col("_ahead").startswith('"sha256":')
    )
    return condition & F.col("_ahead").isNotNull() & ~too_large


#: Most records of a partition that one task reads, so that a topic of one partition keeps all cores busy.
_RECORDS_PER_TASK = 250_000
#: Spark requests both ends of a partition after each poll, of 500 records by default: a seventh of a load's time.
_LARGE_POLLS = {"kafka.max.poll.records": "10000", "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024)}
#: A position, and one whose commit has more than 64 bits.
_FORM = r"\A[0-9a-f]{8}/([0-9a-f]{16}|x(?!0{16})[0-9a-f]{32})/[0-9a-f]{8}\z"
#: Seconds by which an epoch, a source's clock at its beginning, may be ahead of when a bridge wrote the record: as at the bridge.
_EPOCH_AHEAD = 2 * 86_400
#: Milliseconds of 9999 years, and those before 1970 of the year 1: what all who read the lake have.
_TIMES = (-62_135_596_800_000, 253_402_300_799_999)
#: Why a record is refused (errors.py), and the names of the columns with that and with the source of its partition.
_NO_RECORD, _FOREIGN = "envelope", "source"
_REASON, _OWNER = "_reason", "_owner"
_REFUSED = re.compile(rf'what "({_NO_RECORD}|{_FOREIGN}|{AVRO_FORM})"')
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


def rows(source: DataFrame, sources: Mapping[int, tuple[str, ...]] | None = None) -> DataFrame:
    """Return bronze's rows of Kafka records, but for when they are loaded: as they came, with the envelope's fields.

    `sources` has the names that records of a partition may have, where these are known. Reading fails at another one
    (`is_refused`).
    """
    wrong, position = F.col(_REASON), F.col("position")
    failing = (
        F.when(wrong.isNull(), position).when(wrong == _NO_RECORD, corrupt(_NO_RECORD)).otherwise(corrupt(_FOREIGN))
    )
    return _read(source, sources or {}).withColumn("position", failing).drop(_REASON, _OWNER)


def divided(
    source: DataFrame, sources: Mapping[int, tuple[str, ...]], *, avro: bool = False
) -> tuple[DataFrame, DataFrame]:
    """Return bronze's rows, and the records that are refused: as they came, with the reason and the partition's source.

    `avro`: what is in Avro still is not of its schema, so it is refused; otherwise reading fails there (errors.AVRO).
    """
    frame = _read(source, sources, avro=avro)
    refused = frame.filter(F.col(_REASON).isNotNull()).select(
        *("topic", "partition", "offset", "timestamp", "key", "value"),
        F.col(_OWNER).alias("source"),
        F.col("source").alias("named_source"),
        F.col(_REASON).alias("reason"),
    )
    return frame.filter(F.col(_REASON).isNull()).drop(_REASON, _OWNER), refused


def is_refused(error: Exception) -> bool:
    """Whether reading failed at a record that is refused."""
    return bool(_REFUSED.search(str(error)))


def _read(source: DataFrame, sources: Mapping[int, tuple[str, ...]], *, avro: bool = False) -> DataFrame:
    """Return bronze's rows with the reason why a record is refused, null for most, and the source of its partition."""
    value = F.col("value").cast("string")
    avro_key, avro_value = (F.coalesce(F.col(it).startswith("\0"), F.lit(False)) for it in ("key", "value"))
    # A record in Avro is so in both parts; a tombstone has its key alone.
    is_unread = avro_value | (avro_key & F.col("value").isNull())
    refused_form = (avro_key | avro_value) if avro else (avro_key & ~is_unread)
    is_of_time = F.coalesce(F.col("ts_ms").between(*_TIMES), F.lit(True))
    # What has no operation and is about a table describes it.
    is_change = F.col("op").isNotNull() | (F.col("table_name") == "") | F.col("value").contains('"tableChanges"')
    is_ours = _is_position(F.col("place"), F.col("timestamp")) & is_of_time & F.coalesce(is_change, F.lit(True))
    reason = F.when(refused_form, AVRO_FORM).otherwise(_reason(is_ours, F.col("source_name"), _owners(sources)))
    records = source.select(
        *("topic", "partition", "offset", "timestamp"),
        F.col("key").cast("string").alias("key"),
        value.alias("value"),
        *pieces(F.col("value")),
    )
    plain = F.col(PLAIN)
    frame = read(records).withColumn(
        # One parse with a small schema, of values that do not end as our edges write them: other fields are skipped, not built.
        "envelope",
        F.from_json(F.when(~plain, F.col("value")), _ENVELOPE, _JSON_OPTIONS),
    )
    columns = {name: F.when(plain, F.col(name)).otherwise(slow) for name, slow in _parse(F.col("envelope")).items()}
    return frame.select(
        *("topic", "partition", "offset", "timestamp", "key", "value"), *(c.alias(n) for n, c in columns.items())
    ).select(
        *("topic", "partition", "offset", "timestamp", "key", "value"),
        F.col("source_name").alias("source"),
        # Logical messages and the ends of transactions name no table.
        F.when(F.col("table_name") != "", F.concat("schema_name", F.lit("."), "table_name")).alias("table"),
        "op",
        (F.col("place") if avro else F.when(is_unread, corrupt(AVRO)).otherwise(F.col("place"))).alias("position"),
        "transaction_id",
        F.coalesce("last", F.lit(False)).alias("last"),
        F.timestamp_millis(F.when(is_of_time, F.col("ts_ms"))).alias("commit_time"),
        "partial",
        _rekeyed(F.col("op"), F.col("value")).alias("rekeyed"),
        reason.alias(_REASON),
        F.get(_owners(sources), -1 + F.size(_owners(sources))).alias(_OWNER),
    )


def ordered(batch: DataFrame) -> DataFrame:
    """Return bronze's rows in the order of its files: by table within each partition, with the moment of their loading."""
    # A number is part of the code that Spark generates, so each batch would compile its own. An array is passed by
    # reference, if it is folded; and its only element is not taken before there are rows.
    loaded_at = F.get(F.array(F.lit(datetime.now(UTC))), F.col("partition").bitwiseAND(0))
    # A hash sorts by radix and keeps the order of the log within a table. Sorted last, rows are not copied once more.
    return batch.withColumn("loaded_at", loaded_at).sortWithinPartitions(F.xxhash64("table"))


def _parse(envelope: Column) -> dict[str, Column]:
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


def _owners(sources: Mapping[int, tuple[str, ...]]) -> Column:
    """Return the names that a record's partition may have, the newest last; null where they are not known."""
    if not sources:
        return F.lit(None).cast("array<string>")
    listed = [list(sources[p]) if p in sources else None for p in range(max(sources) + 1)]
    # One literal, however many partitions there are.
    return F.get(F.from_json(F.lit(json.dumps(listed)), "array<array<string>>"), F.col("partition"))


def _is_position(text: Column, written_at: Column) -> Column:
    """Return whether a text is a position that a source can have: a later one would have all true ones passed over."""
    latest = F.lower(F.hex(F.unix_seconds(written_at) + _EPOCH_AHEAD))
    return text.rlike(_FORM) & (F.substring(text, 1, 8) <= latest)


def _reason(is_ours: Column, name: Column, owners: Column) -> Column:
    """Return why a record is refused; null for one that is not, and for a tombstone."""
    ours = F.coalesce(is_ours, F.lit(False)) & name.isNotNull()
    foreign = F.coalesce(~F.array_contains(owners, name), F.lit(False))
    return F.when(F.col("value").isNull(), F.lit(None)).when(~ours, _NO_RECORD).when(foreign, _FOREIGN)


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
