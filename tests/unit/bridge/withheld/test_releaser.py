"""What the releaser reports of a source whose withheld records cannot be read."""

import random

import pytest

from bridge.model.ports import Committed
from bridge.model.position import Withheld, WithheldTable
from bridge.withheld.releaser import Releaser
from headrace.errors import NotConnected
from headrace.position import Position
from tests.unit.bridge.withheld.model import SOURCE, Bridge, Broker, Reader, Registry

AT = Position(1, 5, 0)


@pytest.fixture
def bridge():
    return Bridge(Broker(random.Random(1), 0.0), Registry(), (0,))


def serve(bridge, withheld):
    ((source, lease),) = bridge.waiting.items()
    bridge.registry.serve(source, lease, Committed(AT, "", "", dict.fromkeys(bridge.state.route.places, 0), withheld))
    return bridge.state.session


def test_a_source_whose_records_cannot_be_read_says_so_once_and_takes_deliveries(bridge, caplog):
    session = serve(bridge, Withheld(9, {"public.t": WithheldTable(AT, 5)}))

    class Unread(Reader):
        def read(self, *_, **__):
            raise NotConnected("gone for now")

    releaser = Releaser(bridge.registry, Registry(), Unread(bridge.broker), lambda: next(times))
    times = iter(range(0, 1000, 5))
    for _ in range(4):
        releaser.turn(0)
    assert session.release.table == ""
    assert bridge.state.figures.withheld == {"public.t": "gone for now"}
    assert len([each for each in caplog.records if "gone for now" in each.getMessage()]) == 1
    assert SOURCE in caplog.text
