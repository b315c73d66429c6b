"""A batch of your own, next to Headrace's lake: it reads a stream from where its last batch ended, and each change counts once.

It keeps its place as every Kafka consumer does, as committed offsets of its own group, and its result (changes by source,
table and kind) in SQLite. The result is committed before the offsets are. When it dies between the two, the next batch reads
some records again; `source.position` names each change, and what was counted already is not counted twice.

    python examples/consumer/consumer.py --bootstrap kafka:9092 --topic bank --group daily-count --database count.sqlite
"""

import argparse
import json
import sqlite3
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

#: Records that are counted in one transaction of the database.
BATCH = 500


def main() -> None:
    """Read what came since the last batch, or go on until interrupted with --follow."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bootstrap", "topic", "group", "database"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--follow", action="store_true", help="go on when the end is reached")
    options = parser.parse_args()
    settings = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        # One batch at a time: the next one takes the place of one that died at once, and a second one is turned away.
        "group.instance.id": options.group,
        # Only what is committed, and nothing of a transaction that Headrace took back.
        "isolation.level": "read_committed",
        # The place moves when the result is safe, not by itself.
        "enable.auto.commit": False,
        # Where a group begins that has never read; afterwards its offsets decide.
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    }
    with closing(sqlite3.connect(options.database)) as database, closing(Consumer(settings)) as consumer:
        database.executescript(SCHEMA)
        consumer.subscribe([options.topic], on_assign=print_places)
        read(consumer, database, follow=options.follow)


SCHEMA = """
CREATE TABLE IF NOT EXISTS seen (source TEXT, position TEXT, PRIMARY KEY (source, position)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counts (source TEXT, name TEXT, op TEXT, changes INTEGER, PRIMARY KEY (source, name, op));
"""


def print_places(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Print from where each partition is read; a place that is not known yet is where the topic begins."""
    for place in consumer.committed(partitions, timeout=30):
        print(f"partition {place.partition}: from {place.offset if place.offset >= 0 else 'the beginning'}", flush=True)


def read(consumer: Consumer, database: sqlite3.Connection, *, follow: bool) -> None:
    """Count records until every partition's end is reached; with `follow`, and go on."""
    ended: set[int] = set()
    while True:
        records = []
        for record in consumer.consume(BATCH, timeout=1.0):
            if record.error() is None:
                ended.discard(record.partition())
                records.append(record)
            elif record.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - named so.
                ended.add(record.partition())
            else:
                raise KafkaException(record.error())
        if records:
            with database:
                for record in records:
                    count(database, record.value())
            consumer.commit(asynchronous=False)
        assigned = {place.partition for place in consumer.assignment()}
        if not follow and assigned and assigned <= ended:
            return


def count(database: sqlite3.Connection, value: bytes | None) -> None:
    """Count a change, unless it was counted already."""
    change = json.loads(value) if value is not None else {}
    # Schema records, and where transactions begin and end, have no `op`; `m` is a message, of no table.
    if change.get("op") in {"c", "u", "d", "r", "t"}:
        source = change["source"]
        new = database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (source["name"], source["position"]))
        if new.rowcount:
            database.execute(
                "INSERT INTO counts VALUES (?, ?, ?, 1) ON CONFLICT DO UPDATE SET changes = changes + 1",
                (source["name"], f"{source['schema']}.{source['table']}", change["op"]),
            )


if __name__ == "__main__":
    main()
