"""Ways that break: several addresses, a wire that says nothing, one that flaps, a far side that reads slowly."""

import os
import resource

from proton.utils import BlockingConnection

from headrace.amqp import connection, transport
from headrace.amqp.sockets import Socket
from headrace.errors import NeedsOperator
from headrace.waiting import Backoff
from infra.local.server import free_port
from tests.amqp.edge_peers import Crowded, Quiet, Refusing
from tests.amqp.interconnect_ends import SOURCE, Edge, Far, at, sealed
from tests.amqp.router_double import Router
from tests.rules.waiting import eventually


def test_an_edge_goes_on_by_another_address(ends, proxies):
    far = ends(Far)
    first, second = (proxies("127.0.0.1", far.receiver.port) for _ in range(2))
    nobody = f"amqp://127.0.0.1:{free_port()}"
    edge = ends(Edge, [nobody, f"amqp://127.0.0.1:{first.port}", f"amqp://127.0.0.1:{second.port}"])
    edge.put(sealed(1, 5))
    edge.acknowledged(at(5))
    # when the way in use dies, again and again
    for number in (6, 7, 8, 9):
        down, up = (first, second) if number % 2 == 0 else (second, first)
        up.start()
        down.stop()
        edge.put(sealed(number, number))
        edge.acknowledged(at(number))
    assert far.numbers[SOURCE] == list(range(1, 10))


def test_a_bridge_goes_on_by_another_router(ends, caplog):
    caplog.set_level("INFO")
    routers = [Router({f"cdc/{SOURCE}": []}) for _ in range(2)]
    urls = [f"amqp://127.0.0.1:{router.port}" for router in routers]
    try:
        ends(Far, url=urls)
        eventually(lambda: routers[0].connected == 1)
        routers[0].close()
        eventually(lambda: routers[1].connected == 1)
    finally:
        routers[1].close()


def test_a_wire_that_says_nothing_is_noticed_on_both_sides(ends, proxies, monkeypatch, caplog):
    monkeypatch.setattr(connection, "ATTEMPT_SECONDS", 1.0)
    monkeypatch.setattr(transport, "IDLE_SECONDS", 1.0)
    far = ends(Far)
    wire = proxies("127.0.0.1", far.receiver.port)
    edge = ends(Edge, f"amqp://127.0.0.1:{wire.port}")
    edge.put(sealed(1, 1))
    edge.acknowledged(at(1))
    # when the wire swallows everything and closes nothing
    wire.stall()
    edge.put(sealed(2, 2))
    # then both sides give the connection up, and the edge goes on trying
    eventually(lambda: "local-idle-timeout expired" in caplog.text, saying="the edge notices")
    eventually(lambda: not far.receiver.links.credit.all(), saying="the bridge notices")
    eventually(lambda: "did not answer within" in caplog.text, saying="attempts through the black hole end")
    assert not edge.outbox.empty
    # when it carries again
    wire.resume()
    edge.acknowledged(at(2))
    assert far.numbers[SOURCE] == [1, 2]


def test_a_bridge_gives_up_a_silent_router_when_the_idle_timeout_has_passed_once(ends, proxies, monkeypatch, caplog):
    """The connection was reported as lost in time, and its links only after as long again (R10)."""
    caplog.set_level("INFO")
    monkeypatch.setattr(transport, "IDLE_SECONDS", 4.0)
    router = Router({f"cdc/{SOURCE}": []})
    wire = proxies("127.0.0.1", router.port)
    try:
        ends(Far, url=[f"amqp://127.0.0.1:{wire.port}"])
        eventually(lambda: f"{SOURCE}: link up" in caplog.text, saying="the bridge connects")
        wire.stall()
        lost, noticed = (
            eventually(lambda what=what: [it.created for it in caplog.records if what in it.getMessage()])[0]
            for what in ("link lost", "local-idle-timeout expired")
        )
        assert abs(lost - noticed) < 2
    finally:
        wire.resume()
        router.close()


def test_a_wire_that_flaps_carries_everything_once(ends, proxies):
    far = ends(Far)
    wire = proxies("127.0.0.1", far.receiver.port)
    edge = ends(Edge, f"amqp://127.0.0.1:{wire.port}")
    edge.put(*[sealed(number, number, size=40_000) for number in range(1, 301)])
    for flap in range(1, 9):
        eventually(lambda flap=flap: len(far.numbers[SOURCE]) >= min(300, 20 * flap))
        wire.cut()
    edge.acknowledged(at(300))
    assert far.numbers[SOURCE] == list(range(1, 301))


def test_a_bridge_that_reads_slowly_holds_the_edge_back_and_no_more(ends):
    far = ends(Far, credit=4, reads=False)
    edge = ends(Edge, far.url())
    edge.put(*[sealed(number, number, size=40_000) for number in range(1, 101)])
    eventually(lambda: len(far.inboxes[SOURCE]) == 4)
    assert edge.figures.sent == 4
    assert edge.outbox.batches == 100


def test_a_connection_that_ends_when_its_time_has_come_ends_no_loop(ends, proxies, monkeypatch):
    # given sockets whose time has come whenever something comes, as after a machine has stood still
    ready = Socket._ready

    def late(sock, reading, writing):
        ready(sock, reading, writing)
        sock._tick()

    monkeypatch.setattr(Socket, "_ready", late)
    far = ends(Far)
    wire = proxies("127.0.0.1", far.receiver.port)
    edge = ends(Edge, f"amqp://127.0.0.1:{wire.port}")
    edge.put(sealed(1, 1))
    edge.acknowledged(at(1))
    # when the way ends for both, as where a process in the middle does
    for number in (2, 3, 4):
        wire.damage(0, flip=False)
        edge.put(sealed(number, number))
        # then both go on
        edge.acknowledged(at(number))
    assert far.receiver.failure is None


def test_an_edge_sends_whatever_its_process_has_open(ends):
    # given descriptors beyond those that `select` knows
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    try:
        far = ends(Far)
        edge = ends(Edge, far.url())
        edge.put(sealed(1, 1))
        edge.acknowledged(at(1))
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_messages_that_are_cut_off_in_the_middle_cost_no_credit(ends):
    far = ends(Far, credit=4)
    connection = BlockingConnection(far.url(), timeout=60, allowed_mechs="ANONYMOUS")
    try:
        sender = connection.create_sender(f"cdc/{SOURCE}").link
        # when more of them are aborted than there is credit for, as a router does when an edge behind it dies
        for number in range(10):
            connection.wait(lambda: sender.credit > 0, msg="credit")
            delivery = sender.delivery(str(number))
            sender.stream(bytes(200_000))
            connection.wait(lambda delivery=delivery: delivery.pending < 200_000, msg="a part of it is sent")
            delivery.abort()
        # then there is credit for as many as before
        connection.wait(lambda: sender.credit == 4, msg="all credit")
    finally:
        connection.close()


def test_credit_that_the_far_side_wants_back_is_given_back(ends, interconnect):
    edge = ends(Edge, interconnect.url)
    edge.put(sealed(1, 1))
    edge.acknowledged(at(1))
    interconnect.drain()
    eventually(lambda: interconnect.drained >= 1)
    edge.put(sealed(2, 2))
    edge.acknowledged(at(2))


def test_the_link_is_named_for_its_source_and_asks_a_broker_for_a_queue(ends, caplog):
    caplog.set_level("INFO")
    far = ends(Far)
    edge = ends(Edge, far.url())
    edge.put(sealed(1, 1))
    edge.acknowledged(at(1))
    (feed,) = far.receiver.links.credit.all()
    assert feed.link.name == f"headrace {SOURCE}"
    assert "link up, from headrace-edge jakarta/bank" in caplog.text
    assert [str(each) for each in _capabilities(feed.link)] == ["queue"]


def _capabilities(link):
    data = link.remote_target.capabilities
    data.rewind()
    while data.next() is not None:
        yield data.get_object()


def test_an_edge_goes_back_over_what_was_accepted_past_a_hole(ends, interconnect):
    # given a receiver that was lost with deliveries in flight, and another that came at once: outcomes as routers gave them
    edge = ends(Edge, interconnect.url)
    edge.put(sealed(1, 1))
    edge.acknowledged(at(1))
    interconnect.hold()
    edge.put(*[sealed(number, number) for number in range(2, 9)])
    eventually(lambda: len(interconnect.messages) == 8)
    interconnect.faults.extend(["modify", "modify", "release", "release", "accept", "accept", "accept"])
    # when
    interconnect.let_go()
    # then
    edge.acknowledged(at(8))
    assert [value["n"] for _, _, value in interconnect.records] == list(range(1, 9))


def test_a_limit_that_lasts_does_not_end_an_edge_and_when_it_passes_the_edge_goes_on(ends, monkeypatch, caplog):
    """A vhost's maxConnections may be reached for a while: the edge ended with exit code 3 after seconds (R6, R7)."""
    monkeypatch.setattr("headrace.amqp.connection.Backoff", lambda **_options: Backoff(first=0.001, longest=0.001))
    crowded = Crowded()
    edge = ends(Edge, f"amqp://127.0.0.1:{crowded.port}")
    edge.put(sealed(1, 5))
    eventually(lambda: crowded.refused > 10, saying="the edge goes on trying")
    crowded.close()
    ends(Far, listen=f"127.0.0.1:{crowded.port}")
    edge.acknowledged(at(5))
    assert "connection disallowed by local policy" in caplog.text
    assert "policy has no group that names this edge's user" in caplog.text


def test_a_link_that_gets_no_credit_is_shown_as_such(ends, monkeypatch, caplog):
    """A router lets every sender attach, and grants credit only once somebody receives (R2)."""
    monkeypatch.setattr("edge.observability.clocks._ORDINARY_SECONDS", 0.1)
    monkeypatch.setattr("edge.delivery.link._CREDIT_SECONDS", 0.1)
    caplog.set_level("INFO")
    quiet = Quiet()
    edge = ends(Edge, f"amqp://127.0.0.1:{quiet.port}")
    try:
        eventually(lambda: "attached, no credit since" in caplog.text, saying="the log says so")
        figures = edge.figures
        figures.database_connected = 1
        assert figures.state == "interconnect down"
        assert figures.reason.startswith("attached, no credit since 20")
        assert figures.no_credit > 0.1
        quiet.grant(3)
        eventually(lambda: figures.no_credit == 0, saying="credit ends the wait")
        assert figures.state == "capturing"
    finally:
        quiet.close()


def test_a_refused_link_was_never_attached(ends, caplog):
    """A refusal begins with an answer without a target (R11)."""
    caplog.set_level("INFO")
    refusing = Refusing()
    try:
        problem = ends(Edge, f"amqp://127.0.0.1:{refusing.port}").problem()
    finally:
        refusing.close()
    assert isinstance(problem, NeedsOperator)
    assert "does not let this edge send" in problem.message
    assert "attached to" not in caplog.text
