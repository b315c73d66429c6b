"""What a receiver reads of a delivery's message, and how it prints it.

Where messages wait for the one thread that handles them, and what is known of those that were accepted. Imports no AMQP.

Filled by the threads of connections, emptied by the command's own.
"""

import base64
import queue
from collections import OrderedDict
from typing import Any, NamedTuple, Protocol

import msgspec

from headrace import doors
from headrace.amqp.links import Most, Outcome, read_sections

#: The application properties of a record's headers begin so.
_HEADER = "header."
#: More is in no message of a bridge's: headers of a record of Kafka's.
_MOST = Most(1 << 14, 64 << 20)


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


def decode(data: bytes | bytearray) -> Received | None:
    """Return what a message holds; None when it is no AMQP message with a binary or text body."""
    try:
        sections = read_sections(data, _MOST)
        properties = sections.application or {}
        created = sections.created
        return Received(
            id="" if sections.id is None else str(sections.id),
            address=str(sections.address or ""),
            key=_key(properties.get("key")),
            timestamp=created if isinstance(created, int) else 0,
            headers={
                name.removeprefix(_HEADER): value
                for name, value in properties.items()
                if isinstance(name, str) and name.startswith(_HEADER)
            },
            body=sections.body.encode() if isinstance(sections.body, str) else sections.body,
            tombstone=bool(properties.get("tombstone")),
        )
    except Exception as error:  # noqa: BLE001 - whatever it raises, it is about this message alone.
        doors.MESSAGE.refuse(error)
        return None


def _key(value: Any) -> str | bytes | None:
    return value if value is None or isinstance(value, str | bytes) else str(value)


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


#: How many ids are remembered, so that what is sent again is not handled again.
_REMEMBERED = 100_000


class Settler(Protocol):
    """A connection that takes outcomes, from any thread."""

    def settle(self, ticket: int, outcome: Outcome) -> None:
        """Settle one delivery; nothing happens when the connection is gone."""


class Waiting(NamedTuple):
    """A message that waits, with what settles it."""

    connection: Settler
    ticket: int
    message: Received


class Inbox:
    """The messages of all connections, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Waiting | Exception] = queue.SimpleQueue()
        self._accepted: OrderedDict[str, None] = OrderedDict()

    def put(self, waiting: Waiting) -> None:
        """Add a message."""
        self._waiting.put(waiting)

    def fail(self, error: Exception) -> None:
        """Have `take` raise an error."""
        self._waiting.put(error)

    def take(self, seconds: float) -> Waiting | None:
        """Return the next message, None when none comes in time; raise what `fail` was given."""
        try:
            waiting = self._waiting.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(waiting, Exception):
            raise waiting
        return waiting

    def take_all(self) -> list[Waiting]:
        """Return all messages that wait now."""
        messages = []
        while (waiting := self.take(0)) is not None:
            messages.append(waiting)
        return messages

    def remember(self, message: Received) -> None:
        """Note that a message was accepted."""
        if message.id:
            self._accepted[message.id] = None
            if len(self._accepted) > _REMEMBERED:
                self._accepted.popitem(last=False)

    def contains(self, message: Received) -> bool:
        """Return whether a message was accepted before, by this process."""
        return message.id in self._accepted
