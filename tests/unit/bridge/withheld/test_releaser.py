"""What the releaser reports of a source whose withheld records cannot be read."""

import random

import pytest

from bridge.model.chain import Withheld, WithheldTable
from bridge.model.ports import Committed
from bridge.model.route import SourceRoute, TableRouter
from bridge.source.registry import SourceRegistry
from bridge.withheld.releaser import Releaser, WithheldRecord
from headrace.configuration.bridge import TableTopic
from headrace.errors import NotConnected
from headrace.position import Position
from tests.unit.bridge.kafka_double import Deliverer, metadata
from tests.unit.bridge.withheld.model import SOURCE, WITHHELD, Bridge, Broker, Change, Reader, Registry, batch

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


class Slow(Reader):
    """Takes some seconds to fail at some partitions, and has a record at each offset of the others."""

    def __init__(self, places):
        self.places, self.seconds, self.now, self.tried = set(places), 10.0, 0.0, []

    def read(self, place, key, begin, end, *, most=1):
        if place in self.places:
            self.now += self.seconds
            self.tried.append(place)
            raise NotConnected(f"{place} cannot be read")
        self.now += 0.01
        change = Change(Position(1, 100 + begin, 0), "t", 10, 1)
        return [WithheldRecord(begin, batch([change], AT), 10)], begin + 1

    def delete(self, place, end):
        pass


class Served:
    """Six sources with a withheld table each, whose lanes commit whatever is released."""

    def __init__(self, places):
        topics = {"public.t": TableTopic("s.public.t", "delete")}
        routes = [
            SourceRoute(f"a/{number}", "s", (number,), TableRouter("s", topics), "s", "", WITHHELD)
            for number in range(6)
        ]
        self.waiting = {}
        self.registry = SourceRegistry(
            routes, Deliverer(), lambda source, lease, _: self.waiting.update({source: lease})
        )
        self.registry.assigned([route.source for route in routes], metadata())
        for route in routes:
            self.serve(route.source, Withheld(20, {"public.t": WithheldTable(AT, 0)}))
        self.reader = Slow(places)
        self.releaser = Releaser(self.registry, Registry(), self.reader, lambda: self.reader.now)
        self.longest = 0.0

    def serve(self, source, withheld):
        offsets = dict.fromkeys(self.registry.states[source].route.places, 0)
        self.registry.serve(source, self.waiting[source], Committed(AT, "", "", offsets, withheld))

    def begin_again(self, source):
        """Have its session fail, and those begin that failed before."""
        for other, state in self.registry.states.items():
            if state.session is None:
                self.serve(other, Withheld(20, {"public.t": WithheldTable(AT, 0)}))
        session = self.registry.states[source].session
        self.registry.recover([self.registry.failed(session, NotConnected("a broker"))])

    def turn(self):
        began = self.reader.now
        self.releaser.turn(0)
        self.longest = max(self.longest, self.reader.now - began)
        self.reader.now += 0.1
        for state in self.registry.states.values():
            while state.session and (step := state.session.release.take()) is not None:
                next_ = Withheld(20, {"public.t": WithheldTable(AT, step.next)})
                state.session.withheld = next_ if step.next < 20 else Withheld(20)
                if step.next == 20:
                    state.session.release.end()

    def left(self):
        return [source for source, state in self.registry.states.items() if state.session.withheld.tables]


def test_a_source_is_released_although_the_partitions_of_others_cannot_be_read():
    """Each turn waited for all of them: a step of another source's release came every 50 s, and the thread counted as hanging."""
    slow = {(WITHHELD, number) for number in range(5)}
    served = Served(slow)
    while "a/5" in served.left() and served.reader.now < 2000:
        served.turn()
    # Once for each of them, until it is known, and after that no more than a tenth of the time.
    assert served.reader.now < 5 * 10 + 30
    assert served.longest < 15
    # When others can be read again, they are released, too.
    served.reader.tried.clear()
    served.reader.places.clear()
    while served.left() and served.reader.now < 2000:
        served.turn()
    assert served.left() == []
    assert served.reader.now < 300


def test_every_source_that_cannot_be_read_is_tried_again():
    slow = {(WITHHELD, number) for number in range(6)}
    served = Served(slow)
    while served.reader.now < 2000:
        served.turn()
    counts = [served.reader.tried.count(place) for place in slow]
    assert min(counts) >= 3
    assert max(counts) - min(counts) <= 1
    assert sum(counts) * 10 < 2000 / 10 + 6 * 10 + 50


def test_a_source_is_released_although_others_that_cannot_be_read_have_ever_new_sessions():
    """Each of their sessions was taken for one that had not been tried, ahead of the others."""
    served = Served({(WITHHELD, number) for number in range(5)})
    for turn in range(2000):
        served.begin_again(f"a/{turn % 5}")
        served.turn()
        if not served.registry.states["a/5"].session.withheld.tables:
            break
    assert served.reader.now < 5 * 10 + 60


def test_records_that_may_not_be_deleted_hold_up_no_table_that_could_not_be_read(monkeypatch):
    served = Served({(WITHHELD, 5)})
    served.reader.seconds = 0.01
    for number in range(5):
        served.registry.states[f"a/{number}"].session.withheld = Withheld(20)
    asked = []

    def delete(place, _):
        served.reader.now += 0.01
        asked.append(place)
        raise NotConnected("Kafka refuses it")

    monkeypatch.setattr(served.reader, "delete", delete)
    served.turn()
    served.reader.places.clear()
    while served.left() and served.reader.now < 2000:
        served.turn()
    assert len(set(asked)) == 5
    assert served.reader.now < 6
