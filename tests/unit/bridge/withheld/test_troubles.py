"""Races and troubles that the model's seeds do not meet: between the releaser and a lane, of Kafka, of the topic itself."""

import random
from types import SimpleNamespace

from bridge.kafka.client import KafkaError, OffsetSpec
from bridge.model.chain import Withheld, WithheldTable, parse
from bridge.model.ports import Committed
from bridge.model.route import SourceRoute
from bridge.positions.last_record import known_withheld
from bridge.routing.withheld_records import batch_of, divide
from bridge.service import STALLED_SECONDS, Stalls
from bridge.source.session import Session
from bridge.withheld.releaser import KafkaReader, Releaser
from headrace.batch import Batch
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NeedsOperator, NotConnected
from headrace.position import Position
from tests.unit.bridge.withheld.model import SOURCE, WITHHELD, Bridge, Broker, Change, Edge, Reader, Registry, schema_of

PLACE = (WITHHELD, 0)
TAIL = Position(1, 9, 0)
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
        patched.setattr("bridge.lanes.transaction.COMMIT_SECONDS", 0.01)
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


def test_a_topic_of_withheld_records_that_was_made_again_never_has_a_source_hang():
    served = Served()
    served.send(3)
    served.schemas.refused.clear()
    for _ in range(6):
        served.bridge.release()
        served.turn()
    assert served.session.withheld.tables == {}
    assert served.session.withheld.end > 0
    # when somebody makes the topic again while nothing is withheld, and then a table is
    served.broker.logs[PLACE].clear()
    served.broker.starts.clear()
    served.schemas.refused = {REFUSED}
    served.send(4)
    # then what is committed can be read
    parse(served.broker.text)
    assert parse(served.broker.text).position < served.edge.changes[-1].position


class Admin:
    """Answers where partitions begin and end; of those that have no leader, None; of a topic that is not there, nothing."""

    def __init__(self, ends):
        self.ends = ends

    def list_topics(self, topic, timeout):
        partitions = {
            number: SimpleNamespace(leader=-1 if ends is None else 1)
            for (name, number), ends in self.ends.items()
            if name == topic
        }
        error = None if partitions else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions=partitions)})

    def list_offsets(self, asked, request_timeout):
        offsets = {each: self.ends[each.topic, each.partition][spec is LATEST] for each, spec in asked.items()}
        return {
            each: SimpleNamespace(result=lambda offset=offset: SimpleNamespace(offset=offset))
            for each, offset in offsets.items()
        }


class Records:
    """A consumer of partitions that are read in one go: each has a record, or is silent, or nothing but what was aborted."""

    def __init__(self, having=(), silent=()):
        self.having, self.silent = having, silent
        self.assigned = {}
        self.requests, self.now = 0, 0.0

    def assign(self, places):
        assert not places
        self.assigned = {}

    def unassign(self):
        self.assigned = {}

    def incremental_assign(self, places):
        self.requests += 1
        self.assigned |= {(each.topic, each.partition): each.offset for each in places}

    def incremental_unassign(self, places):
        for each in places:
            del self.assigned[each.topic, each.partition]

    def consume(self, _many, timeout):
        events = [self._event(*place) for place in self.assigned if place[1] not in self.silent]
        self.now += 0 if events else timeout
        return events

    def _event(self, topic, number):
        error = None if number in self.having else KafkaError(KafkaError._PARTITION_EOF)
        offset = self.assigned[topic, number]
        return SimpleNamespace(
            error=lambda: error, offset=lambda: offset, topic=lambda: topic, partition=lambda: number
        )


def taken_over(monkeypatch, ends, client=None, **held):
    """Return what sources go on with, each in the partition that its name is."""
    client = client or Records()
    monkeypatch.setattr("bridge.positions.last_record.time.monotonic", lambda: client.now)
    monkeypatch.setattr(OffsetSpec, "latest", lambda: LATEST)
    routes = {f"a/{n}": SourceRoute(f"a/{n}", "s", (number(n),), None, "s", "", "s.withheld") for n in held}
    results = {
        f"a/{n}": Committed(Position(1, 9, 0), "", "", {("s", number(n)): 5}, withheld) for n, withheld in held.items()
    }
    ends = {("s.withheld", number(n)): each for n, each in ends.items()}
    changed = known_withheld(client, Admin(ends), routes, results)
    return {source[2:]: each for source, each in (results | changed).items()}


def number(name):
    return "xyz".index(name)


LATEST = object()
WAITING = Withheld(9, {"public.t": WithheldTable(Position(1, 5, 0), 3)})


def test_a_source_goes_on_with_what_is_withheld_where_its_topic_still_has_it(monkeypatch):
    result = taken_over(monkeypatch, {"x": (0, 9), "y": (0, 12), "z": (4, 4)}, x=WAITING, y=Withheld(9), z=None)
    assert [result[name].withheld for name in "xyz"] == [WAITING, Withheld(9), Withheld(4)]


def test_a_source_whose_withheld_records_went_with_their_topic_does_not_go_on(monkeypatch):
    result = taken_over(monkeypatch, {"x": (0, 8), "y": (0, 1)}, x=WAITING, y=Withheld(9))
    assert isinstance(result["x"], NeedsOperator)
    assert "public.t" in result["x"].message
    # of which nothing was withheld, there is nothing to lose
    assert result["y"].withheld == Withheld(1)


def test_a_partition_that_cannot_be_looked_at_keeps_no_other_source_from_going_on(monkeypatch):
    found = taken_over(monkeypatch, {"x": None, "y": (0, 9)}, x=Withheld(9), y=WAITING, z=None)
    assert isinstance(found["x"], NotConnected)
    assert found["y"].withheld == WAITING
    assert "no partition 2" in found["z"].message
    found = taken_over(monkeypatch, {}, x=Withheld(9))
    assert isinstance(found["x"], NeedsOperator)


def test_partitions_are_read_at_once_where_it_is_not_known_what_was_withheld(monkeypatch):
    """One after the other: those behind one whose broker hung waited for ten seconds, each time."""
    client = Records(having={2}, silent={1})
    result = taken_over(monkeypatch, dict.fromkeys("xyz", (3, 9)), client, x=None, y=None, z=None)
    assert result["x"].withheld == Withheld(9)
    assert isinstance(result["y"], NotConnected)
    assert "holds withheld records" in result["z"].message
    assert client.requests == 1
    assert client.now < 3


def test_what_keeps_a_source_from_being_gone_on_with_is_logged_once(monkeypatch, caplog):
    served = Served()
    served.send(3)

    def refuse(*_args, **_more):
        raise NeedsOperator("Kafka: cannot read withheld records")

    with monkeypatch.context() as patched:
        patched.setattr(served.bridge.releaser._reader, "read", refuse)
        for _ in range(5):
            served.bridge.release()
            # between two looks
            served.bridge.releaser.turn(0)
    # and shown in place of what the registry said once
    assert served.bridge.state.figures.withheld == {"public.t": "Kafka: cannot read withheld records"}
    served.bridge.release()
    assert served.bridge.state.figures.withheld == {"public.t": "s.public.t-value is refused"}
    lines = [each for each in caplog.records if "cannot read withheld records" in each.getMessage()]
    assert len(lines) == 1


def test_a_table_that_is_released_for_long_is_no_stall():
    served = Served((10, *[110] * 60))
    served.send(61)
    now = [100.0]
    stalls = Stalls(lambda: served.bridge.registry.states, lambda: now[0])
    figures = served.bridge.state.figures
    figures.hear({"unacknowledged_batches": 3}, 10)
    figures.settle(None)
    served.schemas.refused.clear()
    steps = 0
    while served.session.withheld.tables:
        served.bridge.release()
        served.bridge.turn()
        # It takes no deliveries meanwhile.
        figures.heard_at, now[0], steps = figures.heard_at - 10, now[0] + STALLED_SECONDS / 2, steps + 1
        stalls.look()
        assert figures.stalled_seconds is None
    assert steps > 4
    # and one that does not move is one
    for _ in range(3):
        now[0] += STALLED_SECONDS / 2
        stalls.look()
    assert figures.stalled_seconds is not None


def test_what_is_withheld_of_a_batch_that_does_not_shrink_goes_into_topics_of_1_mb():
    chance = random.Random(2)
    head = b"\0\0\0\0" + bytes([10])
    # two records of each position, as deletes and their tombstones are
    positions = [(100 + n // 2, 0, 1) for n in range(40)]
    values = [head + chance.randbytes(100_000) for _ in positions]
    given = Batch(
        source=SOURCE, follows=Position(1, 1, 0), first=Position(1, 100, 0), last=Position(1, 119, 0), segments=positions,
        keys=[head + b"1"] * 40, values=values, written=[schema_of("t", 10)],
    )  # fmt: skip
    served = Served()
    withheld = Withheld(3, {"public.t": WithheldTable(Position(1, 1, 0), 2)})
    (share,) = divide(given, 0, served.bridge.state.route, served.schemas, withheld, given.follows).shares
    parts = [batch_of(share.headers[n], value, "here") for n, value in enumerate(share.values)]
    assert max(map(len, share.values)) < 1_000_000
    assert set(share.keys) == {f"{SOURCE} public.t".encode()}
    assert [value for part in parts for value in part.values] == values
    assert len({position for part in parts for position in set(part.positions())}) == sum(
        len(set(part.positions())) for part in parts
    )


def test_sources_that_share_a_subject_do_not_all_stop_for_their_releases_at_once():
    served = Served()
    route = served.bridge.state.route
    withheld = Withheld(100, {"public.t": WithheldTable(Position(1, 5, 0), 3)})
    sessions = [Session(f"a/{n}", 1, Committed(TAIL, "", "", {}, withheld), lambda _session: None) for n in range(100)]
    states = {
        each.source: SimpleNamespace(route=route._replace(partitions=(n,)), session=each)
        for n, each in enumerate(sessions)
    }
    registry = SimpleNamespace(states=states, ready=SimpleNamespace(notify=lambda _session: None))
    served.broker.logs |= {(WITHHELD, n): [None] * 100 for n in range(100)}
    now = [0.0]
    releaser = Releaser(registry, served.schemas, Reader(served.broker), lambda: now[0])
    begun = set()
    for _ in range(10):
        now[0] += 10
        releaser.turn(0)
        releasing = {each for each in sessions if each.release.table}
        assert len(releasing) <= 20
        begun |= releasing
        for each in releasing:
            # as their lane does
            each.withheld = Withheld(100)
            each.release.end()
    # then each had its turn
    assert begun == set(sessions)


def test_a_source_that_waits_for_one_table_too_many_goes_on_when_another_one_is_released(monkeypatch):
    # when a second table does not fit into what is committed
    monkeypatch.setattr("bridge.model.chain._LONGEST", 60)
    served = Served()
    served.edge.changes.append(Change(Position(1, 200, 0), "u", 120, 1))
    served.schemas.refused.add(schema_of("u", 120).value)
    served.send(4)
    assert list(served.session.withheld.tables) == ["public.t"]
    served.send(5)
    assert served.session.tail < served.edge.changes[-1].position
    # and the first one may be released, while sessions last no longer than an edge takes to send
    served.schemas.refused.remove(REFUSED)
    served.edge.chance = SimpleNamespace(randint=lambda least, _most: least)
    for _ in range(20):
        served.bridge.turn()
        served.edge.send(served.bridge, 5)
        for lane in served.bridge.lanes:
            lane.turn(0)
        served.bridge.release()
    assert list(served.session.withheld.tables) == ["public.u"]
    assert served.session.tail == served.edge.changes[-1].position


def test_much_of_other_tables_is_passed_over_in_steps_that_others_need_not_wait_for_long(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("bridge.withheld.releaser.time", SimpleNamespace(monotonic=lambda: now[0]))

    class Client:
        at = 0

        def list_topics(self, topic, timeout):
            described = SimpleNamespace(error=None, partitions={0: SimpleNamespace(leader=1)})
            return SimpleNamespace(topics={topic: described})

        def get_watermark_offsets(self, _place, timeout):
            return 0, 10_000

        def assign(self, places):
            (place,) = places
            self.at = place.offset

        def unassign(self):
            pass

        def consume(self, many, timeout):
            now[0] += 0.3
            offsets, self.at = range(self.at, self.at + many), self.at + many
            return [
                SimpleNamespace(error=lambda: None, offset=lambda each=each: each, key=lambda: b"a/b other")
                for each in offsets
            ]

    reader = KafkaReader(KafkaConnection(bootstrap="k:1"), "", None)
    reader._client._client = Client()
    began, upto, steps = 0.0, 0, 0
    while upto < 10_000:
        began, steps = now[0], steps + 1
        found, upto = reader.read(PLACE, b"a/b public.t", upto, 10_000)
        assert not found
        assert now[0] - began < 2
    assert steps > 10


def test_an_idle_source_commits_what_is_withheld_again_before_kafka_forgets_it():
    served = Served()
    served.send(4)
    before = parse(served.broker.text)
    assert list(before.withheld.tables) == ["public.t"]
    # given the loss of what was committed, which stands for a commit of days ago
    served.broker.text = ""
    # when
    served.bridge.registry.recommit(-1.0)
    served.turn()
    # then
    after = parse(served.broker.text)
    assert (after.position, after.withheld) == (before.position, before.withheld)


def test_a_withheld_record_that_its_topic_does_not_take_ends_the_release_of_its_table_alone(monkeypatch):
    """K13: its whole source stopped, in rounds of five seconds."""
    served = Served()
    served.edge.changes.append(Change(Position(1, 200, 0), "u", 120, 1))
    served.edge.changes.append(Change(Position(1, 201, 0), "v", 10, 1))
    served.schemas.refused.add(schema_of("u", 120).value)
    served.send(5)
    assert list(served.session.withheld.tables) == ["public.t", "public.u"]
    # when the registry takes both, and the topic of one has a lower limit by now
    too_large = {"s.public.t"}
    for lane in served.bridge.lanes:
        monkeypatch.setattr(lane._limits, "exceeded_by", lambda share: share.topic in too_large)
        monkeypatch.setattr(lane._limits, "refresh", lambda _topics: False)
    served.schemas.refused.clear()
    session = served.session
    for _ in range(8):
        served.bridge.release()
        served.turn()
    # then the other is released, and the source goes on in the same session
    assert list(session.withheld.tables) == ["public.t"]
    assert "max.message.bytes of s.public.t: raise it" in served.bridge.state.figures.withheld["public.t"]
    served.send(6)
    assert (served.session, session.tail) == (session, served.edge.changes[-1].position)
    # and that one too, once its topic takes it
    too_large.clear()
    monkeypatch.setattr("bridge.source.session._PUT_OFF_SECONDS", 0.0)
    session.release._put_off.clear()
    for _ in range(8):
        served.bridge.release()
        served.turn()
    assert session.withheld.tables == {}
    assert [value[5:] for _, value, _ in served.broker.values("s.public.t")] == [
        each.payload for each in served.edge.changes if each.table == "t"
    ]
