"""What Kafka has beyond a stream's bronze: committed records, as the rows that bronze will have. Used by live rows.

Guarantees that the rows begin exactly where bronze ends, and stay the same however often they are read. Where that cannot be, or
takes a query too long, there is nothing beyond bronze: another topic, records that retention took, a stream with a topic for
each table (only a load finds up to where all topics are complete), more than a few seconds of records, a Kafka that does not
answer. Live rows are older then, and not wrong.
"""

import logging
from time import monotonic

from pyspark.sql import DataFrame, SparkSession

from headrace.configuration.lake import LakeFile
from headrace.errors import ReplicationError
from spark_jobs.bronze import avro_records
from spark_jobs.errors import explained
from spark_jobs.kafka import client, requests
from spark_jobs.state.offsets import Progress

_log = logging.getLogger(__name__)

#: Offset of the first record and the one after the last, by partition.
Beyond = dict[int, tuple[int, int]]

#: Records that a query reads from Kafka, at most.
_MOST = 50_000
#: Seconds in which Kafka has to answer, and for which it is not queried again when it did not.
_PATIENCE, _REST = 5.0, 60.0
#: Until when Kafka is not queried for a stream, in monotonic seconds.
_resting: dict[tuple[str, str], float] = {}


def beyond(spark: SparkSession, lake: LakeFile, stream: str, held: Progress) -> Beyond:
    """Return which records come after those that bronze holds; empty where there are none, or none that a query can read."""
    place = (lake.kafka.bootstrap, stream)
    if lake.stream(stream).topic_per_table or monotonic() < _resting.get(place, 0.0):
        return {}
    try:
        topic = client.describe(lake.kafka, lake.topic(stream), patience=_PATIENCE)
    except ReplicationError as error:
        _resting[place] = monotonic() + _REST
        _log.warning("live rows of stream %s are those of bronze alone: %s", stream, error.message)
        return {}
    known = held.of(topic.name)
    follows = known.id == topic.id and not requests.gaps(known.offsets, topic)
    found = {p: (known.offsets.get(p, 0), end) for p, end in topic.ends.items() if end > known.offsets.get(p, 0)}
    few = sum(end - start for start, end in found.values()) <= _MOST
    return found if found and follows and few and _readable(spark, lake, stream, found) else {}


def read(spark: SparkSession, lake: LakeFile, stream: str, found: Beyond) -> DataFrame:
    """Return the rows of these records, without the time at which they were loaded."""
    return avro_records.rows_of(spark, lake, stream, {lake.topic(stream): found})


def _readable(spark: SparkSession, lake: LakeFile, stream: str, found: Beyond) -> bool:
    """Whether the schemas of the records are known, where they may be in Avro."""
    if lake.registry is None:
        return True
    try:
        with explained(f"live rows of stream {stream}"):
            avro_records.learn(spark, lake, stream, {lake.topic(stream): found})
    except ReplicationError as error:
        _resting[lake.kafka.bootstrap, stream] = monotonic() + _REST
        _log.warning("live rows of stream %s are those of bronze alone: %s", stream, error.message)
        return False
    return True
