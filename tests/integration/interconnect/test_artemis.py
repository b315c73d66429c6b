"""Through a broker that stores and forwards: nothing lost, nothing twice, in order, and each only for its own."""

import itertools
import json

import pytest

from headrace import doors
from headrace.configuration.secret import Secret
from headrace.errors import NeedsOperator
from tests.amqp.interconnect_ends import Edge, Far, at, pem, sealed, trust
from tests.hostile import peers
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually
from tests.servers.fix_artemis import SOURCES

pytest_plugins = ["tests.bridge.fix_bridge"]

_epochs = itertools.count(1_700_000_000)


@pytest.fixture
def epoch(artemis, ends):
    """Return an epoch of its own, and leave the queues empty."""
    yield next(_epochs)
    ends.close_all()
    rest = Far(SOURCES, url=artemis.url, **pem(artemis.certificates, "bridge"))
    for source in SOURCES:
        mark = next(_epochs)
        last = Edge(artemis.url, at(0, mark), source=source, **pem(artemis.certificates, source.replace("/", "-")))
        last.put(sealed(1, 1, epoch=mark, source=source))
        eventually(lambda source=source, mark=mark: rest.tails[source] == at(1, mark))
        last.close()
    rest.close()


class Ends:
    """Edges and bridges at the broker, closed after the test."""

    def __init__(self, artemis):
        self._artemis = artemis
        self._made = []

    def edge(self, epoch, source="jakarta/bank", **settings):
        given = settings or pem(self._artemis.certificates, source.replace("/", "-"))
        self._made.append(Edge(self._artemis.url, at(0, epoch), source=source, **given))
        return self._made[-1]

    def bridge(self, *arguments, **settings):
        given = pem(self._artemis.certificates, "bridge") | settings
        self._made.append(Far(*(arguments or (SOURCES,)), url=self._artemis.url, **given))
        return self._made[-1]

    def close_all(self):
        for each in self._made:
            each.close()
        self._made.clear()


@pytest.fixture
def ends(artemis):
    made = Ends(artemis)
    yield made
    made.close_all()


def batches(epoch, first, last, source="jakarta/bank", *, size=0):
    return [sealed(number, number, epoch=epoch, source=source, size=size) for number in range(first, last + 1)]


@pytest.mark.long
def test_what_is_sent_before_a_bridge_is_there_outlives_a_kill_of_the_broker(artemis, ends, epoch):
    # given two sources whose batches the broker has, more of them than its memory takes
    for source in SOURCES:
        edge = ends.edge(epoch, source)
        edge.put(*batches(epoch, 1, 60, source, size=60_000))
        edge.acknowledged(at(60, epoch))
    assert artemis.pages()
    # when
    artemis.broker.kill()
    artemis.broker.start()
    bridge = ends.bridge()
    # then
    for source in SOURCES:
        eventually(lambda source=source: len(bridge.numbers[source]) >= 60)
        assert bridge.numbers[source] == list(range(1, 61))
    assert bridge.released == 0
    assert artemis.large_messages() == []


def test_a_broker_killed_under_load_loses_and_repeats_nothing(artemis, ends, epoch):
    edge, bridge = ends.edge(epoch), ends.bridge()
    # Of the size that batches have.
    edge.put(*batches(epoch, 1, 400, size=60_000))
    for kill in (1, 2):
        eventually(lambda kill=kill: len(bridge.numbers["jakarta/bank"]) > 60 * kill)
        artemis.broker.kill()
        artemis.broker.start()
    edge.acknowledged(at(400, epoch), 180)
    eventually(lambda: len(bridge.numbers["jakarta/bank"]) >= 400, 180)
    assert bridge.numbers["jakarta/bank"] == list(range(1, 401))
    assert artemis.large_messages() == []


def test_what_a_bridge_releases_comes_again_in_order(ends, epoch):
    edge = ends.edge(epoch)
    edge.put(*batches(epoch, 1, 100))
    edge.acknowledged(at(100, epoch))
    bridge = ends.bridge(release=70)
    eventually(lambda: len(bridge.numbers["jakarta/bank"]) >= 100)
    assert bridge.numbers["jakarta/bank"] == list(range(1, 101))
    assert bridge.released >= 70


def test_a_row_larger_than_the_broker_s_limit_passes_between_small_ones(ends, epoch):
    edge, bridge = ends.edge(epoch), ends.bridge()
    for number in range(1, 10):
        edge.put(sealed(number, number, epoch=epoch, size=900_000 if number % 3 == 0 else 0))
    edge.acknowledged(at(9, epoch))
    eventually(lambda: len(bridge.numbers["jakarta/bank"]) >= 9)
    assert bridge.numbers["jakarta/bank"] == list(range(1, 10))


def test_a_second_bridge_waits_until_the_first_is_gone(ends, epoch):
    edge, first = ends.edge(epoch), ends.bridge()
    edge.put(*batches(epoch, 1, 5))
    eventually(lambda: len(first.numbers["jakarta/bank"]) >= 5)
    second = ends.bridge()
    edge.put(*batches(epoch, 6, 30))
    eventually(lambda: len(first.numbers["jakarta/bank"]) >= 30)
    assert second.numbers["jakarta/bank"] == []
    # when
    second.tails["jakarta/bank"] = first.tails["jakarta/bank"]
    first.close()
    edge.put(*batches(epoch, 31, 40))
    eventually(lambda: len(second.numbers["jakarta/bank"]) >= 10)
    assert second.numbers["jakarta/bank"] == list(range(31, 41))


def test_a_source_sends_for_itself_only(ends, epoch, artemis):
    foreign = ends.edge(epoch, "jakarta/bank", **pem(artemis.certificates, "london-bank"))
    foreign.put(*batches(epoch, 1, 1))
    problem = foreign.problem()
    assert isinstance(problem, NeedsOperator)
    assert "does not let this edge send to cdc/jakarta/bank" in problem.message


def test_a_certificate_of_one_source_reaches_nothing_of_others_and_what_it_forges_stops_none(
    artemis, ends, epoch, kafka, topic, inside
):
    """The broker in the place of a router: its policy is that of infra/artemis, as a router's is that of infra/router."""
    name = topic(2)
    secure = "".join(f'{each} = "{path}"\n' for each, path in pem(artemis.certificates, "bridge").items())
    sources = dict(zip(SOURCES, ([0], [1]), strict=True))
    bridge = inside(kafka.bootstrap, sources, topic=name, url=artemis.url, secure=secure)
    london = ends.edge(epoch, "london/bank")
    london.put(*batches(epoch, 1, 5, "london/bank"))
    london.acknowledged(at(5, epoch))
    knocking = peers.Knocking(
        artemis.broker.port,
        "cdc/jakarta/bank",
        trusted=trust(artemis.certificates, "jakarta-bank"),
        credentials={"allowed_mechs": "EXTERNAL"},
    ).attached()

    # What is not its own takes nothing from it, and gives it nothing, its own batches included.
    own, other = "cdc/jakarta/bank", "cdc/london/bank"
    to = [
        "answers/london/bank", "requests/jakarta/bank", "requests/london/bank", "alerts/jakarta", "alerts/london", other,
        f"{other}::{other}", f"{other}/x", "cdc/#", "cdc/*", "#", "rejected/cdc", "rejected/alerts", "activemq.management",
        "$management", "new", "CDC/LONDON/BANK", f"queue://{other}", f"topic://{other}", None,
    ]  # fmt: skip
    of = [
        own, f"{own}::{own}", "answers/jakarta/bank", "answers/london/bank", "requests/london/bank", "alerts/jakarta",
        *to[5:-1], "activemq.notifications",
    ]  # fmt: skip
    for address in to:
        knocking.knock(address, receives=False)
    for address in of:
        knocking.knock(address, receives=True)
    eventually(lambda: len(knocking.refused) == len(to) + len(of), saying="all are refused")
    assert (knocking.accepted, knocking.received) == ([], [])
    assert sorted(map(str, knocking.refused)) == sorted(map(str, [*to, *of]))

    # What it forges at its own address is rejected by the bridge with its name.
    before = doors.BATCH.refused.get("jakarta/bank", 0)
    for number, message in enumerate(peers.batches("jakarta/bank", "london/bank")):
        if message.properties["version"] != 3:
            knocking.act(lambda peer, number=number, message=message: peer.link.send(message, tag=f"m{number}"))
    eventually(lambda: doors.BATCH.refused.get("jakarta/bank", 0) > before + 10, saying="the forged ones are rejected")
    london.put(*batches(epoch, 6, 20, "london/bank"))
    london.acknowledged(at(20, epoch))
    knocking.close()
    eventually(lambda: bridge.figures("london/bank")["records"] == 20, saying="the honest ones are there")
    records = [each for each in read_committed(kafka.bootstrap, name) if each.partition == 1]
    assert [json.loads(each.value)["n"] for each in records] == list(range(1, 21))


@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_a_password_over_tls_does_where_there_is_no_certificate(ends, epoch, artemis, password, monkeypatch):
    monkeypatch.setenv("INTERCONNECT_PASSWORD", password)
    authority = artemis.certificates / "authority.pem"
    edge = ends.edge(epoch, authority=authority, user="jakarta-bank", password=Secret("env:INTERCONNECT_PASSWORD"))
    edge.put(*batches(epoch, 1, 3))
    if password == "secret":
        edge.acknowledged(at(3, epoch))
    else:
        assert "does not let this edge in" in edge.problem().message
