"""Kafka's records in Avro, as the JSON that their edges would have written: everything behind is the same for both.

Only records in Avro take a turn through Python; a stream in which none was met has no such turn. A schema that is not known yet
fails the reading of a batch; it is looked up in the registry then, noted, and the batch is read again. A record whose schema is
another table's, or that is not of its schema, fails by its place in Kafka, or is refused (`divided`): its sender decided what is
in it.
"""

import logging
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from pathlib import Path

from pyspark import SparkContext, cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from pyspark.sql.pandas.utils import require_minimum_pyarrow_version

from headrace.configuration.lake import LakeFile
from headrace.errors import NeedsOperator
from headrace.registry.client import NotThere, RegistryClient
from headrace.schemas import avro_json
from headrace.schemas.avro_json.envelope import Reader, reader_of
from spark_jobs.bronze import envelope
from spark_jobs.bronze.envelope import records
from spark_jobs.errors import AVRO, AVRO_FORM, mark
from spark_jobs.kafka.topics import Batch
from spark_jobs.state import schema_texts

_log = logging.getLogger(__name__)

#: What a failure has when a schema is missing: of a stream that was JSON until now, and of one that was not.
_UNKNOWN = "headrace-unknown-schema"
_UNREAD = re.compile(rf'{_UNKNOWN}|what "{AVRO}"')
#: Names that the records of a partition may have, by partition.
Sources = Mapping[int, tuple[str, ...]]
_RECORD = "struct<key: binary, value: binary>"

# Executors need not have our packages: the reader goes with the plan.
cloudpickle.register_pickle_by_value(avro_json)


def rows_of(
    spark: SparkSession, lake: LakeFile, stream: str, batch: Batch, sources: Sources, *, group: str = ""
) -> DataFrame:
    """Return bronze's rows of Kafka's committed records in some ranges, as `envelope.rows` has them.

    Reading fails where a schema is not known yet: see `is_unread` and `learn`.
    """
    frame, schemas = _read(spark, lake, stream, batch, group)
    return envelope.rows(as_json(frame, schemas), sources)


def divided(
    spark: SparkSession, lake: LakeFile, stream: str, batch: Batch, sources: Sources, *, group: str = ""
) -> tuple[DataFrame, DataFrame]:
    """Return the same, and the records that are refused, as `envelope.divided` has them."""
    frame, schemas = _read(spark, lake, stream, batch, group)
    return envelope.divided(as_json(frame, schemas, keeps=True), sources, avro=bool(schemas))


def _read(
    spark: SparkSession, lake: LakeFile, stream: str, batch: Batch, group: str
) -> tuple[DataFrame, Mapping[int, str]]:
    """Return Kafka's records in some ranges, and the schemas that are known."""
    return records(spark, lake.kafka, batch, group=group), schema_texts.read_avro(spark, lake, stream)


def as_json(source: DataFrame, schemas: Mapping[int, str], *, keeps: bool = False) -> DataFrame:
    """Return Kafka's records with keys and values in JSON; one that is not of its schema fails, or `keeps` its form."""
    if not schemas:
        return source
    wrong = None if keeps else mark("{topic}", "{partition}", "{offset}", AVRO_FORM)
    reader = Reader(dict(schemas), wrong, _UNKNOWN)
    arrow = _has_arrow(source.sparkSession.sparkContext)
    read = _by_arrow(reader) if arrow else F.udf(reader, _RECORD, useArrow=False)
    # Of a record in JSON Python has nulls: it stays as it is.
    given = (F.when(_is_avro(), F.col(name)) for name in ("topic", "partition", "offset", "key", "value"))
    frame = source.withColumn("_json", read(*given))
    own = {name: F.when(_is_avro(), F.col("_json")[name]).otherwise(F.col(name)) for name in ("key", "value")}
    return frame.select(*(own.get(name, F.col(name)).alias(name) for name in source.columns))


def _is_avro() -> Column:
    """Return whether a record's key or value is in Avro."""
    marks = (F.coalesce(F.col(name).startswith(F.lit(b"\0")), F.lit(False)) for name in ("key", "value"))
    return reduce(or_, marks)


def _has_arrow(context: SparkContext) -> bool:
    """Whether tasks can have Arrow, which takes a third of the time: where they run here, with the Python of this process."""
    if not re.match(r"local(\[|$)", context.master):
        return False
    python = shutil.which(context.pythonExec)
    if python is None or Path(python).parent != Path(sys.executable).parent:
        return False
    try:
        require_minimum_pyarrow_version()
    except ImportError:
        return False
    return True


def _by_arrow(reader: Reader) -> Callable[..., Column]:
    """Return a reader's function of columns that goes over Arrow's arrays."""
    import pyarrow as pa

    structure = pa.struct({"key": pa.binary(), "value": pa.binary()})

    # Spark takes the kind of function from its annotations.
    def read(*columns: pa.Array) -> pa.Array:
        if all(column.null_count == len(column) for column in columns):
            return pa.nulls(len(columns[0]), structure)
        keys, values = [], []
        for record in zip(*(column.to_pylist() for column in columns), strict=True):
            key, value = reader(*record)
            keys.append(key)
            values.append(value)
        return pa.StructArray.from_arrays(
            [pa.array(keys, pa.binary()), pa.array(values, pa.binary())], fields=[*structure]
        )

    function: Callable[..., Column] = F.arrow_udf(read, _RECORD)
    return function


def is_unread(error: Exception) -> bool:
    """Whether reading failed because a schema is not known yet."""
    return bool(_UNREAD.search(str(error)))


def learn(spark: SparkSession, lake: LakeFile, stream: str, batch: Batch) -> None:
    """Look up and note the schemas of records in some ranges that are not noted.

    Raises NeedsOperator when the lake's file has no registry, and when the registry refuses or does not have one of them;
    NotConnected when it does not answer. Records of a schema that no edge writes are refused.
    """
    if lake.registry is None:
        raise NeedsOperator(
            f'bronze {stream}: its records are in Avro ([records] format = "avro" at an edge), and {lake.path} has no [registry]',
            hint="Add [registry] with the url of the schema registry that the bridge's file has.",
        )
    ids = F.array(_id("key"), _id("value"))
    source = records(spark, lake.kafka, batch)
    numbers = {row[0] for row in source.select(F.explode(F.array_compact(ids))).distinct().collect()}
    if not (unknown := sorted(numbers - schema_texts.renew_avro(spark, lake, stream).keys())):
        return
    client = RegistryClient(lake.registry)
    schema_texts.keep_avro(
        spark, lake, stream, {number: _look_up(client, lake.registry.url, stream, number) for number in unknown}
    )


def _look_up(client: RegistryClient, url: str, stream: str, number: int) -> str:
    try:
        text = client.schema(number)
    except NotThere as error:
        raise NeedsOperator(
            f"bronze {stream}: records were written with schema {number}, which the schema registry at {url} does not have",
            hint="Is it the registry of the bridge's file? If it was emptied, restore it.",
        ) from error
    try:
        reader_of(text)
    except ValueError:
        # An edge may register any schema for a table that only it has.
        _log.warning(
            "bronze %s: schema %d of the schema registry at %s was not written by an edge: its records are quarantined",
            *(stream, number, url),
        )
    return text


def _id(name: str) -> Column:
    """Return the id of the schema that a key or value begins with; null for JSON."""
    data = F.col(name)
    number = F.conv(F.hex(F.substring(data, 2, 4)), 16, 10).cast("int")
    return F.when(F.hex(F.substring(data, 1, 1)) == "00", number)
