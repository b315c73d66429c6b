"""What a receiver reads of a delivery's message, and how it prints it."""

import base64
from typing import Any, NamedTuple

import msgspec

from headrace import doors
from headrace.amqp.transport import Message

#: The application properties of a record's headers begin so.
_HEADER = "header."


class Received(NamedTuple):
    """One message."""

    #: The sender's id for it, the same each time that it is sent; empty where it has none.
    id: str
    address: str
    key: str | bytes | None
    #: When the record was written, in milliseconds since 1970.
    timestamp: int
    headers: dict[str, Any]
    body: bytes
    tombstone: bool

    def line(self) -> bytes:
        """Return it as one line of JSON; the body as `json`, else as `text`, else as `base64`."""
        about = {
            "id": self.id,
            "address": self.address,
            "key": self.key if not isinstance(self.key, bytes) else {"base64": base64.b64encode(self.key).decode()},
            "timestamp": self.timestamp,
            "headers": {name: _plain(value) for name, value in self.headers.items()},
        }
        return msgspec.json.encode(about | ({"tombstone": True} if self.tombstone else _body(self.body)))


def decode(data: bytes) -> Received | None:
    """Return what a message holds; None when it is no AMQP message with a binary or text body."""
    message = Message()
    try:
        message.decode(data)
        body = message.body
        if body is None:
            # Proton reads as an empty message what is none.
            return None
        # Binary is a view into memory that Proton frees.
        body = body.encode() if isinstance(body, str) else bytes(body)
        properties = dict(message.properties or {})
        return Received(
            id="" if message.id is None else str(message.id),
            address=message.address or "",
            key=_key(properties.get("key")),
            timestamp=round((message.creation_time or 0) * 1000),
            headers={
                name.removeprefix(_HEADER): _copied(value)
                for name, value in properties.items()
                if name.startswith(_HEADER)
            },
            body=body,
            tombstone=bool(properties.get("tombstone")),
        )
    except Exception as error:  # noqa: BLE001 - whatever it raises, it is about this message alone.
        doors.MESSAGE.refuse(error)
        return None


def _copied(value: Any) -> Any:
    if isinstance(value, memoryview):
        return bytes(value)
    # AMQP has more types than JSON; a bridge sends none of them.
    return value if value is None or isinstance(value, str | bytes | bool | int | float) else str(value)


def _key(value: Any) -> str | bytes | None:
    found = _copied(value)
    return found if found is None or isinstance(found, str | bytes) else str(found)


def _plain(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _body(body: bytes) -> dict[str, Any]:
    try:
        # Decoded, so that it is one line whatever its form.
        return {"json": msgspec.json.decode(body)}
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return {"text": body.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}
