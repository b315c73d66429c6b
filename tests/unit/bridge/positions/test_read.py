"""Positions of many sources in few requests: what only one of them needs is waited for by nobody else."""

import json
import threading
from types import SimpleNamespace

import pytest

from bridge.group.membership import Recovery
from bridge.kafka.client import KafkaError, KafkaException, OffsetSpec
from bridge.model.chain import position_text
from bridge.model.ports import Committed
from bridge.model.route import SourceRoute
from bridge.positions import read as read_module
from bridge.positions.former import read_former
from bridge.positions.read import Positions
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NeedsOperator, NotConnected
from headrace.position import Position

KNOWN, NEW, OTHER = [f"a/s{n}" for n in range(4)], "a/new", "a/other"
AT = Position(7, 5, 0)
NO_LEADER, NO_PARTITION, EMPTY, NO_ANSWER = "no leader", "no partition", "empty", "no answer"


class Cluster:
    """A group that has positions of four sources; the partition of a fifth, which has none, is in a state of its own."""

    def __init__(self, monkeypatch, partition=EMPTY):
        self.partition = partition
        self.asked = []
        self.error = None
        self.ended = []
        #: The groups of a former release, and why it is not known of some brokers which they have.
        self.groups, self.not_listed = [], []
        #: The last record of partitions that have any: of whom, and at which position.
        self.last = {}
        #: Partitions of which nothing comes; and what happens while records are waited for.
        self.silent, self.passes = set(), lambda _seconds: None
        self.routes = {source: SourceRoute(source, "bank", (n,)) for n, source in enumerate([*KNOWN, NEW, OTHER])}
        self.held = {("bank", n): position_text(source, AT, "host/1/aa/b2") for n, source in enumerate(KNOWN)}
        monkeypatch.setattr(read_module, "consumer", lambda *_: self)
        monkeypatch.setattr("bridge.kafka.entries.consumer", lambda *_: self)
        monkeypatch.setattr("bridge.kafka.entries.uncommitted_consumer", lambda *_: self)

    def list_topics(self, topic=None, timeout=None):
        self.asked.append("topics")
        leader = {NO_LEADER: -1}.get(self.partition, 1)
        partitions = {n: SimpleNamespace(leader=1) for n in range(6)} | {4: SimpleNamespace(leader=leader)}
        if self.partition == NO_PARTITION:
            del partitions[4]
        return SimpleNamespace(topics={"bank": SimpleNamespace(error=None, partitions=partitions)})

    def committed(self, places, timeout=None):
        self.asked.append("committed")
        if self.error is not None and len(places) > self.error[1]:
            raise KafkaException(KafkaError(self.error[0]))
        return [
            SimpleNamespace(
                topic=each.topic,
                partition=each.partition,
                offset=9 if (each.topic, each.partition) in self.held else -1001,
                metadata=self.held.get((each.topic, each.partition)),
                error=None,
            )
            for each in places
        ]

    def list_offsets(self, asked, request_timeout=None, **_):
        self.asked.append("offsets")
        return {place: self._end(place, first=spec is OffsetSpec.earliest()) for place, spec in asked.items()}

    def _end(self, place, *, first):
        def result():
            if self.partition == NO_ANSWER and place.partition == 4:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            is_empty = place.partition not in self.last and (place.partition == 5 or self.partition == EMPTY)
            return SimpleNamespace(offset=0 if first or is_empty else 7)

        return SimpleNamespace(result=result)

    def get_watermark_offsets(self, place, timeout=None):
        return 0, 7 if place.partition in self.last else 0

    def assign(self, places):
        self.assigned = {(each.topic, each.partition) for each in places}

    def incremental_assign(self, places):
        self.asked.append("assign")
        self.assigned |= {(each.topic, each.partition) for each in places}

    def incremental_unassign(self, places):
        self.assigned -= {(each.topic, each.partition) for each in places}

    def unassign(self):
        self.assigned = set()

    def consume(self, _many, timeout=None):
        self.passes(timeout)
        return [self._record(topic, number) for topic, number in sorted(self.assigned) if number not in self.silent]

    def _record(self, topic, number):
        source, position = self.last.get(number, ("a/nobody", AT))
        value = json.dumps({"source": {"name": source, "position": str(position)}}).encode()
        return SimpleNamespace(
            error=lambda: None, offset=lambda: 6, value=lambda: value, topic=lambda: topic, partition=lambda: number
        )

    def list_consumer_groups(self, request_timeout=None):
        self.asked.append("groups")
        valid = [SimpleNamespace(group_id=group) for group in self.groups]
        return SimpleNamespace(result=lambda: SimpleNamespace(errors=self.not_listed, valid=valid))

    def close(self):
        pass

    def end(self, group, places):
        self.ended.append(places)

    def positions(self, *, searches):
        return Positions(KafkaConnection(bootstrap="k:1"), self, "g", self.routes, self, searches=searches)


def recoveries(cluster):
    """Return what a bridge has: a recovery that reads the group, and one that searches; with what they found."""
    first, second = (Recovery(cluster.positions(searches=searches)) for searches in (False, True))
    served, unreadable = {}, {}
    first.search = second.add
    for each in (first, second):
        each.serve = lambda source, _lease, committed: served.update({source: committed})
        each.unreadable = lambda source, _lease, error: unreadable.update({source: error})
    for source in cluster.routes:
        first.add(source, 1)
    return first, second, served, unreadable


@pytest.mark.parametrize("partition", [NO_LEADER, NO_PARTITION, NO_ANSWER])
def test_a_partition_that_cannot_be_read_is_its_sources_affair_alone(monkeypatch, partition):
    """K2: nobody was served as long as one due source had no position and its partition no leader."""
    cluster = Cluster(monkeypatch, partition)
    first, second, served, unreadable = recoveries(cluster)
    first.turn(0)
    # before anything else is asked for: what may take long is another recovery's
    assert {source: each.position for source, each in served.items()} == dict.fromkeys(KNOWN, AT)
    assert cluster.asked == ["topics", "committed", "committed"]
    second.turn(0)
    assert served.keys() == {*KNOWN, OTHER}
    assert served[OTHER].offsets == {("bank", 5): 0}
    assert isinstance(unreadable.pop(NEW), NeedsOperator if partition == NO_PARTITION else NotConnected)
    assert (unreadable, first.trouble, second.trouble) == ({}, "", "")


def test_transactions_of_others_are_ended_only_where_they_hold_positions_back(monkeypatch):
    """K2: any partition without a leader had healthy lanes of former owners fenced, every 15 seconds."""
    cluster = Cluster(monkeypatch, NO_LEADER)
    first, second, _, _ = recoveries(cluster)
    first.turn(0)
    second.turn(0)
    assert cluster.ended == []
    cluster.error = (KafkaError._TIMED_OUT, 0)
    with pytest.raises(NotConnected):
        cluster.positions(searches=False).read(KNOWN[:1])
    assert cluster.ended == []
    # the first look, at what may still change, is answered
    reader = cluster.positions(searches=False)
    cluster.error = None
    reader.read(KNOWN[:1])
    cluster.error = (KafkaError._TIMED_OUT, 0)
    with pytest.raises(NotConnected):
        reader.read(KNOWN[:1])
    assert cluster.ended == [{("bank", 0)}]


def test_after_a_failure_fewer_are_read_at_once_so_that_one_holds_up_no_other_for_ever(monkeypatch):
    """K2: one position that an open transaction holds back kept 249 others waiting."""
    cluster = Cluster(monkeypatch)
    clock = SimpleNamespace(now=0.0)
    reader = cluster.positions(searches=False)
    reader.read(KNOWN[:1])
    recovery, served = Recovery(reader, lambda: clock.now), []
    recovery.serve = lambda source, _lease, _committed: served.append(source)
    for source in KNOWN:
        recovery.add(source, 1)
    cluster.error = (KafkaError._TIMED_OUT, 1)
    for _ in range(8):
        recovery.turn(0)
        clock.now += 10
    assert sorted(served) == KNOWN


def test_a_read_asks_for_former_groups_only_where_a_source_has_no_position(monkeypatch):
    """K5: with a listed broker down, asking for groups of release 0.1 took 10 s of each read."""
    cluster = Cluster(monkeypatch)
    reader = cluster.positions(searches=True)
    reader.read(KNOWN)
    assert "groups" not in cluster.asked
    reader.read([NEW])
    assert cluster.asked.count("groups") == 1


def test_the_number_of_requests_does_not_grow_with_the_sources(monkeypatch):
    """K5: each source without position was asked for in its own requests."""
    cluster = Cluster(monkeypatch)
    first, second, served, _ = recoveries(cluster)
    first.turn(0)
    second.turn(0)
    assert served.keys() == cluster.routes.keys()
    few = len(cluster.asked)
    cluster.asked.clear()
    cluster.routes = {f"a/n{n}": SourceRoute(f"a/n{n}", "bank", (5,)) for n in range(200)}
    first, second, served, _ = recoveries(cluster)
    first.turn(0)
    second.turn(0)
    assert served.keys() == cluster.routes.keys()
    assert len(cluster.asked) == few


def test_where_not_all_brokers_name_their_groups_no_source_is_asked_for_alone(monkeypatch):
    """K5: each source without position was asked for in a connection of its own, two seconds each."""
    cluster = Cluster(monkeypatch)
    cluster.not_listed = [KafkaException(KafkaError(KafkaError._TRANSPORT))]
    cluster.groups = [f"headrace.{NEW}"]
    monkeypatch.setattr("bridge.positions.former.take_over_former", lambda _connection, _route: held)
    held = Committed(AT, "", "", {("bank", 4): 3})
    first, second, served, unreadable = recoveries(cluster)
    first.turn(0)
    few = cluster.asked.count("committed")
    second.turn(0)
    assert cluster.asked.count("committed") == 2 * few
    # what was named is known
    assert served.keys() == {*KNOWN, NEW}
    assert served[NEW] == held
    assert isinstance(unreadable.pop(OTHER), NotConnected)
    assert unreadable == {}
    # when the broker answers again, or the cluster has it no more
    cluster.not_listed = []
    second.add(OTHER, 1)
    second.turn(0)
    assert served[OTHER].position is None


def test_groups_of_a_former_release_are_taken_over_at_once(monkeypatch):
    """At an upgrade from 0.1 each took half a second, one after the other, and nobody of them was served before the last."""
    cluster = Cluster(monkeypatch)
    cluster.held, cluster.groups = {}, [f"headrace.{source}" for source in KNOWN]
    together = threading.Barrier(len(KNOWN))

    def take_over(_connection, route):
        together.wait(10)
        if route.source == KNOWN[0]:
            raise NotConnected("Kafka: its coordinator does not answer")
        return Committed(AT, "", "", dict.fromkeys(route.places, 3))

    monkeypatch.setattr("bridge.positions.former.take_over_former", take_over)
    results = cluster.positions(searches=True).read(KNOWN)
    assert isinstance(results[KNOWN[0]], NotConnected)
    assert [results[source].position for source in KNOWN[1:]] == [AT] * 3


FOREIGN = ["", "1732627200", "2 not a position 2026 a/s1 b", "9 something of a newer release"]


def test_the_last_records_of_all_are_read_at_once_and_one_of_which_nothing_comes_holds_up_no_other(monkeypatch):
    """Each source was read after the other, and one whose broker hung held up each that came behind it by ten seconds."""
    cluster, now = Cluster(monkeypatch), [0.0]
    monkeypatch.setattr("bridge.positions.last_record.time.monotonic", lambda: now[0])
    cluster.passes = lambda seconds: now.__setitem__(0, now[0] + seconds)
    cluster.held, cluster.last = {}, dict(enumerate((source, AT) for source in KNOWN))
    cluster.silent = {1}
    results = cluster.positions(searches=True).read(KNOWN)
    assert {source: results[source].position for source in KNOWN if source != KNOWN[1]} == dict.fromkeys(
        [KNOWN[0], *KNOWN[2:]], AT
    )
    assert "could not be read" in results[KNOWN[1]].message
    assert now[0] < 3
    assert cluster.asked.count("assign") == 1
    # where nothing comes of any, a slow cluster has its time
    cluster.silent = {0, 1, 2, 3}
    began = now[0]
    results = cluster.positions(searches=True).read(KNOWN)
    assert all(isinstance(result, NotConnected) for result in results.values())
    assert 10 <= now[0] - began < 11


@pytest.mark.parametrize("text", FOREIGN)
def test_what_somebody_else_committed_for_one_partition_stops_no_source_that_has_a_position(monkeypatch, text):
    """`kafka-consumer-groups --reset-offsets` for one partition stopped every source of its topic."""
    cluster = Cluster(monkeypatch)
    cluster.held["bank", 1] = text
    first, second, served, unreadable = recoveries(cluster)
    for _ in range(2):
        first.turn(0)
        second.turn(0)
    # What is no bridge's may have been the position of a source that has none.
    assert served.keys() == {*KNOWN} - {KNOWN[1]}
    assert unreadable.keys() == {KNOWN[1], NEW, OTHER}
    said = "has version 9" if text.startswith("9") else "did not write: bank[1]"
    for error in unreadable.values():
        assert isinstance(error, NeedsOperator)
        assert said in error.message
    # Once it is removed, the same readers know the position from the last record, and the others begin.
    del cluster.held["bank", 1]
    cluster.last[1] = KNOWN[1], AT
    for source in unreadable:
        first.add(source, 1)
    for _ in range(2):
        first.turn(0)
        second.turn(0)
    assert {source: each.position for source, each in served.items()} == {
        **dict.fromkeys(KNOWN, AT),
        NEW: None,
        OTHER: None,
    }


@pytest.mark.parametrize("text", FOREIGN)
def test_a_source_that_left_the_partition_that_somebody_else_committed_does_not_begin_from_nothing(monkeypatch, text):
    """Its position was there; in the partition that the file gives it nothing is wrong."""
    cluster = Cluster(monkeypatch)
    cluster.held["bank", 1] = text
    cluster.last[1] = KNOWN[1], AT
    cluster.routes = {KNOWN[1]: SourceRoute(KNOWN[1], "bank", (5,)), KNOWN[0]: SourceRoute(KNOWN[0], "bank", (0,))}
    for searches in (False, True):
        result = cluster.positions(searches=searches).read(cluster.routes)
        assert result[KNOWN[0]].position == AT
        assert isinstance(result[KNOWN[1]], NeedsOperator)
    # nor does one to which the file gives it
    cluster.routes = {"a/fresh": SourceRoute("a/fresh", "bank", (1,))}
    assert isinstance(cluster.positions(searches=True).read(["a/fresh"])["a/fresh"], NeedsOperator)


def owner(cluster, text, partitions=(1, 5), order=(1, 5)):
    """Have a source own partitions, of which the last holds a text of somebody else's; return what two readers find of it."""
    own = position_text(OTHER, AT, "host/1/aa/b2", partitions=order)
    cluster.routes = {OTHER: SourceRoute(OTHER, "bank", partitions)}
    cluster.held = {("bank", n): own for n in (1, 5)} | {("bank", 5): text}
    return [cluster.positions(searches=searches).read([OTHER])[OTHER] for searches in (False, True)]


def test_a_source_of_several_partitions_goes_on_from_what_the_intact_ones_hold(monkeypatch):
    """One foreign offset stopped it, and the hint led into another error: "owned bank[1] until now"."""
    cluster = Cluster(monkeypatch)
    for each in owner(cluster, ""):
        assert (each.position, each.offsets) == (AT, {("bank", 1): 9, ("bank", 5): 9})
    # A newer bridge may know of a later position.
    for each in owner(cluster, "9 something of a newer release"):
        assert "has version 9" in each.message
    # The file has others than the intact text names.
    for each in owner(cluster, "", partitions=(1,), order=(1, 5)):
        assert "owned bank[1], bank[5] until now, and the bridge's file names bank[1]" in each.message
    for each in owner(cluster, "", order=(5, 1)):
        assert "had its partitions in the order [5, 1]" in each.message


def test_a_partition_is_not_given_back_to_a_source_that_lost_it(monkeypatch):
    """Its present owner, whose position was there, began from nothing where Kafka had removed its records."""
    cluster = Cluster(monkeypatch)
    gone, owner = KNOWN[0], OTHER
    cluster.held = {("bank", 0): "", ("bank", 1): position_text(gone, AT, "host/1/aa/b2", partitions=(0, 1))}
    cluster.routes = {owner: SourceRoute(owner, "bank", (0,))}
    for searches in (False, True):
        assert "did not write: bank[0]" in cluster.positions(searches=searches).read([owner])[owner].message
    # What the file gives to the source that names it is its own, whatever the text of one that is gone names.
    cluster.routes = {owner: SourceRoute(owner, "bank", (2, 0))}
    cluster.held["bank", 2] = position_text(owner, Position(8, 1, 0), "host/1/aa/b2", partitions=(2, 0))
    read = cluster.positions(searches=False).read([owner])[owner]
    assert (read.position, read.offsets.keys()) == (Position(8, 1, 0), {("bank", 0), ("bank", 2)})


def test_where_no_text_names_the_partitions_the_hint_leads_out(monkeypatch):
    """Texts of releases before name no order: the foreign partition may be one that the file has given the source since."""
    cluster = Cluster(monkeypatch)
    for found in owner(cluster, "", order=()):
        assert "did not write: bank[5]" in found.message
        assert "--delete-offsets --group g --topic bank:5'; then 'headrace bridge move a/other'" in found.hint
    # as it says; test_move.py has the move
    del cluster.held["bank", 5]
    found = cluster.positions(searches=False).read([OTHER])[OTHER]
    assert "owned bank[1] until now, and the bridge's file names bank[1], bank[5]" in found.message
    assert "'headrace bridge move a/other'" in found.hint


@pytest.mark.parametrize("other", ["", "2 - 2026-11-01T10:00:00.000Z a/other host/1/aa/b2"])
def test_where_no_partition_holds_the_position_the_hint_leads_to_the_last_record(monkeypatch, other):
    cluster = Cluster(monkeypatch)
    cluster.routes = {OTHER: SourceRoute(OTHER, "bank", (1, 5))}
    cluster.held = {("bank", 1): other, ("bank", 5): ""}
    found = cluster.positions(searches=True).read([OTHER])[OTHER]
    assert "--delete-offsets --group g --topic bank:1,5'" in found.hint
    # as it says
    cluster.held, cluster.last[1] = {}, (OTHER, AT)
    found = cluster.positions(searches=True).read([OTHER])[OTHER]
    assert (found.position, found.offsets.keys()) == (AT, {("bank", 1), ("bank", 5)})


def test_no_hint_is_to_delete_the_position_of_another_source(monkeypatch):
    """The file gives a source a partition that another one has not left."""
    cluster = Cluster(monkeypatch)
    cluster.routes[OTHER] = SourceRoute(OTHER, "bank", (1, 5))
    cluster.held["bank", 5] = ""
    found = cluster.positions(searches=False).read([OTHER])[OTHER]
    assert "did not write: bank[5]" in found.message
    assert "--delete-offsets --group g --topic bank:5'" in found.hint
    # as it says
    del cluster.held["bank", 5]
    found = cluster.positions(searches=False).read([OTHER])[OTHER]
    assert f"holds the position of {KNOWN[1]}" in found.message


def test_a_group_of_a_former_release_with_a_foreign_offset_is_named_with_the_way_out(monkeypatch):
    cluster = Cluster(monkeypatch)
    cluster.held = {("bank", 3): ""}
    with pytest.raises(NeedsOperator, match="did not write") as raised:
        read_former(None, cluster.routes[OTHER])
    assert "--delete-offsets --group headrace.a/other --topic bank:3,5'" in raised.value.hint
    cluster.held["bank", 5] = f"{AT} 2026-11-01T10:00:00.000Z host/17/0a1b2c3d"
    with pytest.raises(NeedsOperator, match="did not write") as raised:
        read_former(None, cluster.routes[OTHER])
    assert "--delete-offsets --group headrace.a/other --topic bank:3'; then" in raised.value.hint


@pytest.mark.parametrize(("committed", "is_served"), [((1, 0), False), ((0, 1), True), ((), True)])
def test_partitions_in_another_order_are_refused_as_keys_would_move(monkeypatch, committed, is_served):
    """The set of partitions was compared alone; a key goes to `partitions[crc32(key) % how many]`."""
    cluster = Cluster(monkeypatch)
    cluster.routes = {OTHER: SourceRoute(OTHER, "bank", (0, 1))}
    text = position_text(OTHER, AT, "host/1/aa/b2", partitions=committed)
    cluster.held = {("bank", 0): text, ("bank", 1): text}
    result = cluster.positions(searches=False).read([OTHER])[OTHER]
    if is_served:
        assert result.position == AT
    else:
        assert isinstance(result, NeedsOperator)
        assert "had its partitions in the order [1, 0] until now, and the bridge's file has [0, 1]" in result.message
