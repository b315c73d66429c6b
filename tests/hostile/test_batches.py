"""The door of batches (S1, S3, S5, S7): one delivery's content ends nothing but itself, whatever it is, and others go on."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model.chain import Withheld, WithheldTable
from bridge.model.delivery import Accept, Reject
from bridge.model.route import SourceRoute, TablePatterns, TableRouter
from bridge.routing.registered_schemas import RegisteredSchemas
from bridge.routing.source_names import SourceNames
from bridge.routing.withheld_records import divide
from headrace import doors
from headrace.batch import CONTENT_ENCODING, decode, encode
from headrace.configuration.bridge import TableTopic
from headrace.errors import ReplicationError
from headrace.position import Position
from headrace.registry.client import Incompatible
from tests.edge.source_log import cut, log
from tests.hostile.bodies import BATCHES, EPOCH, NAMES, VALUE, body, delivery, named, of_json, properties
from tests.unit.bridge.kafka_double import BridgeParts, metadata

ROGUE, HONEST = "a/one", "a/two"


class NoRegistry:
    """A registry's client that nothing may reach."""


@pytest.fixture
def parts():
    """A bridge's lanes over a stream with a topic for each table and a registry; both sources are served."""
    bridge_parts = BridgeParts(ROGUE, HONEST)
    bridge_parts.registry.schemas = RegisteredSchemas(NoRegistry())
    for state in bridge_parts.registry.states.values():
        tables = TableRouter("bank", {"public.t": TableTopic("bank.public.t", "delete")})
        state.route = state.route._replace(tables=tables if state.route.source == ROGUE else None, prefix="bank")
    bridge_parts.registry.assigned((ROGUE, HONEST), metadata())
    bridge_parts.recover()
    for lane in bridge_parts.lanes:
        lane.turn(0)
    bridge_parts.kafka.transactions.clear()
    return bridge_parts


def put_honest(parts, ticket, which):
    batch = cut(HONEST, log(HONEST, 40), lambda: 20)[which]
    parts.session(HONEST).inbox.put(delivery(ticket, *encode(batch)))
    return batch.values


def test_what_the_hostile_batches_are_made_of_is_taken(parts):
    parts.session(ROGUE).inbox.put(delivery(1, properties(), of_json()))
    parts.lanes[0].turn(0)
    assert parts.deliverer.outcomes[1] == Accept()
    assert parts.kafka.values(0) == [VALUE]


@pytest.mark.parametrize("name", BATCHES)
def test_a_hostile_batch_is_rejected_and_the_other_sources_are_written(parts, name):
    before = doors.BATCH.refused.get(ROGUE, 0)
    honest = put_honest(parts, 1, 0)
    parts.session(ROGUE).inbox.put(delivery(2, *BATCHES[name]))

    parts.lanes[0].turn(0)
    honest += put_honest(parts, 3, 1)
    parts.lanes[0].turn(0)

    outcome = parts.deliverer.outcomes[2]
    assert isinstance(outcome, Reject), outcome
    assert outcome.description.isprintable()
    assert parts.deliverer.outcomes[1] == parts.deliverer.outcomes[3] == Accept()
    assert parts.kafka.values(1) == honest
    assert parts.kafka.values(0) == []
    assert doors.BATCH.refused[ROGUE] == before + 1
    assert parts.registry.states[ROGUE].figures.rejected == 1


@pytest.mark.parametrize("name", NAMES)
def test_where_names_are_checked_a_record_that_names_another_source_is_rejected_with_its_batch(parts, name):
    for source, state in parts.registry.states.items():
        state.route, state.names = state.route._replace(tables=None), SourceNames(source)
    before = doors.BATCH.refused.get(ROGUE, 0)
    honest = put_honest(parts, 1, 0)
    parts.session(ROGUE).inbox.put(delivery(2, properties(), of_json(NAMES[name])))
    parts.lanes[0].turn(0)

    assert parts.deliverer.outcomes[2].condition == "headrace:other-source"
    assert "a/two" not in parts.deliverer.outcomes[2].description
    assert doors.BATCH.refused[ROGUE] == before + 1
    # an honest one is taken, and so is the rogue's source as soon as it names itself
    parts.session(ROGUE).inbox.put(delivery(3, properties(), of_json()))
    parts.lanes[0].turn(0)
    assert parts.deliverer.outcomes[1] == parts.deliverer.outcomes[3] == Accept()
    assert (parts.kafka.values(1), parts.kafka.values(0)) == (honest, [VALUE])


def test_a_batch_that_raises_what_nobody_expected_is_rejected_without_a_value_in_log_or_answer(
    parts, monkeypatch, caplog
):
    """S1: whatever a decoder raises."""

    def fail(*_args):
        raise KeyError("4929-1234-5678-9012")

    monkeypatch.setattr("bridge.lanes.part.decode", fail)
    monkeypatch.setattr(doors.BATCH, "_unexpected", doors.RateLimitedLog(doors._log.error))
    parts.session(ROGUE).inbox.put(delivery(1, {}, b""))
    parts.lanes[0].turn(0)

    assert "KeyError at tests/hostile/test_batches.py" in parts.deliverer.outcomes[1].description
    assert "KeyError at tests/hostile/test_batches.py" in caplog.text
    assert "4929" not in caplog.text + str(parts.deliverer.outcomes)


_POSITIONS = st.builds(Position, st.just(EPOCH), st.integers(1, 2**64 - 1), st.integers(0, 2**32 - 1))
_TABLES = st.sampled_from([b"t", b"u", b"bank", b"../x", b"t\\u0000", b"\xff", b""])
_VALUES = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.sampled_from([b'{"databaseName":"x"}', b'{"status":"BEGIN"}', b"\0\0\0\0\1v", b"\0\0\0\0\2v"]),
    st.builds(named, _TABLES, _TABLES),
)


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=8), _VALUES), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), _TABLES, _TABLES), max_size=3),
    _POSITIONS,
    st.sampled_from([(0,), (0, 1), (3, 5, 7)]),
)
def test_whatever_a_batch_says_its_records_stay_in_its_sources_partitions(records, tables, first, partitions):
    """S3: the partition is the identity, with topics of tables, in Avro, and withheld."""
    keys, values = map(list, zip(*records, strict=True))
    written = [[number, *(each.decode(errors="replace") for each in names), None, "{}"] for number, *names in tables]
    last = first._replace(ordinal=first.ordinal + len(records) - 1)
    given_properties = properties(3, first=str(first), last=str(last), count=len(records))
    content = body([[first.commit, first.ordinal, len(records)]], keys, values, {}, {}, written)
    router = TableRouter(
        "bank", {"public.t": TableTopic("bank.public.t", "compact")}, TablePatterns("bank", {"*": "delete"})
    )
    router.learn(["bank.t.t", "bank.other", "other"])
    route = SourceRoute(ROGUE, "bank", partitions, router, "bank", "", "bank.withheld")

    class Refusing:
        def ids(self, needed):
            raise Incompatible(needed.topic)

    try:
        batch = decode(given_properties, CONTENT_ENCODING, content)
        withheld = Withheld(0, {"public.t": WithheldTable(Position.start(EPOCH), 0)})
        divided = divide(batch, 0, route, Refusing(), withheld, batch.follows)
    except ReplicationError:
        return
    for share in divided.shares:
        assert share.partition in partitions
        assert share.topic in {*route.topics, route.withheld}


_MEMORY = """
import resource, sys
from headrace.batch import decode
from tests.hostile.bodies import BATCHES
used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
given, body = BATCHES[sys.argv[1]]
import pathlib
def peak():
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = int(next(l for l in open("/proc/self/status") if l.startswith("VmRSS")).split()[1])
    try:
        decode(given, "zstd", body, 32 << 20)
    except Exception as error:
        print(type(error).__name__)
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) - before
print(peak())
"""


@pytest.mark.parametrize("name", [name for name in BATCHES if "(S7)" in name])
def test_a_small_body_that_unpacks_to_much_costs_little(name):
    """S7: counts are compared before lists are made, and sizes before anything is unpacked."""
    done = subprocess.run([sys.executable, "-c", _MEMORY, name], capture_output=True, text=True, check=True)
    error, kilobytes = done.stdout.split()
    assert error in {"CorruptInput", "TooLarge"}
    assert int(kilobytes) < 48 * 1024
