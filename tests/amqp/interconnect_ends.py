"""The two ends of an interconnect without databases and Kafka: the edge's sender, and the bridge's receiver."""

import json
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from bridge.amqp.receiver import Receiver
from bridge.model.chain import Gap, Next, judge
from bridge.model.delivery import Accept, Delivery, Inbox, Outcome, Reject, Release
from edge.delivery.link import Sender
from edge.delivery.outbox import Outbox
from edge.observability.figures import Figures
from edge.records.batcher import SealedBatch
from edge.requests.service import RequestService
from headrace.amqp.transport import SSLDomain
from headrace.batch import Batch, decode, encode
from headrace.configuration import bridge as bridge_configuration
from headrace.configuration.edge import Interconnect
from headrace.errors import CorruptInput
from headrace.position import Position
from tests.rules.waiting import eventually

SOURCE = "jakarta/bank"
EPOCH = 1_700_000_000
START = Position.start(EPOCH)


def at(number, epoch=EPOCH):
    return Position(epoch, number, 0)


def sealed(first, last, *, follows=None, epoch=EPOCH, size=0, source=SOURCE):
    """Return a batch of the records `first` to `last`, one to a transaction; an empty one when `last` is below `first`."""
    before = Position(epoch, first - 1, 0) if first > 1 else Position.start(epoch)
    follows = follows or before
    numbers = range(first, last + 1)
    values = [
        json.dumps({"n": n, "pad": _noise(n, size), "source": {"name": source, "position": str(Position(epoch, n, 0))}})
        for n in numbers
    ]
    end = Position(epoch, last, 0) if numbers else follows
    batch = Batch(
        source=source,
        follows=follows,
        first=Position(epoch, first, 0) if numbers else follows,
        last=end,
        segments=[(n, 0, 1) for n in numbers],
        keys=[b'{"id":%d}' % n for n in numbers],
        values=[value.encode() for value in values],
    )
    properties, body = encode(batch)
    return SealedBatch(
        properties=properties,
        body=body,
        follows=follows,
        last=end,
        count=len(batch),
        confirm=last,
        raw_bytes=0,
        commit_ms=0,
    )


def _noise(number, size):
    return random.Random(number).randbytes(size // 2).hex()


class Edge:
    """The edge's sender, over an outbox that the test fills."""

    def __init__(
        self,
        url: str | list[str],
        tail: Position = START,
        *,
        source: str = SOURCE,
        requests: RequestService | None = None,
        **settings: Any,
    ) -> None:
        self.figures = Figures()
        self.outbox = Outbox(limit_bytes=1 << 24, tail=tail, confirmed=0)
        self._sender = Sender(Interconnect(url=url, **settings), source, self.outbox, self.figures, requests)
        self._sender.start()

    def put(self, *batches: SealedBatch) -> None:
        self.outbox.put(batches)

    def acknowledged(self, position: Position, seconds: float = 60) -> None:
        def there() -> bool:
            self.outbox.check()
            return self.outbox.empty and self.outbox.progress()[0] == position

        eventually(there, seconds, saying=f"everything up to {position} is acknowledged")

    def problem(self) -> Exception:
        """Return what ended it."""
        return eventually(lambda: self.outbox.problem, saying="the sender ends with a problem")

    def close(self) -> None:
        self._sender.stop(5)


class Session(NamedTuple):
    """What a source's deliveries go to."""

    source: str
    inbox: Inbox


class Far:
    """The bridge's receiver, with a thread for each source that keeps the chain and accepts what is in order.

    The first `release` deliveries are given back whatever they are. `numbers` holds what a bridge would have committed. Without
    `reads` nothing is taken out of the inboxes, and so nothing is settled.
    """

    def __init__(
        self, sources: Sequence[str] = (SOURCE,), *, release: int = 0, reads: bool = True, **settings: Any
    ) -> None:
        self.release = release
        self.released = 0
        self.tails: dict[str, Position | None] = dict.fromkeys(sources)
        if "url" not in settings:
            settings = {"listen": "127.0.0.1:0"} | settings
        self.inboxes = {source: Inbox() for source in sources}
        #: Numbers of the records of each source, as they came.
        self.numbers: dict[str, list[int]] = {source: [] for source in sources}
        #: The sums of their values.
        self.sums: dict[str, list[int]] = {source: [] for source in sources}
        self.batches = 0
        self.bytes = 0
        self.receiver = Receiver(bridge_configuration.Interconnect(**settings), sources, "headrace-bridge/test")
        self.receiver.start()
        self._threads = [
            threading.Thread(target=self._accept, args=(source,), daemon=True) for source in sources if reads
        ]
        for thread in self._threads:
            thread.start()
        for source in sources:
            self.receiver.admit(source)
            self.receiver.grant(Session(source, self.inboxes[source]))

    def url(self, *, host: str = "127.0.0.1", scheme: str = "amqp") -> str:
        return f"{scheme}://{host}:{self.receiver.port}"

    def close(self) -> None:
        for inbox in self.inboxes.values():
            inbox.close()
        self.receiver.stop(5)

    def _accept(self, source: str) -> None:
        inbox = self.inboxes[source]
        while not inbox._closed:
            if (delivery := inbox.take(1)) is not None:
                self.bytes += len(delivery.body)
                self.receiver.settle([(delivery.ticket, self._judge(source, delivery))])

    def _judge(self, source: str, delivery: Delivery) -> Outcome:
        try:
            batch = decode(delivery.properties, delivery.content_encoding, delivery.body)
        except CorruptInput as error:
            return Reject("amqp:decode-error", error.message)
        verdict = judge(self.tails[source], batch)
        if self.release > 0 or isinstance(verdict, Gap):
            self.release -= 1
            self.released += 1
            return Release(0.02)
        if isinstance(verdict, Next):
            self.numbers[source] += [json.loads(value)["n"] for value in batch.values[verdict.begin :]]
            self.sums[source] += [crc32(value) for value in batch.values[verdict.begin :]]
            self.tails[source] = batch.last
        self.batches += 1
        return Accept()


def pem(folder: Path, name: str) -> dict[str, Path]:
    """Return the settings of who has the certificate of a name, of a folder that `headrace certs` made."""
    return {
        "authority": folder / "authority.pem",
        "certificate": folder / f"{name}.pem",
        "key": folder / f"{name}.key",
    }


def trust(folder: Path, name: str) -> SSLDomain:
    """Return a client's settings of TLS with such a certificate."""
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(folder / "authority.pem"))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    domain.set_credentials(str(folder / f"{name}.pem"), str(folder / f"{name}.key"), None)
    return domain
