"""A far side for edges: a real AMQP 1.0 listener that keeps the chain as the bridge does, and misbehaves on request.

`records` holds what a bridge would have committed: each position once, in order. A batch that leaves a gap is released. Faults
are outcomes queued for the next deliveries; `hold` keeps back every outcome, from now on or from some records on, until
`let_go`.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.amqp.transport import Condition, Delivery, Endpoint
from headrace.batch import Batch, decode
from headrace.position import Position
from headrace.schemas.avro_json.envelope import Records
from infra.local.server import free_port
from tests.amqp.peer import Listener

_CREDIT = 64


class Interconnect(Listener):
    """Listens on a free port of this machine from `start` to `stop`; the port stays the same."""

    def __init__(self, url: str = "", tls: Any = None) -> None:
        # Where no client's connection can take the port while it is closed.
        host, _, port = (url or f"127.0.0.1:{free_port()}").removeprefix("amqp://").rpartition(":")
        options = {"prefetch": 0, "auto_accept": False, "auto_settle": False}
        super().__init__(host=host, port=int(port), tls=tls, **options)
        #: Records in order, each position once: (position, key, value), decoded.
        self.records: list[tuple[Position, Any, Any]] = []
        #: Every batch that came, in order of arrival, with its properties and what became of it.
        self.arrived: list[tuple[Batch, str]] = []
        self.messages: list[Any] = []
        self.tail: Position | None = None
        #: Outcomes for the next deliveries, before anything else is considered.
        self.faults: deque[str] = deque()
        #: Refuses links when set: (condition, description).
        self.refusal: tuple[str, str] | None = None
        self.credit = _CREDIT
        self.held = False
        self.attached = 0
        #: Times that an edge gave back credit that was asked for.
        self.drained = 0
        self._holding: list[tuple[Delivery, Batch]] = []
        self._links: list[Any] = []
        self._hold_at: int | None = None
        self._closed = False
        self.start()

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"

    @property
    def changes(self) -> list[dict[str, Any]]:
        """The change records, without schema records."""
        return [value for _, _, value in list(self.records) if value is not None and "op" in value]

    @property
    def withheld(self) -> int:
        """How many records, those of no empty batch, are held back now."""
        return sum(len(batch) for _, batch in list(self._holding))

    def hold(self, after: int | None = None) -> None:
        """Hold outcomes back; with `after` from when there are so many records or more."""
        self.held, self._hold_at = after is None, after

    def let_go(self) -> None:
        """Give the outcomes that were held back, in order, and hold no more; what was asked for before comes first."""
        self._do(self._let_go)

    def drop(self) -> None:
        """Lose every connection, with what is unsettled."""
        self._do(self._drop)

    def detach(self) -> None:
        """Close every link without an error, as a router does after a policy violation."""
        self._do(self._detach)

    def drain(self) -> None:
        """Ask for the credit back that is not used now, and give it again."""
        self._do(self._drain)

    def close(self) -> None:
        """End; a test may do so before its fixture does."""
        if not self._closed:
            self._closed = True
            super().close()

    def _do(self, command: Callable[[], None]) -> None:
        assert not self._closed, "the far side is closed"
        self.do(command)

    def stop(self) -> None:
        for link in self._links:
            link.connection.close()
        super().stop()

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)

    def on_link_opened(self, event: Any) -> None:
        link = event.link
        if not (link.target.address or "").startswith("cdc/"):
            # A far side that knows no requests.
            link.condition = Condition("amqp:not-found", "there are no requests here")
            link.close()
            return
        if self.refusal is not None:
            link.condition = Condition(*self.refusal)
            link.close()
            return
        self.attached += 1
        self._links.append(link)
        link.flow(self.credit)

    def on_message(self, event: Any) -> None:
        message, delivery = event.message, event.delivery
        batch = decode(message.properties, str(message.content_encoding), bytes(message.body))
        self.messages.append(message)
        self._holding.append((delivery, batch))
        if not self.held:
            self._settle_all()

    def _let_go(self) -> None:
        self.held, self._hold_at = False, None
        self._settle_all()

    def _drop(self) -> None:
        self._holding.clear()
        for link in self._links:
            transport = link.connection.transport
            if transport is not None:
                transport.close_tail()
                transport.close_head()
        self._links.clear()

    def _drain(self) -> None:
        for link in self._links:
            link.drain(0)

    def on_link_flow(self, event: Any) -> None:
        if event.link.drain_mode and event.link.credit == 0:
            self.drained += 1
            event.link.flow(self.credit)

    def _detach(self) -> None:
        self._holding.clear()
        for link in self._links:
            link.close()
        self._links.clear()

    def _settle_all(self) -> None:
        for delivery, batch in self._holding:
            outcome = self.faults.popleft() if self.faults else self._judge(batch)
            self.arrived.append((batch, outcome))
            if delivery.link.state & Endpoint.LOCAL_CLOSED:
                continue
            if outcome == "reject":
                delivery.local.condition = Condition("headrace:stale-epoch", "an older epoch than the one in Kafka")
            state = {"accept": 0x24, "reject": 0x25, "release": 0x26, "modify": 0x27}.get(outcome)
            if state is not None:
                delivery.update(state)
            delivery.settle()
            delivery.link.flow(1)
        self._holding.clear()
        if self._hold_at is not None and len(self.records) >= self._hold_at:
            self.held, self._hold_at = True, None

    def _judge(self, batch: Batch) -> str:
        tail = self.tail or Position.start(0)
        if batch.last.epoch < tail.epoch:
            return "reject"
        if batch.follows > tail and not batch.starts_epoch:
            return "release"
        index = batch.index_after(tail)
        positions = list(batch.positions())
        # What is in Avro is looked at as the JSON that it would have been.
        keys = Records({each.number: each.key for each in batch.written if each.key})
        values = Records({each.number: each.value for each in batch.written})
        for number in range(index, len(batch)):
            key, value = batch.keys[number], batch.values[number]
            self.records.append((positions[number], _plain(keys.key(key)), _plain(values.value(value))))
        self.tail = max(tail, batch.last)
        return "accept"


def _plain(record: bytes | None) -> Any:
    return record and json.loads(record)


@pytest.fixture
def interconnect() -> Iterator[Interconnect]:
    """Yield a far side that accepts what is in order."""
    made = Interconnect()
    yield made
    made.close()


@pytest.fixture
def interconnects() -> Iterator[Callable[..., Interconnect]]:
    """Return what starts further far sides."""
    made: list[Interconnect] = []

    def make(url: str = "", **options: Any) -> Interconnect:
        made.append(Interconnect(url, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def ends() -> Iterator[Callable[..., Any]]:
    """Yield what makes edges' and bridges' ends of an interconnect by their kind; they are closed with the test."""
    made: list[Any] = []

    def start(kind: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        made.append(kind(*arguments, **settings))
        return made[-1]

    yield start
    for each in made:
        each.close()
