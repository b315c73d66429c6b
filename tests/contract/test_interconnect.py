"""What an edge's sender may rely on at the far side of the interconnect: the same for the bridge and for the stand-in that
the edge's own tests use.
"""

import json

import pytest

from headrace.errors import NeedsOperator
from headrace.position import Position
from tests.amqp.interconnect_ends import EPOCH, SOURCE, START, Edge, at, sealed
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]


class StandIn:
    """The far side of the edge's own tests."""

    def __init__(self, interconnect):
        self.url = interconnect.url
        self._interconnect = interconnect

    def numbers(self):
        return [value["n"] for _, _, value in list(self._interconnect.records)]


class RealBridge:
    """The bridge, over Kafka."""

    def __init__(self, bridge, bootstrap, topic):
        self.url = f"amqp://127.0.0.1:{bridge.port}"
        self._bootstrap, self._topic = bootstrap, topic

    def numbers(self):
        return [json.loads(record[3])["n"] for record in read_committed(self._bootstrap, self._topic)]


@pytest.fixture(params=["stand-in", "bridge"])
def far(request):
    if request.param == "stand-in":
        return StandIn(request.getfixturevalue("interconnect"))
    kafka, topic = request.getfixturevalue("kafka"), request.getfixturevalue("topic")()
    bridge = request.getfixturevalue("inside")(kafka.bootstrap, {SOURCE: [0]}, topic=topic)
    bridge.serves(SOURCE)
    return RealBridge(bridge, kafka.bootstrap, topic)


@pytest.fixture
def edge(far):
    edges = []

    def start(tail=START):
        edges.append(Edge(far.url, tail))
        return edges[-1]

    yield start
    for each in edges:
        each.close()


def test_batches_in_order_are_accepted_once_each(edge, far):
    sender = edge()
    sender.put(sealed(1, 3), sealed(4, 4), sealed(5, 9))

    sender.acknowledged(at(9))

    assert far.numbers() == list(range(1, 10))
    assert sender.figures.accepted == 3


def test_what_is_sent_again_by_a_new_edge_is_accepted_and_adds_nothing(edge, far):
    sender = edge()
    sender.put(sealed(1, 3), sealed(4, 6))
    sender.acknowledged(at(6))
    sender.close()

    again = edge()
    again.put(sealed(1, 4), sealed(5, 8))
    again.acknowledged(at(8))

    assert far.numbers() == list(range(1, 9))


def test_gap_is_returned_and_nothing_behind_it_is_taken_until_it_is_filled(edge, far):
    first = edge()
    first.put(sealed(1, 2))
    first.acknowledged(at(2))
    first.close()

    ahead = edge(at(4))
    ahead.put(sealed(5, 6), sealed(7, 7))
    eventually(lambda: ahead.figures.returned >= 2)
    assert far.numbers() == [1, 2]
    assert not ahead.outbox.empty
    ahead.close()

    mended = edge(at(2))
    mended.put(sealed(3, 4), sealed(5, 6), sealed(7, 7))
    mended.acknowledged(at(7))
    assert far.numbers() == list(range(1, 8))


def test_empty_batch_is_accepted_before_and_after_the_first_change(edge, far):
    sender = edge()
    sender.put(sealed(1, 0, follows=Position.start(EPOCH)))
    sender.acknowledged(Position.start(EPOCH))
    sender.put(sealed(1, 2), sealed(3, 2))
    sender.acknowledged(at(2))

    assert far.numbers() == [1, 2]


def test_large_batch_passes_between_small_ones_in_order(edge, far):
    sender = edge()
    sender.put(sealed(1, 2), sealed(3, 3, size=600_000), sealed(4, 5), sealed(6, 6, size=600_000), sealed(7, 7))

    sender.acknowledged(at(7))

    assert far.numbers() == list(range(1, 8))


def test_new_epoch_follows_and_the_old_one_is_rejected_then(edge, far):
    old = edge()
    old.put(sealed(1, 3))
    old.acknowledged(at(3))
    old.close()
    new = edge(Position.start(EPOCH + 1))
    new.put(sealed(1, 2, epoch=EPOCH + 1))
    new.acknowledged(at(2, EPOCH + 1))
    new.close()

    late = edge(at(3))
    late.put(sealed(4, 4))
    problem = eventually(lambda: late.outbox.problem)

    assert isinstance(problem, NeedsOperator)
    assert "epoch" in problem.message
    assert far.numbers() == [1, 2, 3, 1, 2]
