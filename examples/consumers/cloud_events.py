"""The CloudEvents SDK reads the events of a topic, and prints each as a line of JSON until nothing came for some seconds.

The edge's file has `[records] cloudevents = true`. Needs the packages cloudevents and confluent-kafka.

python cloud_events.py --bootstrap kafka:9092 --topic bank.public.accounts --type headrace.change.delete
"""

import argparse

from cloudevents.core.bindings.kafka import KafkaMessage, from_binary_event
from cloudevents.core.formats.json import JSONFormat
from confluent_kafka import Consumer


def main() -> None:
    """Read from the topic's beginning."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--bootstrap", required=True)
    options.add_argument("--topic", required=True)
    options.add_argument("--group", default="cloud-events")
    options.add_argument("--type", help="of the events to print; all without it")
    options.add_argument("--seconds", type=float, default=10)
    arguments = options.parse_args()
    consumer = Consumer({
        "bootstrap.servers": arguments.bootstrap,
        "group.id": arguments.group,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    })  # fmt: skip
    consumer.subscribe([arguments.topic])
    while (record := consumer.poll(arguments.seconds)) is not None:
        if record.error():
            raise SystemExit(str(record.error()))
        headers = {name: value for name, value in record.headers() or [] if value is not None}
        if "ce_specversion" not in headers:
            # A tombstone; in a stream's own topic a schema record, or where a transaction begins or ends.
            continue
        # A key in Avro is not text, which the SDK takes a key for.
        key = record.key() if headers["content-type"] == b"application/json" else None
        event = from_binary_event(KafkaMessage(headers=headers, key=key, value=record.value()))
        if arguments.type in {None, event.get_type()}:
            print(JSONFormat().write(event).decode())
    consumer.close()


if __name__ == "__main__":
    main()
