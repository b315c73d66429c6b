"""The door of batches (S1, S3, S5, S7): one delivery's content ends nothing but itself, whatever it is, and others go on."""

import subprocess
import sys

import pytest

from bridge.model.delivery import Accept, Reject
from bridge.model.table_router import TableRouter
from bridge.routing.registered_schemas import RegisteredSchemas
from headrace import doors
from headrace.batch import CONTENT_ENCODING, encode
from headrace.configuration.bridge import TableTopic
from tests.hostile.bodies import BATCHES, VALUE, delivery, of_json, properties
from tests.source_log import cut, log
from tests.unit.bridge.kafka_double import BridgeParts, metadata

ROGUE, HONEST = "a/one", "a/two"


class NoRegistry:
    """A registry's client that nothing may reach."""


@pytest.fixture
def parts():
    """A bridge's lanes over a stream with a topic for each table and a registry; both sources are served."""
    made = BridgeParts(ROGUE, HONEST)
    made.registry.schemas = RegisteredSchemas(NoRegistry())
    for state in made.registry.states.values():
        tables = TableRouter("bank", {"public.t": TableTopic("bank.public.t", "delete")})
        state.route = state.route._replace(tables=tables if state.route.source == ROGUE else None, prefix="bank")
    made.registry.assigned((ROGUE, HONEST), metadata())
    made.recover()
    for lane in made.lanes:
        lane.turn(0)
    made.kafka.transactions.clear()
    return made


def put_honest(parts, ticket, which):
    batch = cut(HONEST, log(HONEST, 40), lambda: 20)[which]
    sent, body = encode(batch)
    parts.session(HONEST).inbox.put(delivery(ticket, sent, body, CONTENT_ENCODING))
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


def test_a_batch_that_raises_what_nobody_expected_is_rejected_without_a_value_in_log_or_answer(
    parts, monkeypatch, caplog
):
    """S1: whatever a decoder raises."""

    def decode(*_args):
        raise KeyError("4929-1234-5678-9012")

    monkeypatch.setattr("bridge.lanes.part.decode", decode)
    monkeypatch.setattr(doors.BATCH, "_unexpected", doors.RateLimitedLog(doors._log.error))
    parts.session(ROGUE).inbox.put(delivery(1, {}, b""))
    parts.lanes[0].turn(0)

    assert "KeyError at tests/hostile/test_batches.py" in parts.deliverer.outcomes[1].description
    assert "KeyError at tests/hostile/test_batches.py" in caplog.text
    assert "4929" not in caplog.text + str(parts.deliverer.outcomes)


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
