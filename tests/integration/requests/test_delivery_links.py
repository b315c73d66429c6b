"""The bridge's sending end over real AMQP and TLS, without Kafka: who may receive, order, outcomes, losses; the command."""

import json
import os
import subprocess
import sys
import threading

import pytest

from bridge.amqp import sender_links
from bridge.amqp.receiver import Receiver
from bridge.deliveries.outbox import Outbox
from bridge.deliveries.record import DeliveryMetrics, Record
from headrace.certificates.command import Authority
from headrace.configuration.bridge import Interconnect
from headrace.configuration.sections import Delivery
from tests.amqp.branch import Branch
from tests.amqp.interconnect_ends import pem, trust
from tests.amqp.relay_double import Relay
from tests.rules.waiting import eventually


class Sending:
    """A bridge's AMQP, and an outbox that the test fills; dead letters are written at once."""

    def __init__(self, *, receivers=None, **settings):
        self.figures = DeliveryMetrics()
        given = Delivery(address="alerts/{region}", receivers=receivers or {})
        self.outbox = Outbox("alerts", given, self.figures, pause=lambda sends: 0.01 * sends)
        self.outbox.assign(0)
        self.letters = []
        self.receiver = Receiver(
            Interconnect(**({"listen": "127.0.0.1:0"} | settings)), ["jakarta/bank"], "bridge/test"
        )
        self.receiver.deliver([self.outbox])
        self.receiver.start()
        self._numbers = iter(range(1_000_000))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._bury, daemon=True)
        self._thread.start()

    def url(self, scheme="amqp", host="127.0.0.1"):
        return f"{scheme}://{host}:{self.receiver.port}"

    def put(self, *keys, value=b"", headers=()):
        for key in keys:
            number = next(self._numbers)
            body = value or b'{"n": %d}' % number
            self.outbox.read(Record("alerts", 0, number, key.encode(), body, headers, 1_700_000_000_000))
        self.receiver.send(self.outbox, self.outbox.take_fresh())

    def is_settled(self):
        return self.figures.pending == 0

    def close(self):
        self._over.set()
        self._thread.join(60)
        self.receiver.stop(5)

    def _bury(self):
        while not self._over.wait(0.02):
            for entry in self.outbox.take_condemned():
                self.letters.append((entry.record.id, entry.condition))
                self.outbox.note_buried(entry)
            self.receiver.send(self.outbox, self.outbox.take_fresh())


@pytest.fixture
def start():
    made = []

    def make(kind, *arguments, **settings):
        made.append(kind(*arguments, **settings))
        return made[-1]

    yield make
    for each in reversed(made):
        each.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("branches")
    authority = Authority(folder)
    for name in ("jakarta-branch", "london-branch", "jakarta/bank"):
        authority.client(name)
    authority.server("bridge", ["localhost"])
    return folder


def numbers(branch):
    """Return the numbers of the accepted messages by key, by their first copies."""
    results = {}
    for number, outcome, message in list(branch.came):
        if outcome == "accept":
            results.setdefault(message.properties["key"], {}).setdefault(number, json.loads(message.body)["n"])
    return {key: list(each.values()) for key, each in results.items()}


def in_order(branch, count):
    result = numbers(branch)
    assert all(each == sorted(each) for each in result.values())
    return sum(map(len, result.values())) == count


def test_released_and_modified_records_are_sent_again_in_order_and_rejected_ones_are_given_up(start):
    sending = start(Sending)
    tries = {}

    def moody(message):
        tries[message.id] = tries.get(message.id, 0) + 1
        number = json.loads(message.body)["n"]
        if number % 10 == 3:
            return "reject"
        return ["release", "modify", "accept"][min(tries[message.id], 3) - 1] if number % 3 == 0 else "accept"

    jakarta = start(Branch, sending.url(), "alerts/jakarta", answer=moody)
    sending.put(*[f"jakarta/{number % 4}" for number in range(100)], *["london/0"] * 20)
    eventually(lambda: in_order(jakarta, 90), saying="all but the rejected ones are accepted")
    assert sorted(sending.letters) == sorted(
        (f"alerts/0/{number}", "bank:no-such-card") for number in range(3, 100, 10)
    )
    eventually(lambda: sending.figures.pending == 20)
    # Nobody was there for London.
    sending.outbox.look()
    assert sending.figures.notes == ["alerts/london: nobody receives from it"]
    london = start(Branch, sending.url(), "alerts/london", credit=1)
    eventually(lambda: in_order(london, 20))
    eventually(sending.is_settled)
    assert sending.outbox.committable() == {0: 120}


def test_receivers_that_are_lost_get_it_again_and_two_of_one_address_share(start):
    sending = start(Sending)
    gone = start(Branch, sending.url(), "alerts/jakarta", answer=lambda _message: "hold")
    sending.put(*[f"jakarta/{number % 10}" for number in range(200)])
    eventually(lambda: len(gone.came) == 10, saying="one of each key is on the way")
    gone.close()
    two = [start(Branch, sending.url(), "alerts/jakarta", credit=credit) for credit in (3, 3)]
    eventually(sending.is_settled)
    together = {}
    for branch in two:
        for key, each in numbers(branch).items():
            assert each == sorted(each)
            together.setdefault(key, []).extend(each)
    assert sorted(number for each in together.values() for number in each) == list(range(200))
    assert sending.figures.redelivered == 10


def test_a_record_above_the_receiver_s_limit_is_given_up_and_those_behind_it_go_on(start):
    sending = start(Sending)
    jakarta = start(Branch, sending.url(), "alerts/jakarta", largest=50_000)
    sending.put("jakarta/0", value=b" " * 60_000)
    sending.put("jakarta/0", "jakarta/0")
    eventually(sending.is_settled)
    assert sending.letters == [("alerts/0/0", "amqp:link:message-size-exceeded")]
    assert numbers(jakarta) == {"jakarta/0": [1, 2]}


def test_a_certificate_receives_what_the_file_names_for_it_and_nothing_else(start, folder):
    sending = start(
        Sending,
        receivers={"jakarta-branch": ["alerts/jakarta"], "london-branch": ["alerts/*"]},
        **pem(folder, "bridge"),
    )
    url = sending.url("amqps", "localhost")
    for name in ("jakarta-branch", "jakarta-bank"):
        foreign = start(Branch, url, "alerts/london", tls=trust(folder, name))
        eventually(lambda foreign=foreign: foreign.refused)
        assert "amqp:unauthorized-access" in foreign.refused[0]
    # Addresses of sources are nobody's to receive from.
    source = start(Branch, url, "cdc/jakarta/bank", tls=trust(folder, "london-branch"))
    eventually(lambda: source.refused)
    assert "amqp:unauthorized-access" in source.refused[0]
    sending.put("jakarta/0", "london/0")
    own = start(Branch, url, "alerts/jakarta", tls=trust(folder, "jakarta-branch"))
    all_of_them = start(Branch, url, "alerts/london", tls=trust(folder, "london-branch"))
    eventually(sending.is_settled)
    assert (own.accepted(), all_of_them.accepted()) == (["alerts/0/0"], ["alerts/0/1"])


def test_an_address_of_no_delivery_is_refused(start):
    sending = start(Sending)
    stranger = start(Branch, sending.url(), "other/jakarta")
    eventually(lambda: stranger.refused)
    assert "amqp:not-found" in stranger.refused[0]
    assert "no delivery" in stranger.refused[0]


def receive(*arguments, **options):
    command = [sys.executable, "-c", "from headrace.command import main; main()", "receive", *arguments]
    return subprocess.run(command, capture_output=True, timeout=120, check=False, **options)


def test_the_command_prints_what_comes_and_accepts_it(start):
    sending = start(Sending)
    sending.put("jakarta/0", "jakarta/1", headers=(("branch", b"17"), ("odd", b"\xff")))
    sending.put("jakarta/2", value=b"plain \xc3\xa9")
    sending.put("jakarta/3", value=b"\xff\x00")
    done = receive("alerts/jakarta", "--connect", sending.url(), "--json", "--count", "4")
    assert done.returncode == 0, done.stderr
    lines = {line["key"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert lines["jakarta/0"] == {
        "id": "alerts/0/0",
        "address": "alerts/jakarta",
        "key": "jakarta/0",
        "timestamp": 1_700_000_000_000,
        "headers": {"branch": "17", "odd": {"base64": "/w=="}},
        "json": {"n": 0},
    }
    assert (lines["jakarta/2"]["text"], lines["jakarta/3"]["base64"]) == ("plain \u00e9", "/wA=")
    eventually(sending.is_settled)
    sending.put("jakarta/0")
    done = receive("alerts/jakarta", "--connect", sending.url(), "--timeout", "5")
    assert (done.returncode, done.stdout) == (0, b'{"n": 4}\n')
    eventually(sending.is_settled)
    # Fewer than were wanted.
    assert receive("alerts/jakarta", "--connect", sending.url(), "--timeout", "5", "--count", "1").returncode == 1


def test_a_command_that_fails_gets_it_again_or_never_and_what_is_not_handled_is_not_accepted(start, tmp_path):
    sending = start(Sending)
    sending.put(*["jakarta/0"] * 3)
    log = tmp_path / "log"
    # Fails the first time that it gets a message.
    script = tmp_path / "command"
    script.write_text(
        f'#!/bin/sh\nread body || true\necho "$HEADRACE_ID $HEADRACE_KEY $body" >> {log}\n'
        f'test "$(grep -c "^$HEADRACE_ID " {log})" -gt 1\n'
    )
    script.chmod(0o700)
    done = receive("alerts/jakarta", "--connect", sending.url(), "--count", "3", "--", str(script))
    assert done.returncode == 0, done.stderr
    assert log.read_text().splitlines() == [
        f'alerts/0/{number} jakarta/0 {{"n": {number}}}' for number in range(3) for _ in range(2)
    ]
    eventually(sending.is_settled)

    sending.put("jakarta/0")
    stopped = receive("alerts/jakarta", "--connect", sending.url(), "--on-failure", "stop", "--", "false")
    assert stopped.returncode == 1
    assert sending.figures.pending == 1
    rejected = receive(
        "alerts/jakarta", "--connect", sending.url(), "--on-failure", "reject", "--timeout", "5", "--", "false"
    )
    assert rejected.returncode == 0
    eventually(lambda: sending.letters == [("alerts/0/3", "headrace:rejected")])
    sending.put("jakarta/0")
    missing = receive("alerts/jakarta", "--connect", sending.url(), "--", str(tmp_path / "nothing"))
    assert missing.returncode == 3
    assert b"cannot be run" in missing.stderr
    assert sending.figures.pending == 1


def test_the_command_says_who_refuses_it_and_what_cannot_be_reached(start, folder, tmp_path):
    sending = start(Sending, receivers={"jakarta-branch": ["alerts/jakarta"]}, **pem(folder, "bridge"))
    sending.put("jakarta/0")
    tls = ["--authority", folder / "authority.pem", "--connect", sending.url("amqps", "localhost")]

    def known_by(name):
        return ["--certificate", folder / f"{name}.pem", "--key", folder / f"{name}.key", *tls]

    refused = receive("alerts/jakarta", *known_by("london-branch"))
    assert refused.returncode == 3
    assert b"does not let this receiver receive from alerts/jakarta" in refused.stderr
    done = receive("alerts/jakarta", *known_by("jakarta-branch"), "--count", "1")
    assert (done.returncode, done.stdout) == (0, b'{"n": 0}\n')
    away = receive("alerts/jakarta", "--connect", "amqp://127.0.0.1:1", "--timeout", "1")
    assert away.returncode == 5
    assert receive("alerts/jakarta", "--connect", "bridge:5671").returncode == 2
    assert (
        receive("alerts/jakarta", "--connect", "amqps://x", "--certificate", folder / "authority.pem").returncode == 2
    )


def test_a_reader_that_goes_away_leaves_what_it_did_not_take(start):
    """Q14: where Python buffers its output, as it does by itself, the exit code was Python's own, 120."""
    sending = start(Sending)
    sending.put("jakarta/0", "jakarta/0")
    end, other = os.pipe()
    os.close(end)
    command = [sys.executable, "-c", "from headrace.command import main; main()", "receive", "alerts/jakarta"]
    done = subprocess.run(
        [*command, "--connect", sending.url()],
        stdout=other,
        stderr=subprocess.PIPE,
        timeout=120,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )
    os.close(other)
    assert done.returncode == 3
    assert b"standard output takes nothing more" in done.stderr
    assert sending.figures.delivered == 0


def test_through_a_router_links_are_made_as_needed_and_what_is_lost_on_the_way_is_sent_again(start, monkeypatch):
    monkeypatch.setattr(sender_links, "_ATTACH_AGAIN_SECONDS", 0.2)
    relay = start(Relay, forbidden="alerts/london")
    sending = start(Sending, listen=None, url=relay.url)
    eventually(lambda: sending.receiver.connected)
    assert not [address for address in relay.attached if address.startswith("alerts/")]
    sending.put(*["jakarta/0", "jakarta/1"] * 20, "london/0")
    eventually(lambda: len(relay.accepted("alerts/jakarta")) == 40)
    assert "queue" in relay.capabilities[-1]
    # What a policy forbids waits, says so and is tried again.
    eventually(lambda: relay.attached.count("alerts/london") > 1)

    def notes():
        sending.outbox.look()
        return sending.figures.notes

    eventually(lambda: notes() and "the policy does not allow it" in notes()[0])
    relay.forbidden = ""
    eventually(lambda: relay.accepted("alerts/london") == ["alerts/0/40"])
    eventually(sending.is_settled)
    # A link that is closed, and a connection that is lost, each with deliveries without an outcome.
    for number, lose in enumerate((relay.detach, relay.cut)):
        relay.next += ["silence"] * 2
        sending.put(*["jakarta/0", "jakarta/1"] * 10)
        eventually(lambda: not relay.next, saying="two are without an outcome")
        lose()
        eventually(lambda number=number: len(relay.accepted("alerts/jakarta")) == 60 + 20 * number)
        eventually(sending.is_settled)
    values = [int(each.rpartition("/")[2]) for each in relay.accepted("alerts/jakarta")]
    # The first key has the even numbers up to London's, and the odd ones after it.
    for key in (0, 1):
        own = [each for each in values if each % 2 == (key if each < 40 else 1 - key)]
        assert own == sorted(own)
    assert sending.letters == []


def test_what_waits_for_its_pause_when_the_connection_is_lost_is_sent_by_the_next_one(start):
    relay = start(Relay)
    sending = start(Sending, listen=None, url=relay.url)
    eventually(lambda: sending.receiver.connected)
    relay.next += ["release"] * 5
    sending.outbox._pending._pause = lambda _sends: 1.0
    sending.put("jakarta/0", "jakarta/1", "jakarta/2")
    eventually(lambda: len(relay.came) >= 3)
    relay.next.clear()
    relay.cut()
    eventually(lambda: len(relay.accepted("alerts/jakarta")) == 3)
