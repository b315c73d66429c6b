"""The two ends of a wide-area link: the edge's sender and the bridge's receiver, or a plain TCP stream to compare them with.

Run by wan.py, each in its namespace: `python -m tests.benchmarks.wan_ends amqp|tcp near|far SECONDS CREDIT`. The near end prints
one line of JSON: bytes that arrived in each of the seconds.
"""

import json
import random
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from bridge.amqp.receiver import Receiver
from bridge.model.delivery import Accept, Inbox
from edge.delivery.link import Sender
from edge.delivery.outbox import Outbox
from edge.observability.figures import Figures
from edge.records.batcher import SealedBatch
from headrace.batch import Batch, encode
from headrace.configuration import bridge as bridge_configuration
from headrace.configuration.edge import Interconnect
from headrace.position import Position
from tests.benchmarks.wan import NEAR

SOURCE, PORT = "far/bank", 5672
_EPOCH = 1_700_000_000
#: Compressed size of a batch as the edge aims at it, in bytes, and its default window.
_BATCH, _WINDOW = 64 * 1024, 32 << 20
#: How long a transaction collects, in seconds: outcomes come so much later than deliveries.
_TRANSACTION = 0.04


def _batches() -> Callable[[], SealedBatch]:
    """Return what makes one batch after another, of noise that nobody can compress."""
    noise = random.Random(1).randbytes(_BATCH)
    number = 0

    def make() -> SealedBatch:
        nonlocal number
        number += 1
        follows, last = Position(_EPOCH, number - 1, 0), Position(_EPOCH, number, 0)
        segments = [(number, 0, 1)]
        batch = Batch(
            source=SOURCE, follows=follows, first=last, last=last, segments=segments, keys=[b"k"], values=[noise]
        )
        properties, body = encode(batch)
        return SealedBatch(
            properties=properties,
            body=body,
            follows=follows,
            last=last,
            count=1,
            confirm=number,
            raw_bytes=_BATCH,
            commit_ms=0,
        )

    return make


def _amqp_far() -> None:
    outbox = Outbox(limit_bytes=_WINDOW, tail=Position(_EPOCH, 0, 0), confirmed=0)
    Sender(Interconnect(url=f"amqp://{NEAR}:{PORT}"), SOURCE, outbox, Figures()).start()
    make = _batches()
    while True:
        while not outbox.full:
            outbox.put([make()])
        time.sleep(0.005)


class _Session(NamedTuple):
    """What the receiver brings deliveries to."""

    source: str
    inbox: Inbox


def _amqp_near(count: Callable[[int], None], credit: int) -> None:
    arrived = threading.Event()
    session = _Session(SOURCE, Inbox(arrived.set))
    settings = bridge_configuration.Interconnect(listen=f"{NEAR}:{PORT}", credit=credit)
    receiver = Receiver(settings, {SOURCE}, "bridge")
    receiver.start()
    receiver.admit(SOURCE)
    receiver.grant(session)
    while True:
        # As a lane does it: what comes while a transaction is open is settled at its end.
        until, settled = time.monotonic() + _TRANSACTION, []
        while (left := until - time.monotonic()) > 0:
            arrived.wait(left)
            arrived.clear()
            while (delivery := session.inbox.take()) is not None:
                count(len(delivery.body))
                settled.append((delivery.ticket, Accept()))
        receiver.settle(settled)


def _tcp_far() -> None:
    with socket.create_connection((NEAR, PORT), timeout=60) as connection:
        noise = random.Random(1).randbytes(1 << 20)
        while True:
            connection.sendall(noise)


def _tcp_near(count: Callable[[int], None]) -> None:
    with socket.create_server((NEAR, PORT)) as server:
        connection, _ = server.accept()
        while data := connection.recv(1 << 18):
            count(len(data))


def _main() -> None:
    kind, end, seconds, credit = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    if end == "far":
        if kind == "tcp":
            # The other end listens soon.
            time.sleep(1)
        (_amqp_far if kind == "amqp" else _tcp_far)()
    arrived = [0] * (seconds + 1)
    began = 0.0

    def count(size: int) -> None:
        nonlocal began
        began = began or time.monotonic()
        arrived[min(seconds, int(time.monotonic() - began))] += size

    receive = (lambda: _amqp_near(count, credit)) if kind == "amqp" else (lambda: _tcp_near(count))
    threading.Thread(target=receive, daemon=True).start()
    deadline = time.monotonic() + seconds + 30
    while (not began or time.monotonic() - began < seconds) and time.monotonic() < deadline:
        time.sleep(0.05)
    print(json.dumps(arrived[:seconds]), flush=True)


if __name__ == "__main__":
    _main()
