"""Packets that are damaged or cut off on the way: the connection ends, or the batch is refused; nothing wrong is taken."""

import random
from zlib import crc32

import pytest

from headrace.amqp import transport
from headrace.batch import CONTENT_ENCODING, decode
from tests.amqp.interconnect_ends import SOURCE, START, Edge, Far, pem, sealed
from tests.rules.waiting import eventually

BATCHES = [sealed(number, number, size=2_000) for number in range(1, 61)]
SUMS = [crc32(decode(batch.properties, CONTENT_ENCODING, batch.body).values[0]) for batch in BATCHES]


@pytest.fixture
def ends(monkeypatch, ends):
    """Return what makes ends that notice soon when nothing comes any more."""
    monkeypatch.setattr(transport, "IDLE_SECONDS", 1.0)
    return ends


@pytest.fixture(params=["amqp", "amqps"])
def scheme(request):
    return request.param


@pytest.mark.parametrize("flip", [True, False], ids=["a bit flips", "a frame is cut off"])
def test_damage_on_the_way_changes_no_row_and_loses_none(ends, proxies, certificates, scheme, flip):
    chance = random.Random(20260131)
    tls = {"amqp": {}, "amqps": pem(certificates / "ours", "bridge")}[scheme]
    ours = {"amqp": {}, "amqps": pem(certificates / "ours", "jakarta-bank")}[scheme]
    far = ends(Far, **tls)
    wire = proxies("127.0.0.1", far.receiver.port)
    refused = 0
    while len(far.numbers[SOURCE]) < len(BATCHES):
        # given an edge that goes on where the far side stands, as one does whose operator has looked
        done = len(far.numbers[SOURCE])
        edge = ends(Edge, f"{scheme}://localhost:{wire.port}", far.tails[SOURCE] or START, **ours)
        # when a byte that is on its way with the next batches is damaged, at any place
        wire.damage(chance.randrange(12_000), flip=flip)
        edge.put(*BATCHES[done : done + 12])
        eventually(
            lambda edge=edge: edge.outbox.problem or edge.outbox.empty,
            saying="all is there, or refused",
        )
        # then what has come is what was sent, and in order
        refused += edge.outbox.problem is not None
        assert far.sums[SOURCE] == SUMS[: len(far.sums[SOURCE])]
        edge.close()
    assert far.numbers[SOURCE] == list(range(1, len(BATCHES) + 1))
    # And only what came whole, and wrong, needs somebody who looks: TLS lets nothing through that is.
    assert (refused > 0) == (flip and scheme == "amqp")
