"""A broker that answers, and lies: what is wrong with one partition is its source's affair, and nothing ends the bridge."""

import logging
import struct
import subprocess
import sys

import pytest

from bridge.group.client import KafkaMember
from bridge.group.membership import Recovery
from bridge.kafka.client import admin
from bridge.kafka.entries import reading
from bridge.kafka.producer import KafkaProducer, Leftovers
from bridge.kafka.topics import Wanted, check
from bridge.model.chain import position_text
from bridge.model.ports import GroupMetadata, PartitionsFailed, PositionCommit, Share
from bridge.model.route import SourceRoute
from bridge.positions.read import Positions
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.position import Position
from tests.hostile.lying_broker import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    COMMIT_OFFSETS,
    END,
    HEARTBEAT,
    JOIN,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FETCH,
    PRODUCE,
    SYNC,
    LyingBroker,
    Partition,
)
from tests.rules.waiting import eventually

HONEST, ODD, AT = [f"a/s{number}" for number in range(4)], "a/odd", Position(7, 5, 0)
ROUTES = {source: SourceRoute(source, "bank", (number,)) for number, source in enumerate([*HONEST, ODD])}


def committed(text):
    # librdkafka for Python writes the zero byte as well, and reads up to the next one.
    return Partition(offset=9, high=9, metadata=text if isinstance(text, bytes) else text.encode() + b"\0")


#: What the broker says of the partition of one of the sources.
LIES = {
    "nothing": Partition(),
    "no text": committed(b"\xff\xfe\0"),
    "an empty text": committed(b""),
    "a text that does not end": committed(b"2 0000"),
    "a long text": committed("2 " * 16_000),
    "an epoch that is none": committed("2 ffffffffffffffffff/0/0 x a/odd b"),
    "a position at the end of time": committed(position_text(ODD, Position(2**32 - 1, 2**64 - 1, 2**32 - 1), "b")),
    "an offset at the end of the log": Partition(offset=2**63 - 1, metadata=b"2 - 2026-01-31T09:15:00Z a/odd b\0"),
    "an unknown error": Partition(error=999),
    "that it does not know it": Partition(error=3),
    "that nobody may read it": Partition(error=29),
    "that it failed": Partition(error=-1),
    "no leader": Partition(leader=-1),
    "a leader that is no broker": Partition(leader=77),
    "an end before its beginning": Partition(low=10, high=3),
    "offsets below zero": Partition(low=-5, high=-2),
    "more records than there can be": Partition(high=2**63 - 1),
}
#: What becomes of a whole answer.
ANSWERS = {
    "throttled for ten minutes": (METADATA, lambda body: struct.pack(">i", 600_000) + body[4:]),
    "positions cut": (OFFSET_FETCH, lambda body: body[:-20]),
    "positions of other partitions": (OFFSET_FETCH, lambda body: body.replace(b"bank", b"bonk")),
    "positions without end": (OFFSET_FETCH, lambda body: b"\x7f\xff\xff\xff" + body[4:]),
    "offsets of other partitions": (LIST_OFFSETS, lambda body: body.replace(b"bank", b"bonk")),
    "topics cut": (METADATA, lambda body: body[:-20]),
    "other topics": (METADATA, lambda body: body.replace(b"bank", b"bonk")),
}


@pytest.fixture
def broker(monkeypatch):
    for module in ("positions.last_record", "kafka.entries", "positions.former"):
        monkeypatch.setattr(f"bridge.{module}.TIMEOUT", 1.0)
    honest = {number: committed(position_text(source, AT, "host/1/aa/other")) for number, source in enumerate(HONEST)}
    lying_broker = LyingBroker("bank", "g", honest | {4: Partition()})
    yield lying_broker
    lying_broker.close()


class Reading:
    """What a bridge has to read positions with."""

    def __init__(self, broker):
        connection = KafkaConnection(bootstrap=broker.bootstrap)
        leftovers = Leftovers(connection, "own", ["0"])
        readers = [
            Positions(connection, admin(connection), "g", ROUTES, leftovers, searches=searches)
            for searches in (False, True)
        ]
        self.recoveries = [Recovery(reader) for reader in readers]
        self.served, self.refused = {}, {}
        self.recoveries[0].search = self.recoveries[1].add
        for recovery in self.recoveries:
            recovery.serve = lambda source, _lease, found: self.served.update({source: found})
            recovery.unreadable = self._note
        for source in ROUTES:
            self.recoveries[0].add(source, 1)

    def _note(self, source, lease, error):
        self.refused[source] = error
        # As a bridge's registry does.
        self.recoveries[0].add(source, lease, 0.1)

    def turn(self):
        for recovery in self.recoveries:
            recovery.turn(0.05)
        return self.served.keys() | self.refused.keys()


@pytest.mark.parametrize("lie", LIES)
def test_what_is_wrong_with_one_partition_is_its_sources_affair(broker, lie):
    """One text that is no UTF-8, or one error, ended every bridge of the group, or kept every source of the topic waiting."""
    broker.partitions[4] = LIES[lie]
    reading = Reading(broker)
    eventually(lambda: reading.turn() == ROUTES.keys(), 30, saying="each source is judged")
    assert {source: reading.served[source].position for source in HONEST} == dict.fromkeys(HONEST, AT)
    assert reading.refused.keys() <= {ODD}
    # what is seen is believed of who says it alone: nobody's position is made up
    assert ODD not in reading.served or reading.served[ODD].position in {
        None,
        Position(2**32 - 1, 2**64 - 1, 2**32 - 1),
    }


@pytest.mark.parametrize("lie", ANSWERS)
def test_an_answer_that_none_gives_serves_nobody_wrongly_and_passes(broker, lie):
    kind, changed = ANSWERS[lie]
    broker.lies[kind] = changed
    reading = Reading(broker)
    for _ in range(3):
        reading.turn()
    assert {each.position for each in reading.served.values()} <= {AT, None}
    # with the truth again, all are served
    broker.lies.clear()
    for source in ROUTES:
        reading.recoveries[0].add(source, 1)
    reading.served.clear()
    eventually(lambda: reading.turn() and reading.served.keys() == ROUTES.keys(), 60, saying="all are served")
    assert {source: reading.served[source].position for source in HONEST} == dict.fromkeys(HONEST, AT)


#: Notes the brokers of a cluster at each line that it is given, and says how that ended.
NOTING = """
import sys
from bridge.kafka.client import admin
from bridge.kafka.errors import translated
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import ReplicationError
client = admin(KafkaConnection(bootstrap=sys.argv[1]))
for _ in sys.stdin:
    try:
        with translated("look at the brokers", client):
            client.note_brokers("bank", 5)
        print("noted", flush=True)
    except ReplicationError as error:
        print(type(error).__name__, flush=True)
"""


@pytest.mark.parametrize("with_topic", [False, True])
def test_a_cluster_whose_only_broker_is_fenced_ends_no_process_e18(broker, with_topic):
    """librdkafka's description of a cluster ended the process where a known cluster named no broker: `rko_result' failed."""
    named = struct.pack(">i", 1) + broker._broker() + struct.pack(">h", -1)

    def without_brokers(body):
        cut = body.replace(named, struct.pack(">i", 0))
        return cut if with_topic else cut[: 4 + 4 + 3 + 4] + struct.pack(">i", 0)

    command = [sys.executable, "-c", NOTING, broker.bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def note():
            process.stdin.write("\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        assert note() == "noted"
        broker.lies[METADATA] = without_brokers
        assert note() == ("noted" if with_topic else "Retryable")
        del broker.lies[METADATA]
        assert note() == "noted"
        process.stdin.close()
        assert process.wait(60) == 0


def test_transactions_are_ended_of_nobody_where_no_bridge_wrote_the_positions(broker, caplog):
    broker.partitions = dict.fromkeys(range(5), LIES["no text"]) | {
        0: committed("2 - 2026-01-31T09:15:00Z a/s0 a/name/of/none")
    }
    with caplog.at_level(logging.WARNING):
        Leftovers(KafkaConnection(bootstrap=broker.bootstrap), "own", ["0"]).end("g", [("bank", n) for n in range(5)])
    assert caplog.messages == ["positions are held back by open transactions, which end now: bridge none"]


#: By Kafka's protocol of consumers: version 0, one topic with one partition, no data.
_HAS_ONE = struct.pack(">hih4sii", 0, 1, 4, b"bank", 1, 1) + struct.pack(">i", -1)
MEMBERS = {
    "nobody": [],
    "a name that is empty": ("", "", "", b"", b""),
    "a name that is no text": (b"\xff\xfe".decode("latin-1") * 9, "c", "h", b"", b""),
    "an assignment that is none": ("m", "c", "h", b"\xff" * 50, b"\xff" * 50),
    "an assignment that is cut": ("m", "c", "h", _HAS_ONE, _HAS_ONE[:-8]),
    "an assignment without end": ("m", "c", "h", b"", struct.pack(">hi", 0, 2**31 - 1)),
}


@pytest.mark.parametrize("lie", MEMBERS)
def test_a_member_that_is_none_hides_no_other(broker, lie):
    broker.members = [("one", "c", "/127.0.0.1", b"", _HAS_ONE), *([MEMBERS[lie]] if MEMBERS[lie] else [])]
    connection = KafkaConnection(bootstrap=broker.bootstrap)
    member = KafkaMember(connection, admin(connection), "g", "own", 6.0)
    places = {("bank", number) for number in range(3)}
    try:
        unassigned = member.unassigned(places)
    except ReplicationError:
        unassigned = None
    # What is not known is looked at again; nobody's partition is taken for a free one.
    assert unassigned == places - {("bank", 1)} or (unassigned is None and lie != "nobody")
    member.close(leave=False)


#: What a coordinator answers who takes part in the group.
COORDINATOR = {
    "throttled for ten minutes": {
        kind: lambda body: struct.pack(">i", 600_000) + body[4:] for kind in (JOIN, SYNC, HEARTBEAT)
    },
    "an unknown error": {JOIN: lambda body: body[:4] + b"\x03\xe7" + body[6:]},
    "without end that others join": {JOIN: lambda body: body[:4] + b"\0\x1b" + body[6:]},
    "without end that it does not know the member": {JOIN: lambda body: body[:4] + b"\0\x19" + body[6:]},
    "a generation that is none": {JOIN: lambda body: body[:6] + b"\xff" * 4 + body[10:]},
    "another leader": {
        JOIN: lambda body: body.replace(b"member-1", b"member-2", 1),
        SYNC: lambda body: body[:6] + b"\0" * 4,
    },
    "members cut": {JOIN: lambda body: body[:-20]},
    "members without end": {JOIN: lambda body: body[:-20] + b"\x7f\xff\xff\xff"},
    "an assignment that is none": {SYNC: lambda body: body[:6] + b"\0\0\0\x04\xff\xff\xff\xff"},
    "an assignment of other topics": {SYNC: lambda body: body.replace(b"bank", b"bonk")},
    "an assignment cut": {SYNC: lambda body: body[:-8]},
    "after each heartbeat that others join": {HEARTBEAT: lambda body: body[:4] + b"\0\x1b"},
    "after each heartbeat that it does not know the member": {HEARTBEAT: lambda body: body[:4] + b"\0\x19"},
    "after each heartbeat an unknown error": {HEARTBEAT: lambda body: body[:4] + b"\x03\xe7"},
}


@pytest.mark.parametrize("lie", COORDINATOR)
def test_a_coordinator_that_lies_ends_no_bridge_and_is_believed_again_once_it_is_honest(broker, lie):
    connection, own = KafkaConnection(bootstrap=broker.bootstrap), set()
    member = KafkaMember(connection, admin(connection), "g", "own", 6.0)
    broker.lies = dict(COORDINATOR[lie])
    asked, steps, errors = [], [], []
    for kind in COORDINATOR[lie]:
        spoil = broker.lies[kind]
        broker.lies[kind] = lambda body, spoil=spoil: asked.append(1) or spoil(body)
    member.join(["bank"], own.update, own.difference_update, own.difference_update)

    def poll():
        steps.append(1)
        try:
            member.poll(0.1)
        except (NotConnected, Retryable) as error:
            errors.append(error.message)
        return asked and len(steps) >= 20

    eventually(poll, 30, saying="it has lied, and the bridge goes on")
    # Where a single lie was believed, the member learns of the truth by the next change of the group.
    changes = iter([b"\0\x1b"])
    broker.lies = {HEARTBEAT: lambda body: body[:4] + next(changes, body[4:])}
    eventually(lambda: poll() and own >= {("bank", number) for number in range(5)}, 60, saying="it has its sources")
    member.close(leave=True)


#: What the broker says of the records that it is given for one partition; and what it says in place of other answers.
TAKEN = {
    "at no offset": Partition(high=-1),
    "at an offset that nobody has": Partition(high=-1001),
    "at the last offset of all": Partition(high=2**63 - 1),
    "before, at no offset": Partition(error=46, high=-1),
    "with an unknown error": Partition(error=999),
    "out of order": Partition(error=45),
}


@pytest.fixture
def producer(broker):
    connection = KafkaConnection(bootstrap=broker.bootstrap)
    kafka_producer = KafkaProducer(connection, "g.own.0", 1 << 20)
    with reading(connection, "g") as client:
        kafka_producer.group = GroupMetadata(client.consumer_group_metadata(), "g", 1, "member")
    yield kafka_producer
    kafka_producer.discard()


def write(producer, many=1):
    producer.begin()
    for number in (0, 4):
        producer.produce(Share("bank", number, [b"k"] * many, [b"v"] * many, None))
    ends = producer.flush(5)
    producer.commit([PositionCommit(*place, end, "text") for place, end in ends.items()], producer.group, 2)


def test_records_and_positions_are_committed_by_a_broker_that_is_honest(broker, producer):
    write(producer)
    assert (broker.committed, broker.ended) == ({0: 10, 4: 1}, [True])
    write(producer, 2)
    assert (broker.committed, broker.ended) == ({0: 11, 4: 2}, [True, True])


def test_a_broker_that_throttles_for_ten_minutes_and_answers_holds_nothing_up(broker, producer):
    minutes = struct.pack(">i", 600_000)
    broker.lies = dict.fromkeys((ADD_PARTITIONS, ADD_OFFSETS, COMMIT_OFFSETS, END), lambda body: minutes + body[4:])
    broker.lies[PRODUCE] = lambda body: body[:-4] + minutes
    for number in (1, 2):
        write(producer, number)
    assert (broker.committed, broker.ended) == ({0: 11, 4: 2}, [True, True])


@pytest.mark.parametrize("many", [1, 2])
@pytest.mark.parametrize("lie", TAKEN)
def test_records_of_which_it_is_not_known_where_they_are_are_not_committed(broker, producer, lie, many):
    """One such answer was an error that nobody expected, which ended the bridge."""
    broker.partitions[4] = TAKEN[lie]
    with pytest.raises(ReplicationError) as raised:
        write(producer, many)
    if isinstance(raised.value, PartitionsFailed):
        assert raised.value.failed.keys() == {("bank", 4)}
    assert (broker.committed, True in broker.ended) == ({}, False)


REFUSED = {
    "partitions with an unknown error": (ADD_PARTITIONS, lambda body: body[:-2] + b"\x03\xe7"),
    "other partitions": (ADD_PARTITIONS, lambda body: body.replace(b"bank", b"bonk")),
    "positions with an unknown error": (COMMIT_OFFSETS, lambda body: body[:-2] + b"\x03\xe7"),
    "positions of an unknown member": (COMMIT_OFFSETS, lambda body: body[:-2] + b"\0\x19"),
    "the group with an unknown error": (ADD_OFFSETS, lambda body: body[:-2] + b"\x03\xe7"),
    "the end with an unknown error": (END, lambda body: body[:-2] + b"\x03\xe7"),
    "the end cut": (END, lambda body: body[:-1]),
}


@pytest.mark.parametrize("lie", REFUSED)
def test_an_answer_to_a_transaction_that_none_gives_is_an_error_of_ours(broker, producer, lie):
    kind, broker.lies[kind] = REFUSED[lie]
    with pytest.raises(ReplicationError):
        write(producer)


SETTINGS = {
    "no largest record": {"cleanup.policy": "delete"},
    "a largest record that is none": {"max.message.bytes": "many", "cleanup.policy": "delete"},
    "a largest record without a value": {"max.message.bytes": None, "cleanup.policy": "delete"},
    "no policy": {"max.message.bytes": "1"},
    "nothing": {},
}


@pytest.mark.parametrize("lie", SETTINGS)
def test_a_topic_of_which_kafka_does_not_say_what_it_takes_is_an_operators_matter(broker, lie):
    client = admin(KafkaConnection(bootstrap=broker.bootstrap))
    assert check(client, {"bank": Wanted(1)}) == {"bank": 1 << 20}
    broker.settings = SETTINGS[lie]
    with pytest.raises(NeedsOperator, match="'bank'"):
        check(client, {"bank": Wanted(1)})
