"""Races and troubles that the model's seeds do not meet: between the releaser and a lane, of Kafka, of the topic itself."""

import random

from bridge.source.session import Session
from bridge.withheld.tables import Withheld, WithheldTable
from headrace.position import Position
from tests.unit.bridge.withheld.model import WITHHELD, Bridge, Broker, Change, Edge, Registry, schema_of

PLACE = (WITHHELD, 0)
REFUSED = schema_of("t", 110).value


class Served:
    """A bridge without faults, and an edge whose table `t` is altered at its second change."""

    def __init__(self, numbers=(10, 110, 110, 110)):
        chance = random.Random(1)
        self.broker, self.schemas = Broker(chance, 0.0), Registry()
        self.schemas.refused = {REFUSED}
        self.bridge = Bridge(self.broker, self.schemas, (0,))
        self.broker.meanwhile = lambda: None
        self.edge = Edge([Change(Position(1, 100 + n, 0), "t", number, 1) for n, number in enumerate(numbers)], chance)
        self.turn()

    def turn(self):
        for _ in range(5):
            self.bridge.turn()

    def send(self, upto):
        while self.edge.send(self.bridge, upto):
            pass
        self.turn()

    @property
    def session(self):
        return self.bridge.state.session


def test_what_a_lane_withholds_while_the_releaser_looks_is_not_deleted(monkeypatch):
    served = Served()
    served.send(2)
    served.schemas.refused.clear()
    for _ in range(6):
        served.bridge.release()
        served.turn()
    session = served.session
    assert session.withheld.tables == {}
    # when a lane commits between two looks of the releaser at the session
    ended = session.withheld.end
    now = session.withheld

    class Racing(Session):
        looks = 0

        @property
        def withheld(self):
            self.looks += 1
            if self.looks == 1:
                return now
            return Withheld(ended + 5, {"public.t": WithheldTable(self.tail, ended)})

    del session.__dict__["withheld"]
    monkeypatch.setattr(session, "__class__", Racing)
    served.broker.starts.clear()
    served.bridge.releaser._deleted.clear()
    served.bridge.release()
    # then what it has withheld since is there
    assert served.broker.starts[PLACE] <= ended


def test_kafka_that_takes_nothing_for_a_while_is_no_unexpected_error(monkeypatch):
    served = Served()
    served.send(1)
    taken = []

    def flush(self, seconds):
        # As KafkaProducer's, which leaves it to the commit to wait, or to report why.
        taken.append(seconds)
        return {}

    with monkeypatch.context() as patched:
        patched.setattr("tests.unit.bridge.withheld.model.Producer.flush", flush)
        patched.setattr("bridge.kafka.transaction.COMMIT_SECONDS", 0.01)
        served.send(3)
    assert taken
    served.send(4)
    served.schemas.refused.clear()
    for _ in range(6):
        served.bridge.release()
        served.turn()
    assert [value[5:] for _, value, _ in served.broker.values("s.public.t")] == [
        each.payload for each in served.edge.changes
    ]
