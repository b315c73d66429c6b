"""The doors of AMQP, messages and memory at a bridge: a peer ends nothing but its own link or connection."""

import pytest

from bridge.amqp import links as links_module
from headrace import doors
from headrace.amqp.transport import Message
from headrace.batch import CONTENT_ENCODING
from tests.amqp.interconnect_ends import Edge, Far, at, sealed
from tests.hostile import peers
from tests.hostile.peers import MESSAGES, Rogue, send_raw
from tests.rules.waiting import eventually

ROGUE, HONEST = "jakarta/bank", "london/bank"


@pytest.fixture
def far():
    """A bridge's receiver, with an honest edge that is attached and acknowledged."""
    made = Far((ROGUE, HONEST))
    made.edge = Edge(made.url(), source=HONEST)
    made.edge.put(sealed(1, 5, source=HONEST))
    made.edge.acknowledged(at(5))
    yield made
    # Whatever the test did: the receiver lives, and the honest edge goes on over the same link.
    made.edge.put(sealed(6, 9, source=HONEST))
    made.edge.acknowledged(at(9))
    assert made.numbers[HONEST] == list(range(1, 10))
    assert made.edge.figures.interconnect_connections == 1
    assert made.receiver.failure is None
    made.edge.close()
    made.close()


@pytest.fixture
def rogue(far):
    """A client that attached to its own source."""
    made = Rogue(far.receiver.port, f"cdc/{ROGUE}").attached()
    yield made
    made.close()


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_that_is_none_is_rejected(far, rogue, name):
    """S1: properties with a list as a key, or nested."""
    rogue.act(send_raw(MESSAGES[name]))
    eventually(lambda: rogue.unanswered == 0 and rogue.link.credit > 0, saying="the delivery has an outcome")
    assert far.batches == 1


@pytest.mark.parametrize("act", [peers.close_link_badly, peers.close_session_badly, peers.close_connection_badly])
def test_a_condition_that_cannot_be_read_ends_the_connection_of_who_sent_it(far, rogue, act):
    """S1: a condition's map with a list as a key."""
    rogue.act(act)
    eventually(
        lambda: rogue.gone.is_set() or rogue.closed or far.receiver.links.credit.of(ROGUE) is None,
        saying="its link is forgotten",
    )


def test_a_message_above_the_limit_is_refused_while_it_arrives(far, rogue, monkeypatch):
    """S7: Proton announces a largest message and takes larger ones."""
    monkeypatch.setattr(links_module, "_LARGEST_MESSAGE", 1 << 20)
    before = doors.MEMORY.refused.get(ROGUE, 0)

    def stream(peer):
        if not peer.link.current:
            peer.link.delivery("1")
        peer.link.stream(bytes(1 << 19))

    for _ in range(8):
        rogue.act(stream)
    assert eventually(lambda: rogue.closed) == "amqp:link:message-size-exceeded"
    assert doors.MEMORY.refused[ROGUE] == before + 1
    assert far.receiver.links._bytes_arriving == 0
    # What it sends on is read and dropped.
    for _ in range(8):
        rogue.act(stream)
    eventually(lambda: not rogue.link.session.outgoing_bytes, saying="the rest is read")


def test_who_has_most_of_what_is_arriving_loses_its_link_when_there_is_too_much(far, rogue, monkeypatch):
    """S7: a delivery that never ends holds memory for as long as its link is there."""
    monkeypatch.setattr(links_module, "_MOST_ARRIVING", 1 << 20)

    def stream(peer):
        if not peer.link.current:
            peer.link.delivery("1")
        peer.link.stream(bytes(1 << 20))

    rogue.act(stream)
    rogue.act(stream)
    assert eventually(lambda: rogue.closed) == "amqp:resource-limit-exceeded"
    assert far.receiver.links._bytes_arriving == 0


def test_where_nothing_is_arriving_nobody_is_closed_for_what_is(far, rogue):
    """Without a link the receiver's thread ended with a ValueError; with one, that was closed."""
    before = sum(doors.MEMORY.refused.values())
    far.receiver.links._close_heaviest()
    assert not rogue.closed
    assert sum(doors.MEMORY.refused.values()) == before


def test_many_links_of_one_peer_that_each_have_little_push_no_other_peer_s_out(monkeypatch):
    """The heaviest link lost: that of an honest source with a large row, and again each time that it sent it."""
    monkeypatch.setattr(links_module, "_MOST_ARRIVING", 1 << 20)
    names = [f"jakarta/{number}" for number in range(12)]
    far = Far((ROGUE, *names, HONEST))
    honest = Rogue(far.receiver.port, f"cdc/{HONEST}").attached()
    rogue = Rogue(far.receiver.port, f"cdc/{ROGUE}").attached()
    arriving = far.receiver.links._arriving
    try:
        honest.act(lambda peer: (peer.link.delivery("1"), peer.link.stream(bytes(300_000))))
        eventually(
            lambda: sum(each.size for each in arriving.values()) == 300_000, saying="half of a large row is there"
        )

        def attach_and_stream(peer):
            for name in names:
                link = peer.link.session.sender(name)
                link.target.address = link.source.address = f"cdc/{name}"
                link.open()
                link.delivery("1")
                link.stream(bytes(100_000))

        rogue.act(attach_and_stream)
        assert eventually(lambda: rogue.closed) == "amqp:resource-limit-exceeded"
        honest.act(lambda peer: peer.link.stream(bytes(100_000)))
        eventually(
            lambda: (
                far.receiver.links.credit.of(HONEST)
                and arriving[far.receiver.links.credit.of(HONEST).number].size == 400_000
            ),
            saying="the honest link goes on",
        )
        assert not honest.closed
        assert doors.MEMORY.refused.get(HONEST, 0) == 0
    finally:
        rogue.close()
        honest.close()
        far.close()


def test_a_delivery_of_single_bytes_is_read_whole(far, rogue):
    """S7: parts that are small cost no more than they hold."""
    data = MESSAGES["properties with a list as a value"]

    def one(byte, first, last):
        def act(peer):
            if first:
                peer.link.delivery("1")
            peer.link.stream(byte)
            if last:
                peer.link.advance()

        return act

    for number in range(len(data)):
        rogue.act(one(data[number : number + 1], number == 0, number == len(data) - 1))
    eventually(lambda: rogue.unanswered == 0 and rogue.link.credit > 0, saying="the delivery has an outcome")


def test_ten_thousand_links_of_one_connection_end_it(far, rogue):
    rogue.act(peers.attach_many)
    assert rogue.gone.wait(60)
    assert sum(doors.AMQP.refused.values())


def flood(data):
    """Return what sends bytes as 20,000 deliveries, whatever the credit."""

    def act(peer):
        for number in range(20_000):
            peer.link.delivery(str(number))
            peer.link.stream(data)
            peer.link.advance()

    return act


def test_of_20_000_transfers_that_are_none_and_that_nobody_settles_the_bridge_holds_none(far, rogue):
    credit = far.receiver.links.credit
    link = credit.of(ROGUE).link
    rogue.act(flood(b"x"))
    held = 0

    def is_answered():
        nonlocal held
        held = max(held, link.unsettled)
        return len(rogue.rejected) >= 256

    # However long it takes a busy machine to send all of it.
    eventually(
        is_answered, saying="its credit is answered", progress=lambda: (rogue.link.unsettled, len(rogue.rejected))
    )
    eventually(
        lambda: rogue.link.unsettled == 20_000, saying="all of it is sent", progress=lambda: rogue.link.unsettled
    )
    # Whatever is open at the other end: no more was here at once than it had credit for, and what was answered is gone.
    assert held <= 256
    eventually(lambda: link.unsettled == 0, saying="nothing is open here")
    assert (credit.bytes, len(credit._unsettled), far.receiver.links._bytes_arriving) == (0, 0, 0)


def test_of_20_000_transfers_that_nobody_takes_the_bridge_holds_those_that_it_gave_credit_for():
    """A peer that has more to send than credit, and settles nothing, at a bridge whose lanes are busy with others."""
    far = Far((ROGUE,), reads=False)
    rogue = Rogue(far.receiver.port, f"cdc/{ROGUE}").attached()
    try:
        message = Message(
            body=b"x" * 1000, inferred=True, content_encoding=CONTENT_ENCODING, properties={"source": ROGUE}
        )
        rogue.act(flood(message.encode()))
        credit = far.receiver.links.credit
        eventually(
            lambda: len(credit._unsettled) == 256 and rogue.link.queued == 20_000 - 256,
            saying="its credit is used up",
            progress=lambda: rogue.link.queued,
        )
        assert (credit.bytes, credit.of(ROGUE).link.unsettled) == (256 * 1000, 256)
        assert far.receiver.links._bytes_arriving == 0
        assert rogue.outcomes == 0
    finally:
        rogue.close()
        far.close()
