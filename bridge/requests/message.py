"""A request as an AMQP message: the bytes of its Kafka record, with a name and an expiry time for what is in transit."""

from bridge.deliveries.pending import Entry
from headrace.amqp.transport import Message, symbol
from headrace.requests.message import CONTENT_TYPE, decode_request

#: By how much longer than its deadline a broker keeps a request, in seconds: the edge reports what was late.
_EXPIRY_SECONDS = 60.0


def encode(entry: Entry, _name: str) -> bytes:
    """Return a request as the bytes of a durable message."""
    body = entry.record.value or b""
    request = decode_request(body)
    message = Message(
        body=body,
        # Binary goes as data.
        inferred=True,
        durable=True,
        id=request.id,
        address=entry.address,
        subject=request.kind,
        content_type=symbol(CONTENT_TYPE),
        delivery_count=entry.sends - 1,
        expiry_time=request.deadline / 1000 + _EXPIRY_SECONDS,
        properties={"version": request.version, "source": request.source, "caller": request.caller},
    )
    encoded: bytes = message.encode()
    return encoded
