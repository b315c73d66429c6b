"""Messages and deliveries of links: what is read of a message, and what becomes of a delivery.

Senders and receivers are attached by `Loop.attach_sender` and `Loop.attach_receiver`. Nothing is sent settled and nothing is
accepted by itself. Called in the loop's thread.

Of a message its properties, application properties and body are read (AMQP 1.0, part 3.2). Proton makes Python's objects of
everything that a message holds, before anybody can look: lists in lists cost a hundred times what a batch costs, in the thread of
all sources. Here a value is a simple one, as the specification has it for both sections that are read; others are skipped by
their sizes, and no more than so many values are looked at.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

from headrace import doors
from headrace.amqp.transport import Condition, Delivery
from headrace.errors import CorruptInput

#: A sender has sent more than it was given credit for.
TRANSFER_LIMIT = "amqp:link:transfer-limit-exceeded"


class Most(NamedTuple):
    """What a section that is read may hold."""

    values: int
    bytes: int


#: For messages of ours: several times what they have.
OURS: Final = Most(64, 64 << 10)
#: The sections that may be ahead of the body: header, annotations of deliveries and of messages, properties, application's.
_PROPERTIES, _APPLICATION = 0x73, 0x74
_AHEAD: Final = range(0x70, 0x75)
#: The sections of a body, of bytes and of one value, with their types that are bytes or a text; and what may follow the body.
_DATA, _FOOTER = 0x75, 0x78
_BODIES: Final = {_DATA: (0xA0, 0xB0), 0x77: (0xA0, 0xA1, 0xB0, 0xB1)}
#: The bytes that hold size and count of a list or map, by its type.
_COMPOUND: Final = {0x45: 0, 0xC0: 1, 0xC1: 1, 0xD0: 4, 0xD1: 4}
_CONSTANT: Final[dict[int, Any]] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}
_FIXED: Final = {
    code: struct.Struct(f">{form}")
    for codes, forms in (
        (range(0x50, 0x57), ("B", "b", "B", "B", "b", "b", "?")),
        (range(0x60, 0x62), "Hh"),
        (range(0x70, 0x75), ("I", "i", "f", "I", "4s")),
        (range(0x80, 0x85), ("Q", "q", "d", "q", "8s")),
        ((0x94, 0x98), ("16s", "16s")),
    )
    for code, form in zip(codes, forms, strict=True)
}
#: How many bytes say the size of a value of variable size, by its type; a0 and b0 are bytes, the others texts.
_VARIABLE: Final = {0xA0: 1, 0xA1: 1, 0xA3: 1, 0xB0: 4, 0xB1: 4, 0xB3: 4}
_BYTES: Final = (0xA0, 0xB0)
_UUID: Final = 0x98
# Names of properties, in their order.
_ID, _TO, _ENCODING, _CREATED = 0, 2, 7, 9


class Sections(NamedTuple):
    """What is read of a message."""

    #: None where the message has none.
    application: dict[Any, Any] | None
    body: bytes | str
    #: Those of the message's properties that it has, in the specification's order.
    properties: list[Any]

    def _property(self, number: int) -> Any:
        return self.properties[number] if number < len(self.properties) else None

    @property
    def id(self) -> Any:
        """Its sender's id for it."""
        return self._property(_ID)

    @property
    def address(self) -> Any:
        """Where it is sent to."""
        return self._property(_TO)

    @property
    def content_encoding(self) -> str:
        """How its body is encoded; empty where it does not say."""
        return str(self._property(_ENCODING) or "")

    @property
    def created(self) -> Any:
        """When it was made, in milliseconds since 1970."""
        return self._property(_CREATED)


def read_sections(data: bytes | bytearray, most: Most = OURS) -> Sections:
    """Return the sections of a message; raise CorruptInput where they are none, or hold more than is read."""
    try:
        return _read(memoryview(data), most)
    except (IndexError, struct.error, ValueError) as error:
        # Bytes that are not there, a text that is none, a name without a value.
        raise CorruptInput("an AMQP message is cut or damaged") from error


def _read(data: memoryview, most: Most) -> Sections:
    properties: list[Any] = []
    application: dict[Any, Any] | None = None
    at = before = 0
    while True:
        code, at = _described(data, at)
        if code <= before:
            # Small ones without end would cost as much as a body of their size.
            raise CorruptInput("the sections of an AMQP message are not in their order")
        before = code
        if code in _BODIES:
            return Sections(application, _body(data, code, at, most.values), properties)
        if code not in _AHEAD:
            raise CorruptInput("an AMQP message has no body")
        count, at, end = _compound(data, at)
        if code in {_PROPERTIES, _APPLICATION}:
            if count > most.values or end - at > most.bytes:
                raise CorruptInput(
                    f"a section of an AMQP message has {count} values in {end - at} bytes, more than {most}"
                )
            values = _values(data[:end], at, count)
            if code == _PROPERTIES:
                properties = list(values)
            else:
                application = dict(zip(values, values, strict=True))
        at = end


def _body(data: memoryview, code: int, at: int, most: int) -> bytes | str:
    """Return the body that begins with a section: its one value, or the bytes of all sections, of which there are few."""
    parts = []
    for _ in range(most):
        if data[at] not in _BODIES[code]:
            raise CorruptInput("the body of an AMQP message is neither bytes nor a text")
        part, at = _value(data, at)
        parts.append(part)
        following, at = _described(data, at) if at < len(data) else (_FOOTER, at)
        if following == _FOOTER:
            return part if len(parts) == 1 else b"".join(parts)
        if (code, following) != (_DATA, _DATA):
            break
    raise CorruptInput("an AMQP message has more after its body, or a body of too many sections")


def _described(data: memoryview, at: int) -> tuple[int, int]:
    """Return which section begins at an index, and where it goes on; its number is a ulong, small or not."""
    if data[at] == 0 and data[at + 1] == 0x53:
        return data[at + 2], at + 3
    if data[at] == 0 and data[at + 1] == 0x80:
        return int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
    raise CorruptInput("what came is no AMQP message")


def _compound(data: memoryview, at: int) -> tuple[int, int, int]:
    """Return how many values a list or map has, where they begin and where they end."""
    width = _COMPOUND.get(data[at])
    if width is None:
        raise CorruptInput("a section of an AMQP message is neither a list nor a map")
    at += 1
    if not width:
        return 0, at, at
    end = at + width + int.from_bytes(data[at : at + width], "big")
    at += width
    if end > len(data):
        raise CorruptInput("a section of an AMQP message is longer than the message")
    return int.from_bytes(data[at : at + width], "big"), at + width, end


def _values(data: memoryview, at: int, count: int) -> Iterator[Any]:
    for _ in range(count):
        value, at = _value(data, at)
        yield value


def _value(data: memoryview, at: int) -> tuple[Any, int]:
    """Return the simple value that begins at an index, and where it ends."""
    code = data[at]
    at += 1
    width = _VARIABLE.get(code)
    if width is not None:
        start = at + width
        end = start + int.from_bytes(data[at:start], "big")
        if end > len(data):
            raise CorruptInput("a value of an AMQP message is longer than what it is in")
        value = bytes(data[start:end])
        return (value if code in _BYTES else value.decode()), end
    form = _FIXED.get(code)
    if form is not None:
        (value,) = form.unpack_from(data, at)
        return (UUID(bytes=value) if code == _UUID else value), at + form.size
    if code in _CONSTANT:
        return _CONSTANT[code], at
    raise CorruptInput("a value of an AMQP message is a list, a map or an array, or of no type")


class Accept(NamedTuple):
    """It is processed, durably."""


class Release(NamedTuple):
    """Not taken: the sender sends again, in order, from its oldest message that is not accepted."""

    #: Seconds until its credit is given again.
    pause: float = 0.0


class Reject(NamedTuple):
    """Nobody can process it: the sender stops and shows the description to its operator."""

    condition: str
    description: str


Outcome = Accept | Release | Reject


def settle(delivery: Any, outcome: Outcome) -> None:
    """Report to the sender what became of a delivery."""
    if isinstance(outcome, Accept):
        delivery.update(Delivery.ACCEPTED)
    elif isinstance(outcome, Reject):
        delivery.local.condition = Condition(outcome.condition, outcome.description)
        delivery.update(Delivery.REJECTED)
    else:
        delivery.update(Delivery.RELEASED)
    delivery.settle()


def release(delivery: Any) -> None:
    """Give a delivery back."""
    settle(delivery, Release())


def condition_of(about: Any, whose: str) -> Condition | None:
    """Return why the other side rejected a delivery or closed a link, None where it gave no reason.

    Words that are no text are counted, as of `whose`: it is what it is all the same.
    """
    try:
        condition: Condition | None = about.remote.condition if isinstance(about, Delivery) else about.remote_condition
    except Exception as error:  # noqa: BLE001 - Proton makes Python's values of what came only now.
        doors.AMQP.refuse(error, whose)
        return Condition("", "in words that are no text")
    return condition


def close(link: Any, condition: str, description: str) -> None:
    """Close a link with a reason."""
    link.condition = Condition(condition, description)
    link.close()


class Arriving:
    """Reads the deliveries of one link while they arrive: Proton announces a largest message, and takes larger ones."""

    def __init__(self, most: int) -> None:
        """`most` is the size of the largest message that is read, in bytes."""
        self._most = most
        # What came of the delivery that is not complete: one block that grows, where to join parts would need twice their size.
        self._data = bytearray()

    @property
    def size(self) -> int:
        """What came of the delivery that is not complete, in bytes."""
        return len(self._data)

    def read(self, link: Any, delivery: Any) -> bytes | bytearray | None:
        """Read what came of a delivery; return all of it once it is complete, and None before.

        Raises CorruptInput for one that is too large, or that the link has no credit for: the link is to be closed.
        """
        is_whole = not delivery.partial
        data = link.recv(delivery.pending) or b""
        if self.size + len(data) > self._most:
            self.drop()
            raise CorruptInput(f"a message is larger than {self._most} bytes")
        if not is_whole:
            self._data += data
            return None
        link.advance()
        if link.credit < 0:
            self.drop()
            raise CorruptInput("more messages came than there was credit for")
        if self._data:
            whole, self._data = self._data, bytearray()
            whole += data
            return whole
        return data

    def drop(self) -> None:
        """Forget what came: the delivery was aborted, or its link is closed."""
        self._data = bytearray()


def discard(link: Any, delivery: Any) -> None:
    """Read a delivery of a link that is not in use, and keep nothing of it; give it back once it is complete."""
    link.recv(delivery.pending)
    if not delivery.partial:
        link.advance()
        release(delivery)


def decode(data: bytes | bytearray, whose: str = "") -> tuple[dict[Any, Any] | None, str, bytes]:
    """Return a message's application properties, content encoding and body.

    What is no AMQP message has no properties and an empty body: its decoder, such as headrace/batch.py, refuses it. `whose` is
    the source, for the log.
    """
    try:
        sections = read_sections(data)
    except Exception as error:  # noqa: BLE001 - whatever it raises, it is about this message alone.
        doors.MESSAGE.refuse(error, whose)
        return None, "", b""
    body = sections.body if isinstance(sections.body, bytes) else b""
    return sections.application, sections.content_encoding, body
