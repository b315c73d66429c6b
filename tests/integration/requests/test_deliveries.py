"""Deliveries by a bridge that branches connect to: order, settlement, dead letters, and nobody who holds up others."""

import json

import pytest

from bridge.amqp import sender_links
from tests.amqp.branch import Branch
from tests.amqp.interconnect_ends import pem, trust
from tests.integration.requests import deliveries
from tests.integration.requests.deliveries import in_order, is_all_committed, letters, produce, section
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]

KEYS = [f"{region}/{branch}" for region in ("jakarta", "london") for branch in range(4)]


@pytest.fixture
def branches():
    made = []

    def start(*arguments, **settings):
        made.append(Branch(*arguments, **settings))
        return made[-1]

    yield start
    for each in made:
        each.close()


class Setup:
    """A topic with its dead letters, and a bridge that delivers it."""

    def __init__(self, kafka, topic, inside, *, partitions=3, secure="", **settings):
        self.bootstrap = kafka.bootstrap
        self.topic = topic(partitions, **{"max.message.bytes": 4_000_000})
        self.letters = topic(name=f"{self.topic}.dead-letters", **{"max.message.bytes": 4_000_000})
        self.stream = topic()
        more = section(self.topic, **settings)
        self.bridge = inside(kafka.bootstrap, {"jakarta/bank": [0]}, topic=self.stream, more=more, secure=secure)
        self.group = f"headrace.{self.stream}.deliveries.alerts"
        self.url = f"amqp://127.0.0.1:{self.bridge.port}"

    def produce(self, records, **options):
        produce(self.bootstrap, self.topic, records, **options)

    @property
    def figures(self):
        return self.bridge.bridge.deliveries.figures["alerts"]

    def is_done(self):
        return is_all_committed(self.bootstrap, self.group, self.topic)


@pytest.fixture
def delivering(kafka, topic, inside):
    return lambda **settings: Setup(kafka, topic, inside, **settings)


def numbered(keys, count):
    return [(key.encode(), number) for number in range(count) for key in keys]


def test_every_record_reaches_its_region_in_order_and_is_committed_when_it_is_accepted(delivering, branches):
    setup = delivering()
    jakarta = branches(setup.url, "alerts/jakarta", answer=lambda _message: "hold")
    # A receiver of the same address twice, and one that is much slower.
    london = [branches(setup.url, "alerts/london", credit=credit) for credit in (1, 20)]
    setup.produce(numbered(KEYS, 25), headers=[("branch", b"17"), ("content-type", b"application/json")])

    eventually(lambda: sum(len(set(each.accepted())) for each in london) == 100)
    first = eventually(lambda: jakarta.came and jakarta.came[0][2])
    place = (first.properties["topic"], first.properties["partition"], first.properties["offset"])
    assert first.id == "/".join(map(str, place))
    assert (first.properties["key"], first.properties["header.branch"]) == (first.group_id, "17")
    assert (first.address, str(first.content_type), first.durable) == ("alerts/jakarta", "application/json", True)
    # One of each key is on the way, nothing of Jakarta's is committed.
    eventually(lambda: len(jakarta.came) == 4)
    assert not setup.is_done()
    jakarta.let_go()

    eventually(setup.is_done, saying="all is committed")
    assert in_order(jakarta, KEYS[:4], 25)
    assert len(jakarta.accepted()) == 100
    assert sorted(len(each.accepted()) for each in london)[1] > 0
    assert (setup.figures.delivered, setup.figures.pending, setup.figures.dead_lettered) == (200, 0, 0)
    assert setup.figures.oldest_age == 0


def test_what_comes_back_is_sent_again_in_order_and_what_cannot_be_delivered_is_a_dead_letter(delivering, branches):
    """A receiver that rejects everything, one that releases, modifies and has a small limit; keys without a region."""
    setup = delivering()
    seen = {}

    def moody(message):
        seen[message.id] = seen.get(message.id, 0) + 1
        return ("release", "modify", "accept")[min(seen[message.id] - 1, 2)] if len(seen) % 3 else "accept"

    rejecting = branches(setup.url, "alerts/paris", answer=lambda _message: "reject")
    london = branches(setup.url, "alerts/london", answer=moody, largest=100_000)
    jakarta = branches(setup.url, "alerts/jakarta")
    setup.produce(
        [
            (b"london/0", 0),
            (b"london/0", b"x" * 200_000),
            (None, "no key"),
            (b"/nothing", "no region"),
            (b"par is/1", "no address"),
            *((b"paris/%d" % number, "refused") for number in range(5)),
            *((b"london/0", number) for number in range(1, 10)),
            *numbered(KEYS[:4], 10),
        ],
        headers=[("trace", b"abc"), ("headrace.condition", b"of an earlier life")],
    )
    eventually(setup.is_done, saying="all is committed")

    assert in_order(london, ["london/0"], 10)
    assert in_order(jakarta, KEYS[:4], 10)
    assert setup.figures.redelivered > 0
    result = letters(setup.bootstrap, setup.letters)
    assert sorted(each["headrace.condition"] for each in result) == sorted(
        ["amqp:link:message-size-exceeded", *["headrace:no-address"] * 3, *["bank:no-such-card"] * 5]
    )
    (large,) = [each for each in result if each["headrace.condition"].startswith("amqp:link")]
    assert (large["key"], len(large["value"]), large["headrace.address"]) == (b"london/0", 200_000, "alerts/london")
    assert "takes 100000 at most" in large["headrace.description"]
    rejected = [each for each in result if each["headrace.condition"] == "bank:no-such-card"]
    assert {each["headrace.id"] for each in rejected} == {number for number, *_ in rejecting.came}
    assert {(each["trace"], each["headrace.description"], json.loads(each["value"])) for each in rejected} == {
        ("abc", "this branch has no such card", "refused")
    }
    assert setup.figures.dead_lettered == 9


def test_a_region_that_takes_nothing_holds_up_its_partition_alone_and_memory_stays_bounded(delivering, branches):
    setup = delivering(max_pending_records=50)
    silent = branches(setup.url, "alerts/jakarta", credit=0)
    london = branches(setup.url, "alerts/london")
    # Of one key, so in one partition; London's are in all.
    keys = [f"london/{number}" for number in range(12)]
    setup.produce([(b"jakarta/0", number) for number in range(400)])
    setup.produce(numbered(keys, 5))

    eventually(lambda: setup.figures.paused == 1, saying="the partition is paused")
    eventually(lambda: setup.figures.pending <= 60 and len(set(london.accepted())) > 5)
    status = setup.bridge.bridge._service.status()
    eventually(lambda: setup.figures.notes == ["alerts/jakarta: its receiver gives no credit"])
    (said,) = setup.bridge.bridge._service.status().deliveries
    assert (said.delivery, said.state, said.paused_partitions) == ("alerts", "delivering", 1)
    assert "alerts/jakarta: its receiver gives no credit" in said.warnings
    assert status.deliveries[0].oldest_pending_seconds > 0
    assert (
        b'headrace_bridge_delivery_pending_records{delivery="alerts"}' in setup.bridge.bridge._service.collector.text()
    )

    silent.give(40)
    eventually(setup.is_done, saying="all is committed")
    assert in_order(silent, ["jakarta/0"], 400)
    assert in_order(london, keys, 5)
    assert setup.figures.paused == 0


def test_a_receiver_that_takes_all_and_settles_nothing_is_named_and_holds_up_its_partition_alone(
    delivering, branches, certificates, monkeypatch
):
    """A certificate with the right to one address, an endless credit and no outcome; nothing showed it."""
    monkeypatch.setattr(sender_links, "_UNSETTLED_SECONDS", 2.0)
    ours = certificates / "ours"
    secure = "".join(f'{name} = "{path}"\n' for name, path in pem(ours, "bridge").items())
    receivers = {"jakarta/bank": ["alerts/jakarta"], "london/bank": ["alerts/london"]}
    setup = delivering(secure=secure, max_pending_records=50, receivers=receivers)
    url = setup.url.replace("amqp://127.0.0.1", "amqps://localhost")

    def branch(name, address, **settings):
        return branches(url, address, tls=trust(ours, name), **settings)

    hoarder = branch("jakarta-bank", "alerts/jakarta", credit=1_000_000, answer=lambda _message: "hold")
    # What is not for it, it does not get by asking for more.
    stranger = branch("jakarta-bank", "alerts/london", credit=1_000_000)
    london = branch("london-bank", "alerts/london")
    keys = [f"london/{number}" for number in range(12)]
    # Of one key, so in one partition; London's are in all.
    setup.produce([(b"jakarta/0", number) for number in range(400)])
    setup.produce(numbered(keys, 5))

    name = "alerts/jakarta: jakarta/bank has settled none of "
    eventually(lambda: setup.figures.paused == 1, saying="the partition is paused")
    eventually(lambda: any(note.startswith(name) for note in setup.figures.notes), saying="status names the hoarder")
    (said,) = setup.bridge.bridge._service.status().deliveries
    assert any(name in warning for warning in said.warnings)
    eventually(lambda: setup.figures.pending <= 60 and len(set(london.accepted())) > 5, saying="others are served")
    assert stranger.came == []
    assert "amqp:unauthorized-access" in stranger.refused[0]
    setup.bridge.serves("jakarta/bank")

    # Once it is gone, an honest receiver of the address gets everything, in order.
    hoarder.close()
    honest = branch("jakarta-bank", "alerts/jakarta")
    eventually(setup.is_done, saying="all is committed")
    assert in_order(honest, ["jakarta/0"], 400)
    assert in_order(london, keys, 5)
    assert setup.figures.notes == []


def test_a_topic_that_is_deleted_stops_nothing_else_and_is_delivered_again_when_it_is_back(delivering, branches, topic):
    setup = delivering(partitions=1)
    jakarta = branches(setup.url, "alerts/jakarta")
    setup.produce([(b"jakarta/0", number) for number in range(3)])
    eventually(setup.is_done)

    deliveries.delete_topic(setup.bootstrap, setup.topic)
    eventually(lambda: setup.figures.state == "needs an operator", saying="the delivery says that its topic is gone")
    assert setup.topic in setup.figures.reason
    setup.bridge.serves("jakarta/bank")
    eventually(lambda: topic(1, name=setup.topic), saying="the topic is there again")
    setup.produce([(b"jakarta/9", number) for number in range(3)])

    eventually(lambda: setup.figures.state == "delivering")
    eventually(lambda: in_order(jakarta, ["jakarta/9"], 3), saying="records of the new topic arrive")
    eventually(setup.is_done)
