"""A rogue edge, a rogue receiver and a rogue principal of Kafka's, each with the rights that the documents give, against a real
bridge and a real broker while honest sources write: no process ends, no honest row is harmed, metrics and status name the
attacker, and one line of the bridge's file shuts it out. How much slower honest sources get: `make bench-bridge`, "attacked".
"""

import itertools
import json
import re
import signal
import threading
import urllib.request
from pathlib import Path

import pytest

from headrace import doors
from headrace.amqp.transport import SSLDomain
from headrace.status.command import answer_of
from headrace.status.table import screen
from headrace.terminal import Terminal
from infra.local.server import free_port
from tests.amqp.interconnect_ends import Edge, at, pem, sealed
from tests.hostile import peers
from tests.hostile.bodies import NAMES, VALUE, of_json, properties
from tests.hostile.peers import MESSAGES, Rogue, send_raw
from tests.hostile.test_records import ANSWERS, REQUESTS
from tests.integration.requests.deliveries import produce, section
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]

ROGUE = "jakarta/bank"
HONEST = ("london/one", "london/two", "london/three")
#: What a bridge may need in all, in bytes (S7).
_MEMORY = 512 << 20
_STEP = 20


class Honest(threading.Thread):
    """An honest source: sends batch after batch over the edge's own sender, each once the one before is acknowledged."""

    def __init__(self, url, source, files):
        super().__init__(daemon=True)
        self.source, self.edge, self.upto, self.error = source, Edge(url, source=source, **files), 0, None
        self._halt = threading.Event()
        self.start()

    def run(self):
        try:
            for first in itertools.count(1, _STEP):
                if self._halt.is_set():
                    return
                self.edge.put(sealed(first, first + _STEP - 1, source=self.source, size=200))
                self.edge.acknowledged(at(first + _STEP - 1), 120)
                self.upto = first + _STEP - 1
        except BaseException as error:  # noqa: BLE001 - the test raises it.
            self.error = error

    def stop(self):
        self._halt.set()
        self.join(120)
        self.edge.close()
        if self.error is not None:
            raise self.error


def rogue_of(folder, port, address=f"cdc/{ROGUE}"):
    """Return a client with the certificate of a source."""
    tls = SSLDomain(SSLDomain.MODE_CLIENT)
    files = pem(folder, "jakarta-bank")
    tls.set_trusted_ca_db(str(files["authority"]))
    tls.set_credentials(str(files["certificate"]), str(files["key"]), None)
    return Rogue(port, address, trusted=tls, credentials={"allowed_mechs": "EXTERNAL"})


class Attacked:
    """A bridge in a process of its own, three honest sources that write, and what the attackers have."""

    def __init__(self, kafka, topic, outside, files):
        self.bootstrap, self.files = kafka.bootstrap, files
        self.topic, self.requests, self.answers = topic(4), topic(), topic()
        self.alerts = topic(1, **{"max.message.bytes": 4_000_000})
        topic(name=f"{self.alerts}.dead-letters", **{"max.message.bytes": 4_000_000})
        names = pem(files, "bridge")
        secure = (
            "".join(f'{name} = "{path}"\n' for name, path in names.items())
            + 'identities = { "edge-3" = ["london/*"] }\n'
        )
        more = f'\n[requests]\ntopic = "{self.requests}"\nanswers_topic = "{self.answers}"\n'
        more += section(self.alerts, receivers={"london/bank": ["alerts/london"]})
        self.metrics = f"127.0.0.1:{free_port()}"
        sources = {source: [number] for number, source in enumerate((ROGUE, *HONEST))}
        self.bridge = outside(self.bootstrap, sources, topic=self.topic, secure=secure, more=more, metrics=self.metrics)
        self.port = self.bridge.port
        url = f"amqps://localhost:{self.port}"
        self.honest = [Honest(url, source, pem(files, "edge-3")) for source in HONEST]

    def rogue(self, address=f"cdc/{ROGUE}"):
        return rogue_of(self.files, self.port, address)

    def goes_on(self):
        """Return once each honest source was acknowledged something new, in a bridge that lives."""
        before = [each.upto for each in self.honest]
        eventually(
            lambda: all(each.upto > seen for each, seen in zip(self.honest, before, strict=True)),
            120,
            saying="honest sources go on",
        )
        assert self.bridge.process.poll() is None, "the bridge has ended"

    def refused(self, door, sender):
        text = urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=30).read().decode()
        name = rf'^headrace_bridge_refused_inputs_total\{{door="{door}",sender="{re.escape(sender)}"\}} (\S+)'
        match = re.search(name, text, re.MULTILINE)
        return float(match[1]) if match else 0.0

    def status(self):
        """Return what `headrace status` prints."""
        answer, why = answer_of(self.metrics)
        assert answer is not None, why
        console = Terminal(width=200, no_color=True)
        with console.capture() as capture:
            console.print(screen([answer], 200))
        return capture.get()

    def revoke(self):
        """Take its source from the rogue's certificate, by one line, and send the bridge SIGHUP."""
        (path,) = [Path(each) for each in self.bridge.process.args if each.endswith(".toml")]
        path.write_text(path.read_text().replace("identities = { ", f'identities = {{ "{ROGUE}" = [], '))
        self.bridge.process.send_signal(signal.SIGHUP)

    @property
    def memory(self):
        """The most that the bridge has needed, in bytes."""
        status = Path(f"/proc/{self.bridge.pid}/status").read_text(encoding="ascii")
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) << 10


@pytest.fixture
def attacked(kafka, topic, outside, certificates):
    made = Attacked(kafka, topic, outside, certificates / "ours")
    made.goes_on()
    yield made
    for each in made.honest:
        each.edge.close()


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
    # and in status,
    said = attacked.status().splitlines()
    assert [line for line in said if line.startswith(f"{ROGUE}: inputs refused since the start: ") and "batch " in line]
    assert not [line for line in said if line.startswith(f"{HONEST[0]}: inputs refused")]
    # and one line of the file and SIGHUP close the attacker's open link, and give it no new one.
    rogue = attacked.rogue().attached()
    attacked.revoke()
    assert eventually(lambda: rogue.closed) == "amqp:unauthorized-access"
    assert eventually(lambda: attacked.rogue().attached().closed) == "amqp:unauthorized-access"
    rogue.close()
    attacked.goes_on()
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


def test_where_names_are_checked_no_record_in_kafka_names_another_source(kafka, topic, inside, certificates):
    """The stream has `check_source_names`; honest and rogue send to one bridge."""
    name, more = topic(2), "check_source_names = true\n"
    names = pem(certificates / "ours", "bridge")
    secure = "".join(f'{each} = "{path}"\n' for each, path in names.items())
    sources = {ROGUE: [0], "london/bank": [1]}
    bridge = inside(kafka.bootstrap, sources, topic=name, secure=secure, more=more)
    edge = Edge(f"amqps://localhost:{bridge.port}", source="london/bank", **pem(certificates / "ours", "london-bank"))
    before = doors.BATCH.refused.get(ROGUE, 0)
    rogue = rogue_of(certificates / "ours", bridge.port).attached()
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
