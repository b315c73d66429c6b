"""Peers of a bridge that keep to no rule: raw AMQP over Proton's C functions, where its Python would not let a client do it."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cproton import (
    pn_condition_info,
    pn_condition_set_name,
    pn_connection_close,
    pn_connection_condition,
    pn_delivery_local,
    pn_disposition_condition,
    pn_link_close,
    pn_link_condition,
    pn_session_close,
    pn_session_condition,
)
from cproton_ffi import lib
from proton import Data, Delivery

from headrace.amqp.transport import Message, SSLDomain
from headrace.batch import CONTENT_ENCODING
from tests.amqp.peer import Peer
from tests.hostile.bodies import BATCHES
from tests.rules.waiting import eventually

BODY = b"\x00\x53\x75\xa0\x01x"


def text(value: bytes) -> bytes:
    """Return a short string of AMQP."""
    return b"\xa1" + bytes([len(value)]) + value


def mapping(*items: bytes) -> bytes:
    """Return a small map of AMQP, of encoded keys and values."""
    data = b"".join(items)
    return b"\xc1" + bytes([len(data) + 1, len(items)]) + data


def listing(*items: bytes) -> bytes:
    """Return a small list of AMQP."""
    data = b"".join(items)
    return b"\xc0" + bytes([len(data) + 1, len(items)]) + data


def nested(depth: int) -> bytes:
    """Return lists in lists of AMQP."""
    value = b"\x40"
    for _ in range(depth):
        value = b"\xd0" + (len(value) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + value
    return value


def large(value: bytes) -> bytes:
    """Return a message with a property whose value is this."""
    items = text(b"a") + value
    return b"\x00\x53\x74\xd1" + (len(items) + 4).to_bytes(4, "big") + b"\0\0\0\x02" + items + BODY


def _long(constructor: bytes) -> bytes:
    """Return a value of a type whose size has four bytes, of two megabytes."""
    return constructor + (2 << 20).to_bytes(4, "big") + b"x" * (2 << 20)


#: Messages as bytes, by what is wrong with them.
MESSAGES = {
    "empty": b"",
    "no AMQP": b"\xff" * 64,
    "cut": b"\x00\x53\x74\xc1\x05",
    "properties with a list as a key (S1)": b"\x00\x53\x74" + mapping(listing(text(b"a")), text(b"b")) + BODY,
    "properties with a list as a value": b"\x00\x53\x74" + mapping(text(b"source"), listing(text(b"a"))) + BODY,
    "properties nested 900 deep (S1)": b"\x00\x53\x74\xd1"
    + (len(nested(900)) + 4 + 3).to_bytes(4, "big") + b"\x00\x00\x00\x02" + b"\xa1\x01a" + nested(900) + BODY,
    "a body nested 5000 deep": b"\x00\x53\x77" + nested(5000),
    "a property that is no UTF-8": b"\x00\x53\x74" + mapping(text(b"\xff\xfe"), text(b"b")) + BODY,
    "a body that is a text": b"\x00\x53\x77" + text(b"x"),
    "a property that does not end (S7)": large(_long(b"\xb1")),
    "a symbol that does not end (S7)": large(_long(b"\xb3")),
    "a name of a property that does not end (S7)": b"\x00\x53\x74\xd1"
    + ((2 << 20) + 4 + 5 + 3).to_bytes(4, "big") + b"\0\0\0\x02" + _long(b"\xb1") + text(b"a") + BODY,
    "properties without end (S7)": b"\x00\x53\x74\xd1" + (4 + 200_000 * 9).to_bytes(4, "big") + (400_000).to_bytes(4, "big")
    + b"".join(b"\xa1\x06%06d\x40" % number for number in range(200_000)) + BODY,
    "an array in place of a map": b"\x00\x53\x74\xe0\x03\x01\xa1\x00" + BODY,
}  # fmt: skip


def batches(rogue: str, honest: str) -> Iterator[Message]:
    """Yield each hostile batch that a client of Proton's can send as a message: of the rogue's source, or of an honest one."""
    for name, (given, body) in BATCHES.items():
        if isinstance(given, dict):
            source = rogue if given["source"] == "a/one" else given["source"]
            if "another one" in name:
                source = honest
            yield message(rogue, given | {"source": source}, body)


def message(rogue: str, given: dict[str, Any], body: bytes) -> Message:
    """Return a batch as the message that a client of Proton's sends."""
    return Message(
        body=body,
        inferred=True,
        durable=True,
        content_encoding=CONTENT_ENCODING,
        address=f"cdc/{rogue}",
        properties=given,
    )


def _spoil(condition: Any) -> None:
    """Give a condition an info map with a list as a key, which Python cannot have."""
    pn_condition_set_name(condition, "amqp:internal-error")
    data = Data(pn_condition_info(condition))
    data.clear()
    data.put_map()
    data.enter()
    data.put_list()
    data.enter()
    data.put_string("x")
    data.exit()
    data.put_string("y")
    data.exit()


class Rogue(Peer):
    """A client that attaches a sender to an address, and then does what a test gives it to do.

    It settles nothing: all that it sent stays open at its end, whatever the outcome.
    """

    def __init__(self, port: int, address: str, *, name: str = "rogue", credentials: Any = None, trusted: Any = None):
        super().__init__(name, auto_settle=False)
        self.gone = threading.Event()
        #: The name of the condition with which the other side closed the link; empty before.
        self.closed = ""
        self.link: Any = None
        self._address = address
        #: How many deliveries have an outcome; and the names of conditions with which they were rejected.
        self.outcomes = 0
        self.rejected: list[str] = []
        url = f"amqp://127.0.0.1:{port}" if trusted is None else f"amqps://localhost:{port}"
        self.connection = self.loop.connect(url, trusted=trusted, credentials=credentials or {})
        self.start()

    def attached(self) -> "Rogue":
        """Return itself once it has credit, or its link was closed."""
        eventually(
            lambda: self.closed or (self.link is not None and self.link.credit > 0), saying="the link has credit"
        )
        return self

    @property
    def unanswered(self) -> int:
        """How many deliveries of its link have no outcome yet."""
        return int(self.link.unsettled) - self.outcomes

    def act(self, action: Callable[["Rogue"], None]) -> None:
        """Do something in the peer's thread."""
        self.do(lambda: action(self))

    def on_connection_opened(self, event: Any) -> None:
        self.loop.attach_sender(event.connection, self._address, self._address)

    def on_link_opened(self, event: Any) -> None:
        self.link = event.link

    def on_settled(self, event: Any) -> None:
        self.outcomes += 1
        remote = event.delivery.remote
        if event.delivery.remote_state == Delivery.REJECTED:
            self.rejected.append(remote.condition.name)

    def on_link_error(self, event: Any) -> None:
        self.closed = event.link.remote_condition.name

    def on_transport_closed(self, _event: Any) -> None:
        self.loop.stop()

    def ended(self) -> None:
        self.gone.set()

    def close(self) -> None:
        self.do(self.loop.stop)
        self.join()


def certified(folder: Path, name: str, port: int, address: str) -> Rogue:
    """Return a client with the certificate of a name, of a folder that `headrace certs` made."""
    tls = SSLDomain(SSLDomain.MODE_CLIENT)
    tls.set_trusted_ca_db(str(folder / "authority.pem"))
    tls.set_credentials(str(folder / f"{name}.pem"), str(folder / f"{name}.key"), None)
    return Rogue(port, address, trusted=tls, credentials={"allowed_mechs": "EXTERNAL"})


def send_raw(data: bytes, tag: str = "1") -> Callable[[Rogue], None]:
    """Return what sends bytes as one delivery."""

    def act(rogue: Rogue) -> None:
        rogue.link.delivery(tag)
        rogue.link.stream(data)
        rogue.link.advance()

    return act


def reject_badly(delivery: Any) -> None:
    """Reject a delivery with a condition whose words are no text."""
    condition = pn_disposition_condition(pn_delivery_local(delivery._impl))
    lib.pn_condition_set_name(condition, b"headrace:\xff")
    lib.pn_condition_set_description(condition, b"\xff\xfe")
    lib.pn_delivery_update(delivery._impl, Delivery.REJECTED)
    delivery.settle()


def close_link_badly(rogue: Rogue) -> None:
    """Close the link with a condition that Python cannot read."""
    _spoil(pn_link_condition(rogue.link._impl))
    pn_link_close(rogue.link._impl)


def close_session_badly(rogue: Rogue) -> None:
    """Close the session so."""
    _spoil(pn_session_condition(rogue.link.session._impl))
    pn_session_close(rogue.link.session._impl)


def close_connection_badly(rogue: Rogue) -> None:
    """Close the connection so."""
    _spoil(pn_connection_condition(rogue.connection._impl))
    pn_connection_close(rogue.connection._impl)


def attach_many(rogue: Rogue) -> None:
    """Attach 10,000 links."""
    for number in range(10_000):
        link = rogue.link.session.sender(f"{number}")
        link.target.address = link.source.address = "cdc/a/one"
        link.open()


class Knocking(Rogue):
    """A client with a source's certificate that tries addresses, one link each: to send a message, and to receive what is there.

    `accepted` holds the addresses that took its message, `received` those from which something came, `refused` the others.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.accepted: list[str | None] = []
        self.received: list[str | None] = []
        self.refused: list[str | None] = []

    def knock(self, address: str | None, *, receives: bool) -> None:
        """Try an address."""

        def attach(peer: Rogue) -> None:
            session = peer.connection.session()
            session.open()
            link = session.receiver("r") if receives else session.sender("s")
            (link.source if receives else link.target).address = address
            link.tried = address
            link.open()
            if receives:
                link.flow(10)

        self.act(attach)

    def on_link_opened(self, event: Any) -> None:
        link = event.link
        if not hasattr(link, "tried"):
            super().on_link_opened(event)
        elif link.is_sender:
            link.send(Message(body=b"x", address="cdc/london/bank"), tag="1")

    def on_delivery(self, event: Any) -> None:
        link, delivery = event.link, event.delivery
        if not hasattr(link, "tried"):
            return
        if link.is_receiver:
            self.received.append(link.tried)
        elif delivery.remote_state == Delivery.ACCEPTED:
            self.accepted.append(link.tried)
        elif delivery.updated:
            self.refused.append(link.tried)

    def on_link_error(self, event: Any) -> None:
        if hasattr(event.link, "tried"):
            self.refused.append(event.link.tried)
        else:
            super().on_link_error(event)
