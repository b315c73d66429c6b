"""A rogue edge, a rogue receiver and a rogue principal of Kafka's, each with the rights that the documents give, against a real
bridge and a real broker while honest sources write: no process ends, no honest row is harmed, metrics and status name the
attacker, one line of the bridge's file shuts it out, and honest sources are not slowed to more than twice their time. How much
slower they get: `make bench-bridge`, "attacked".
"""

import json
import statistics

import pytest

from headrace import doors
from tests.amqp.interconnect_ends import Edge, at, pem, sealed
from tests.hostile import peers
from tests.hostile.attacked import HONEST, ROGUE, Attacked, Stopwatch, refusals, status_of
from tests.hostile.bodies import NAMES, VALUE, of_json, properties
from tests.hostile.peers import MESSAGES, certified, send_raw
from tests.hostile.test_records import ANSWERS, REQUESTS
from tests.integration.requests.deliveries import produce
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]

#: What a bridge may need in all, in bytes (S7).
_MEMORY = 512 << 20
#: Batches of each honest source that a window has; pairs of a quiet window and one of an attack, at least and at most.
_BATCHES, _LEAST_PAIRS, _MOST_PAIRS = 150, 3, 12


@pytest.fixture
def attacked(kafka, topic, outside, certificates):
    made = Attacked(kafka, topic, outside, certificates / "ours")
    made.goes_on()
    yield made
    made.close()


def test_attackers_end_no_process_and_harm_no_honest_source(attacked):  # noqa: C901 - attack after attack on one bridge.
    # Given what a rogue edge sends with a certificate of its own: first batches,
    rogue = attacked.rogue().attached()
    # (those in Avro last: this bridge has no registry, and ends their source's session for a while)
    messages = sorted(peers.batches(ROGUE, HONEST[0]), key=lambda message: message.properties["version"] == 3)
    for number, message in enumerate(messages):
        rogue.act(lambda peer, number=number, message=message: peer.link.send(message, tag=f"m{number}"))
    eventually(lambda: rogue.unanswered == 0 and len(rogue.rejected) >= 15, saying="all have an outcome")
    attacked.goes_on()

    # then bytes that are no messages,
    for number, data in enumerate(MESSAGES.values()):
        rogue.act(send_raw(data, f"raw{number}"))
    eventually(lambda: rogue.unanswered == 0, saying="all have an outcome")
    rogue.close()
    attacked.goes_on()

    # then frames: conditions that cannot be read, links without number,
    for act in (peers.close_link_badly, peers.close_session_badly, peers.close_connection_badly, peers.attach_many):
        rogue = attacked.rogue().attached()
        rogue.act(act)
        attacked.goes_on()
        rogue.close()

    # then deliveries that do not end, from three connections, of which the newest link counts.
    for _ in range(3):
        rogue = attacked.rogue().attached()

        def stream(peer):
            if not peer.link.current:
                peer.link.delivery("endless")
            peer.link.stream(bytes(4 << 20))

        for _ in range(20):
            rogue.act(stream)
        assert eventually(lambda rogue=rogue: rogue.closed) == "amqp:link:message-size-exceeded"
        rogue.close()
    attacked.goes_on()

    # then a console's visitor without the token sends what no browser does, and leaves its connections open.
    visitors = attacked.console.attack()
    attacked.goes_on()

    # When it wants to be another source, or to receive what is for others, its certificate is refused by name,
    for address in ("cdc/london/one", "answers/london/one"):
        stranger = attacked.rogue(address)
        assert eventually(lambda stranger=stranger: stranger.closed) == "amqp:unauthorized-access"
        stranger.close()

    # and when a principal of Kafka's writes what is none into the topics that it may write to,
    produce(
        attacked.bootstrap,
        attacked.requests,
        [(ROGUE.encode(), each) for each in REQUESTS.values() if len(each) < 900_000],
    )
    produce(
        attacked.bootstrap,
        attacked.answers,
        [(ROGUE.encode(), each) for each in ANSWERS.values() if len(each) < 900_000],
    )
    produce(attacked.bootstrap, attacked.alerts, [(b"london/1", b"\xff" * 1000), (b"\xff", b"{}"), (None, b"")])
    eventually(
        lambda: attacked.refused("request", attacked.requests) >= len(REQUESTS) - 1, saying="they are passed over"
    )
    attacked.goes_on()

    # then the attacks are in metrics with the attacker's name,
    for door in ("batch", "message", "memory", "amqp"):
        assert attacked.refused(door, ROGUE) > 0, door
    assert not any(attacked.refused(door, source) for door in ("batch", "message", "memory") for source in HONEST)
    assert refusals("headrace_console", attacked.console.page("/metrics"), "console", "127.0.0.1") > 0
    # and in status,
    said = status_of(attacked.metrics).splitlines()
    assert [line for line in said if line.startswith(f"{ROGUE}: inputs refused since the start: ") and "batch " in line]
    assert not [line for line in said if line.startswith(f"{HONEST[0]}: inputs refused")]
    # and one line of the file and SIGHUP close the attacker's open link, and give it no new one.
    rogue = attacked.rogue().attached()
    attacked.revoke()
    assert eventually(lambda: rogue.closed) == "amqp:unauthorized-access"
    assert eventually(lambda: attacked.rogue().attached().closed) == "amqp:unauthorized-access"
    rogue.close()
    attacked.goes_on()
    for visitor in visitors:
        visitor.close()
    memory = attacked.memory
    print(f"--- most memory: {memory >> 20} MB")
    assert memory < _MEMORY
    # no honest edge was disturbed,
    for each in attacked.honest:
        each.stop()
        assert each.edge.figures.interconnect_connections == 1
        assert each.edge.figures.rejected == 0
    # and Kafka has each honest row once, in order, in the source's own partition, and nothing else but the rogue's in its own.
    partitions = {}
    for record in read_committed(attacked.bootstrap, attacked.topic):
        partitions.setdefault(record.partition, []).append(record.value)
    for number, each in enumerate(attacked.honest, 1):
        values = [f'"n": {n},'.encode() for n in range(1, each.upto + 1)]
        assert len(partitions[number]) == each.upto
        assert all(mark in value for mark, value in zip(values, partitions[number], strict=True))
    assert attacked.bridge.terminate() == 0


@pytest.mark.long
def test_who_attacks_slows_no_honest_source_to_more_than_twice_its_time(attacked, record_property):
    """The 99th percentile from where a batch is handed over to where Kafka's consumers can read it.

    Whatever else runs on this machine is in quiet windows as in those beside them: as many pairs are measured as it takes until
    the median of either kind is a fair one. A bridge that is slowed down has too large a median after any number.
    """
    stopwatch = Stopwatch(attacked.bootstrap, attacked.topic, attacked.honest)
    # The first records pay for what is made once.
    stopwatch.percentile(_BATCHES)
    quiet, disturbed, is_fair = [], [], False
    while not is_fair:
        quiet.append(stopwatch.percentile(_BATCHES))
        before = attacked.refused("batch", ROGUE)
        rogues = attacked.rogues()
        rogues.go()
        eventually(lambda before=before: attacked.refused("batch", ROGUE) > before, saying="the attack has begun")
        disturbed.append(stopwatch.percentile(_BATCHES))
        rogues.close()
        attacked.goes_on()
        ratio = statistics.median(disturbed) / statistics.median(quiet)
        is_fair = len(quiet) >= _LEAST_PAIRS and ratio <= 2
        shown = f"p99 {statistics.median(quiet) * 1000:.0f} ms, attacked {statistics.median(disturbed) * 1000:.0f} ms"
        assert is_fair or len(quiet) < _MOST_PAIRS, f"{shown}: {quiet}, {disturbed}"
    record_property("shown", f"honest sources: {shown} after {len(quiet)} pairs of windows")
    for each in attacked.honest:
        each.stop()
    stopwatch.stop()


def test_where_names_are_checked_no_record_in_kafka_names_another_source(kafka, topic, inside, certificates):
    """The stream has `check_source_names`; honest and rogue send to one bridge."""
    name, more = topic(2), "check_source_names = true\n"
    names = pem(certificates / "ours", "bridge")
    secure = "".join(f'{each} = "{path}"\n' for each, path in names.items())
    sources = {ROGUE: [0], "london/bank": [1]}
    bridge = inside(kafka.bootstrap, sources, topic=name, secure=secure, more=more)
    edge = Edge(f"amqps://localhost:{bridge.port}", source="london/bank", **pem(certificates / "ours", "london-bank"))
    before = doors.BATCH.refused.get(ROGUE, 0)
    rogue = certified(certificates / "ours", "jakarta-bank", bridge.port, f"cdc/{ROGUE}").attached()
    for number, value in enumerate(NAMES.values()):
        named = value.replace(b"a/two", b"london/bank").replace(b"a/one", ROGUE.encode())
        message = peers.message(ROGUE, properties(source=ROGUE), of_json(named))
        rogue.act(lambda peer, number=number, message=message: peer.link.send(message, tag=f"n{number}"))
    eventually(lambda: len(rogue.rejected) == len(NAMES), saying="all are rejected")
    assert set(rogue.rejected) == {"headrace:other-source"}
    assert doors.BATCH.refused[ROGUE] == before + len(NAMES)

    edge.put(sealed(1, 5, source="london/bank"))
    edge.acknowledged(at(5))
    rogue.act(
        lambda peer: peer.link.send(
            peers.message(ROGUE, properties(source=ROGUE), of_json(VALUE.replace(b"a/one", ROGUE.encode()))), tag="own"
        )
    )
    eventually(lambda: bridge.figures(ROGUE)["records"] == 1, saying="what names its own source is taken")
    rogue.close()
    edge.close()
    records = read_committed(kafka.bootstrap, name)
    assert sorted((each.partition, json.loads(each.value)["source"]["name"]) for each in records) == [
        (0, ROGUE), *[(1, "london/bank")] * 5,
    ]  # fmt: skip
