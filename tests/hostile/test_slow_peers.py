"""Peers that send a byte now and then: others are served meanwhile, and each ends within a bounded time."""

import contextlib
import socket
import time
import urllib.request

import pytest

from bridge.amqp import connections
from bridge.kafka.client import admin
from bridge.kafka.topics import Wanted, check
from edge.mysql import connection as mysql
from edge.postgres import connection as postgres
from headrace.amqp import connection
from headrace.configuration.bridge import Kafka
from headrace.configuration.edge import Mysql, Postgresql
from headrace.errors import NotConnected
from headrace.metrics import endpoint as endpoints
from headrace.metrics.endpoint import Endpoint
from headrace.status.answer import Health
from headrace.verify import comparison
from headrace.verify.comparison import Reading
from headrace.verify.mysql.database import MysqlDatabase
from headrace.verify.postgres.database import SourceDatabase
from tests.amqp.interconnect_ends import Edge, Far, at, pem, sealed
from tests.amqp.peer import Listener
from tests.hostile import slow_wire
from tests.hostile.peers import Rogue, send_raw
from tests.hostile.slow_wire import SlowWire
from tests.rules.waiting import eventually

SLOW, HONEST = "jakarta/bank", "london/bank"


@pytest.fixture
def limits(monkeypatch):
    """Limits of a few seconds, in place of 10 and 60; slow peers send ten bytes in one."""
    monkeypatch.setattr(connections, "PENDING_SECONDS", 2.0)
    # Who is idle sends a frame every five.
    monkeypatch.setattr(connections, "FRAME_LOOKS", 7)


@pytest.fixture
def wires():
    slow_wires = []

    def start(*arguments, **settings):
        slow_wires.append(SlowWire(*arguments, **settings))
        return slow_wires[-1]

    yield start
    for each in slow_wires:
        each.close()


class Served:
    """An honest edge, which goes on sending."""

    def __init__(self, far, url, **settings):
        self.far, self.edge, self.upto = far, Edge(url, source=HONEST, **settings), 0

    def goes_on(self):
        self.upto += 1
        self.edge.put(sealed(self.upto, self.upto, source=HONEST))
        self.edge.acknowledged(at(self.upto))

    def close(self):
        assert self.edge.figures.interconnect_connections == 1
        assert self.far.receiver.failure is None
        self.edge.close()
        self.far.close()


def ends(wire, served):
    """Go on sending until the slow peer was closed."""
    served.goes_on()
    wire.slow()
    while not wire.closed.wait(0):
        served.goes_on()


@pytest.mark.parametrize("stage", ["SASL", "ANSWER", "OPEN"])
def test_a_peer_that_is_slow_before_it_is_open_is_sent_off(limits, wires, stage):
    far = Far((SLOW, HONEST))
    served = Served(far, far.url())
    wire = wires(far.receiver.port, getattr(slow_wire, stage))
    rogue = Rogue(wire.port, f"cdc/{SLOW}")
    ends(wire, served)
    rogue.close()
    served.close()


def test_a_peer_that_is_slow_in_its_handshake_of_tls_is_sent_off(limits, wires, certificates):
    ours = certificates / "ours"
    far = Far((SLOW, HONEST), **pem(ours, "bridge"))
    served = Served(far, far.url(scheme="amqps", host="localhost"), **pem(ours, "london-bank"))
    wire = wires(far.receiver.port)
    edge = Edge(f"amqps://localhost:{wire.port}", source=SLOW, **pem(ours, "jakarta-bank"))
    ends(wire, served)
    edge.close()
    served.close()


def test_a_peer_that_is_slow_in_the_middle_of_a_transfer_is_sent_off(limits, wires):
    """Its bytes are a sign of life to Proton, so that it held its connection for ever."""
    far = Far((SLOW, HONEST))
    served = Served(far, far.url())
    wire = wires(far.receiver.port, slow_wire.TRANSFER)
    rogue = Rogue(wire.port, f"cdc/{SLOW}").attached()
    rogue.act(send_raw(bytes(50_000)))
    ends(wire, served)
    eventually(lambda: far.receiver.links.credit.of(SLOW) is None, saying="its link is forgotten")
    assert far.receiver.links._bytes_arriving == 0
    rogue.close()
    served.close()


def test_connections_whose_link_a_newer_one_replaced_do_not_stay(limits):
    """One certificate opened any number of them, until the bridge had no descriptor for an honest edge."""
    far = Far((SLOW, HONEST))
    served = Served(far, far.url())
    rogues = [Rogue(far.receiver.port, f"cdc/{SLOW}").attached() for _ in range(20)]
    served.goes_on()
    for each in rogues[:-1]:
        assert each.gone.wait(60), "a connection without a link stays"
    served.goes_on()
    assert not rogues[-1].gone.is_set()
    rogues[-1].close()
    served.close()


class Silent(Listener):
    """A far side that an edge reaches, and that takes what comes."""

    def __init__(self):
        super().__init__()
        self.start()


@pytest.mark.parametrize("mark", [b"", b"AMQP\x00"])
def test_a_far_side_that_is_slow_is_given_up_and_the_next_address_is_taken(wires, monkeypatch, mark):
    """Edges, receivers and bridges that connect out have this connection."""
    monkeypatch.setattr(connection, "ATTEMPT_SECONDS", 2.0)
    far, silent = Far((SLOW,)), Silent()
    wire = wires(silent.port, mark, backwards=True)
    edge = Edge([f"amqp://127.0.0.1:{wire.port}", far.url()], source=SLOW)
    edge.put(sealed(1, 3, source=SLOW))
    wire.slow()
    edge.acknowledged(at(3))
    assert wire.closed.wait(60)
    edge.close()
    far.close()
    silent.close()


class Answered:
    """A part whose endpoint answers."""

    collector = None

    def live(self):
        return Health(well=True, reason="")


def test_an_endpoint_of_metrics_closes_the_oldest_of_many_that_are_slow(monkeypatch):
    """Each kept a thread for as long as it sent a byte within five seconds."""
    # As if each did: none is closed for its silence.
    monkeypatch.setattr(endpoints._Handler, "timeout", 600)
    endpoint = Endpoint("127.0.0.1:0", Answered())
    slow = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(60)]
    for each in slow:
        each.settimeout(60)
        each.sendall(b"GET /h")
    assert urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/health/live", timeout=60).status == 200
    with slow[0], contextlib.suppress(ConnectionError):
        assert slow[0].recv(1) == b""
    for each in slow:
        each.close()
    endpoint.stop()


@pytest.mark.parametrize(("error", "lines"), [(ConnectionResetError("gone"), 0), (ValueError("a defect"), 1)])
def test_a_request_that_fails_at_an_endpoint_of_metrics_is_in_the_log_unless_its_visitor_is_gone(
    monkeypatch, caplog, capfd, error, lines
):
    """A traceback was printed to standard error."""

    def fail(*_):
        raise error

    monkeypatch.setattr(endpoints._Handler, "do_GET", fail)
    endpoint = Endpoint("127.0.0.1:0", Answered())
    with socket.create_connection(("127.0.0.1", endpoint.port)) as visitor:
        visitor.settimeout(60)
        visitor.sendall(b"GET /health/live HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert visitor.recv(1) == b""
    endpoint.stop()
    errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == lines
    assert all("the endpoint of metrics of 127.0.0.1 is refused: ValueError at " in each for each in errors)
    assert "Traceback" not in capfd.readouterr().err


def slow_database(database, wires, mark=b"", **changes):
    """Return how an edge reaches a database whose answers become slow at some bytes."""
    wire = wires(database.postgres.port, mark, backwards=True)
    return Postgresql(**given(database) | changes, port=wire.port, sslmode="disable")


def given(database):
    return {"host": "127.0.0.1", "database": database.name, "user": "postgres", "slot": "s", "publication": "p"}


def test_a_database_that_is_slow_in_its_answers_ends_its_connection_and_not_the_edge(database, wires, monkeypatch):
    """The server's statement_timeout is no limit for who sends the answer: the thread that captures waited for ever."""
    monkeypatch.setattr(postgres, "_ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(postgres, "_ROWS_SECONDS", 1.0)
    slowly = "select 'slowly' || repeat('x', 100000) as a"
    for ask in (
        lambda asked: asked.rows(slowly),
        lambda asked: asked.checked_rows(slowly),
        lambda asked: asked.alter(slowly),
        lambda asked: asked.copied(f"copy ({slowly}) to stdout", 1 << 20),
        lambda asked: asked.value_within(1.0, slowly),
    ):
        asked = postgres.Database(slow_database(database, wires, b"slowly"), SLOW)
        with pytest.raises(NotConnected):
            ask(asked)
        asked.close()
    with pytest.raises(NotConnected):
        postgres.Database(slow_database(database, wires, connect_timeout=2), SLOW)
    # What waits for all transactions of a server, in a command, has no limit here either.
    patient = postgres.Database(Postgresql(**given(database), port=database.postgres.port), SLOW)
    patient.wait_for_all()
    assert patient.rows("select pg_sleep(1.5), 1")[0][1] == 1
    patient.close()


def test_a_mariadb_that_is_slow_in_its_answers_ends_its_connection_and_not_the_edge(maria, wires, monkeypatch):
    """As above: the driver's limit is for each read, whatever it brings."""
    monkeypatch.setattr(mysql, "_ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(mysql, "_SILENCE_SECONDS", 1.0)
    slowly = "select concat('slow', 'ly', repeat('x', 100000)) as a"
    for kind, ask in (
        (mysql.Database, lambda asked: asked.rows(slowly)),
        (mysql.Database, lambda asked: asked.dictionaries(slowly)),
        (mysql.SnapshotConnection, lambda asked: asked.selected(slowly, 1 << 20)),
    ):
        wire = wires(maria.server.port, b"slowly", backwards=True)
        asked = kind(Mysql(host="127.0.0.1", port=wire.port, user="root", server_id=9, sslmode="disable"), SLOW)
        with pytest.raises(NotConnected):
            ask(asked)
        asked.close()


#: Where a server becomes slow, and whether the driver speaks TLS by then and has given its socket away.
HANDSHAKE = {
    "greeting": (b"", "disable"),
    "method": (b"mysql_native_password", "disable"),
    "password": (b"\x07\x00\x00\x02", "disable"),
    "TLS": (b"\x16\x03\x03", "require"),
}


@pytest.mark.parametrize("place", HANDSHAKE)
def test_a_mariadb_that_is_slow_in_its_handshake_is_one_that_cannot_be_reached(maria, wires, place):
    """The edge, and `headrace verify` where it connects itself, began to wait again with each byte."""
    mark, sslmode = HANDSHAKE[place]
    for connect in (
        lambda config: mysql.Database(config, SLOW),
        lambda config: MysqlDatabase.connect(SLOW, config).__enter__(),
    ):
        wire = wires(maria.server.port, mark, backwards=True)
        config = Mysql(host="127.0.0.1", port=wire.port, user="root", server_id=9, sslmode=sslmode, connect_timeout=1)
        with pytest.raises(NotConnected):
            connect(config)
        assert wire.dripped
        assert wire.closed.wait(60)


@pytest.mark.parametrize("engine", ["postgresql", "mysql"])
def test_a_verification_ends_where_a_server_is_slow_in_its_answers(database, maria, wires, monkeypatch, engine):
    """Its limits are the server's own: an edge was at that verification for ever, and did no other."""
    monkeypatch.setattr(comparison, "_BEYOND_SECONDS", 1.0)
    reading = Reading(statement_seconds=1)
    if engine == "postgresql":
        connected = SourceDatabase.connect(SLOW, slow_database(database, wires, b"slowly"), reading=reading)
        slowly = "select 'slowly' || repeat('x', 100000)"
    else:
        wire = wires(maria.server.port, b"slowly", backwards=True)
        config = Mysql(host="127.0.0.1", port=wire.port, user="root", server_id=9, sslmode="disable")
        connected = MysqlDatabase.connect(SLOW, config, reading=reading)
        slowly = "select concat('slow', 'ly', repeat('x', 100000))"
    with connected as asked, pytest.raises(NotConnected):
        asked.query(slowly, "the test")


def test_a_broker_of_kafka_s_that_is_slow_is_one_that_cannot_be_reached(kafka, wires):
    _, _, port = kafka.bootstrap.rpartition(":")
    wire = wires(int(port), backwards=True)
    client = admin(Kafka(bootstrap=f"127.0.0.1:{wire.port}"))
    began = time.monotonic()
    with pytest.raises(NotConnected):
        check(client, {"any": Wanted(1)}, timeout=3)
    assert wire.dripped
    assert time.monotonic() - began < 30
