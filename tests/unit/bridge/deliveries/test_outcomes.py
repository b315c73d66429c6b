"""Deliveries under random outcomes: partitions move between two bridges, which are killed; a receiver that forgets nothing."""

from hypothesis import given
from hypothesis import strategies as st

from bridge.deliveries.outbox import Outbox
from bridge.deliveries.record import DeliveryMetrics, Record
from headrace.configuration.sections import Delivery

PARTITIONS = 3


class Bridge:
    """One bridge's outbox, and what it has on the way."""

    def __init__(self, window):
        self.outbox = Outbox(
            "alerts",
            Delivery(address="alerts/{region}", window=window),
            DeliveryMetrics(),
            pause=lambda _sends: 0.0,
        )
        self.sent = []
        #: Of each partition that it has, the next offset to read.
        self.reads = {}


class World:
    """Kafka (a log, committed offsets, dead letters), two bridges and a receiver."""

    def __init__(self, records, chance, window):
        self.chance, self.window = chance, window
        self.log = {partition: [] for partition in range(PARTITIONS)}
        for key, partition in records:
            self.log[partition].append(Record("alerts", partition, len(self.log[partition]), key, b""))
        self.committed = dict.fromkeys(self.log, 0)
        self.letters, self.accepted = [], []
        self.bridges = [Bridge(window), Bridge(window)]
        for partition in self.log:
            self.own(0, partition)

    def own(self, number, partition):
        self.bridges[number].reads[partition] = self.committed[partition]
        self.bridges[number].outbox.assign(partition)

    # What may happen to a bridge.

    def read(self, bridge):
        for partition, offset in bridge.reads.items():
            if offset < len(self.log[partition]):
                bridge.outbox.read(self.log[partition][offset])
                bridge.reads[partition] += 1
            else:
                bridge.outbox.reach(partition, offset)

    def send(self, bridge):
        for address in bridge.outbox.addresses():
            if (entry := bridge.outbox.take(address)) is not None:
                bridge.sent.append(entry)

    def bury(self, bridge):
        for entry in bridge.outbox.take_condemned():
            self.letters.append(entry.record)
            bridge.outbox.note_buried(entry)

    def fail_to_bury(self, bridge):
        for entry in bridge.outbox.take_condemned():
            bridge.outbox.bury_again(entry)

    def commit(self, bridge):
        for partition, offset in bridge.outbox.committable().items():
            settled = {*self.accepted, *self.letters}
            assert settled.issuperset(self.log[partition][:offset]), "committed before it was settled"
            self.committed[partition] = offset
            bridge.outbox.committed({partition: offset})

    def accept(self, bridge):
        if entry := self.one(bridge):
            self.accepted.append(entry.record)
            bridge.outbox.accepted(entry)

    def accept_unheard(self, bridge):
        if entry := self.one(bridge):
            self.accepted.append(entry.record)
            bridge.outbox.lost(entry)

    def release(self, bridge):
        if entry := self.one(bridge):
            bridge.outbox.returned(entry)

    def reject(self, bridge):
        if entry := self.one(bridge):
            bridge.outbox.rejected(entry, "no", "no")

    def one(self, bridge):
        return bridge.sent.pop(self.chance.randrange(len(bridge.sent))) if bridge.sent else None

    def kill(self, bridge):
        """What it knew is gone; what it had sent may be accepted all the same."""
        self.accepted += [entry.record for entry in bridge.sent if self.chance.random() < 0.5]
        number = self.bridges.index(bridge)
        self.bridges[number] = Bridge(self.window)
        for partition in bridge.reads:
            self.own(number, partition)

    def move(self, bridge):
        if bridge.reads:
            partition = self.chance.choice(sorted(bridge.reads))
            del bridge.reads[partition]
            bridge.outbox.revoke(partition)
            self.own(1 - self.bridges.index(bridge), partition)


STEPS = [
    *(World.read, World.send, World.send, World.accept, World.accept, World.accept_unheard, World.release),
    *(World.reject, World.bury, World.fail_to_bury, World.commit, World.commit, World.kill, World.move),
]


@given(
    records=st.lists(
        st.tuples(st.sampled_from([b"a/1", b"a/2", b"b/1", None]), st.integers(0, PARTITIONS - 1)), max_size=60
    ),
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1)), max_size=200),
    window=st.integers(1, 4),
    chance=st.randoms(use_true_random=False),
)
def test_nothing_is_lost_and_each_key_is_in_order_whatever_happens(records, steps, window, chance):
    world = World(records, chance, window)
    for step, number in steps:
        step(world, world.bridges[number])
    # From here on all goes well.
    for _ in range(3 * len(records) + 3):
        for step in (World.read, World.send, World.accept, World.bury, World.commit):
            for bridge in world.bridges:
                step(world, bridge)
    assert world.committed == {partition: len(log) for partition, log in world.log.items()}
    everything = [record for log in world.log.values() for record in log]
    assert {*world.accepted, *world.letters} == set(everything)
    # By their first copies: a receiver drops what it knows.
    first = list(dict.fromkeys(world.accepted))
    for key in {record.order_key for record in first}:
        offsets = [record.offset for record in first if record.order_key == key]
        assert offsets == sorted(offsets)
