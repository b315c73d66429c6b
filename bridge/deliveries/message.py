"""A record as an AMQP message (docs/deliveries.md): id, address, what Kafka knows of it, and its value as the body."""

from bridge.deliveries.pending import Entry
from headrace.amqp.transport import Message, symbol

#: The application property of a record's header, by the header's name.
HEADER = "header."
_CONTENT_TYPE = "content-type"


def encode(entry: Entry, delivery: str) -> bytes:
    """Return a record as the bytes of a durable message; the body is the record's value, empty for a tombstone."""
    record = entry.record
    properties: dict[str, object] = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    if record.key is not None:
        properties["key"] = _text(record.key)
    if record.value is None:
        properties["tombstone"] = True
    properties |= {HEADER + name: None if value is None else _text(value) for name, value in record.headers}
    content_type = next((value for name, value in record.headers if name == _CONTENT_TYPE and value), b"")
    message = Message(
        body=record.value or b"",
        # Binary goes as data.
        inferred=True,
        durable=True,
        id=record.id,
        address=entry.address,
        subject=delivery,
        delivery_count=entry.sends - 1,
        creation_time=record.timestamp / 1000,
        properties=properties,
    )
    if content_type.isascii() and content_type:
        message.content_type = symbol(content_type.decode("ascii"))
    if record.key is not None and isinstance(key := _text(record.key), str):
        # A broker with several receivers keeps a group with one of them.
        message.group_id = key
    encoded: bytes = message.encode()
    return encoded


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
