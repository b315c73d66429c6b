"""A consumer as its users write it, run by the Python of `.setup/registry`: `reader.py BOOTSTRAP REGISTRY TOPIC`.

Reads a topic to its end with confluent-kafka's deserializers, and prints a line of JSON for each record, bytes in hexadecimal.
"""

import json
import sys
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext


def main(bootstrap: str, registry: str, topic: str) -> None:
    """Print the records."""
    deserialize = AvroDeserializer(SchemaRegistryClient({"url": registry}))
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed",
                         "enable.partition.eof": True, "auto.offset.reset": "earliest", "enable.auto.commit": False})  # fmt: skip
    places = [TopicPartition(topic, number, 0) for number in consumer.list_topics(topic).topics[topic].partitions]
    consumer.assign(places)
    ended = 0
    while ended < len(places):
        record = consumer.poll(30)
        if record is None:
            raise SystemExit("no record and no end of a partition came within 30 s")
        if record.error():
            ended += 1
            continue
        key, value = (
            deserialize(data, SerializationContext(topic, field))
            for data, field in ((record.key(), MessageField.KEY), (record.value(), MessageField.VALUE))
        )
        print(json.dumps([key, value], default=_text))
    consumer.close()


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


main(*sys.argv[1:])
