"""The same without Spark: one process, the state in its memory.

    python examples/fraud/plain.py --bootstrap kafka:9092 --topic cards --alerts alerts

It commits no offsets. At its start it reads the records of the last day again, which rebuilds the state, and sends their alerts
again, which branches know by their ids. Its limits: one process reads all partitions; the candidates of a day are in memory; a
start takes as long as reading a day's records; a record that waited for longer than a day before it reached Kafka is compared
with what came after it alone.
"""

import argparse
import time
from collections import defaultdict

import rule
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition


def main() -> None:
    """Find frauds until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bootstrap", "topic", "alerts"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    servers = {"bootstrap.servers": options.bootstrap}
    # Nothing of an aborted transaction. The partitions are assigned below: it is a member of no group.
    reading = {
        "group.id": "fraud",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 20,
    }
    consumer = Consumer(servers | reading)
    producer = Producer(servers | {"enable.idempotence": True, "linger.ms": 0})
    since = int(time.time() * 1000) - rule.KEPT_MS
    partitions = consumer.list_topics(options.topic, timeout=30).topics[options.topic].partitions
    consumer.assign(consumer.offsets_for_times([TopicPartition(options.topic, each, since) for each in partitions], 30))
    transactions: defaultdict[str, dict[str, tuple[int, rule.Transaction]]] = defaultdict(dict)
    while True:
        for record in consumer.consume(500, timeout=0.05):
            if record.error():
                raise KafkaException(record.error())
            new = rule.candidate(record.value())
            if new is None or new.id in transactions[new.card]:
                continue
            arrived = record.timestamp()[1]
            mine = {number: each for number, each in transactions[new.card].items() if each[0] > arrived - rule.KEPT_MS}
            for _, old in mine.values():
                if rule.is_fraud(new, old):
                    key, value = rule.alert(new, old)
                    producer.produce(options.alerts, value, key, on_delivery=check)
            transactions[new.card] = mine | {new.id: (arrived, new)}
        producer.poll(0)


def check(error: KafkaError | None, _record: object) -> None:
    """End when an alert cannot be written: the next start sends it again."""
    if error is not None:
        raise KafkaException(error)


if __name__ == "__main__":
    main()
