"""TLS is 1.2 or newer at each of our servers, and for each of our clients (S13): peers that speak older versions alone."""

import ssl
import threading

import pytest

from bridge.kafka.client import admin
from edge.postgres.connection import connect
from headrace.configuration.bridge import BridgeFile, Kafka
from headrace.configuration.edge import Mysql, Postgresql
from headrace.configuration.load import load
from headrace.configuration.sections import Registry
from headrace.console.security import Identity
from headrace.console.server import Console, Settings
from headrace.registry.client import RegistryClient
from tests.bridge.bridge_file import bridge_file
from tests.hostile.old_tls import OldServer, assert_old_versions_are_refused
from tests.rules.waiting import eventually
from tests.unit.headrace.console.test_security import TOKEN

pytestmark = pytest.mark.filterwarnings("ignore:ssl.TLSVersion.:DeprecationWarning")


def test_the_console_speaks_no_tls_before_1_2(tmp_path, certificates):
    file = load(bridge_file(tmp_path, "127.0.0.1:1", {"jakarta/bank": [0]}, topic="bank"), BridgeFile)
    ours = certificates / "ours"
    console = Console(
        Settings(
            bridge=file, at=("127.0.0.1:1",), port=0, identity=Identity(token=TOKEN), certificate=ours / "bridge.pem",
            key=ours / "bridge.key",
        )
    )  # fmt: skip
    thread = threading.Thread(target=console.run, daemon=True)
    thread.start()
    try:
        eventually(lambda: console._server.started, saying="it serves")
        assert_old_versions_are_refused(console.port)
    finally:
        console.stop()
        thread.join(60)


def ask_kafka(port, authority):
    kafka = Kafka(bootstrap=f"localhost:{port}", security_protocol="SSL", authority=authority)
    admin(kafka).list_topics(timeout=3)


def ask_registry(port, authority):
    RegistryClient(Registry(url=f"https://localhost:{port}", authority=authority)).compatibility()


def ask_postgresql(port, authority):
    settings = {"host": "localhost", "port": port, "database": "d", "user": "u", "slot": "s", "publication": "p"}
    connect(Postgresql(**settings, sslmode="verify-full", sslrootcert=authority), "jakarta/bank")


#: What each client does, and what it says ahead of a handshake.
CLIENTS = {
    "Kafka": (ask_kafka, {}),
    "registry": (ask_registry, {}),
    "PostgreSQL": (ask_postgresql, {"asked": 8, "agrees": b"S"}),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_speaks_no_tls_before_1_2(name, certificates):
    ask, ahead = CLIENTS[name]
    ours = certificates / "ours"
    server = OldServer(ours / "bridge.pem", ours / "bridge.key", **ahead)
    try:
        with pytest.raises(Exception):  # noqa: B017 - whatever it makes of that.
            ask(server.port, ours / "authority.pem")
        eventually(lambda: server.refusals, saying="the handshake has ended")
        assert server.served == 0
        assert "version" in server.refusals[0].lower() or "unsupported" in server.refusals[0].lower(), server.refusals
    finally:
        server.close()


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_mariadb_and_mysql_are_asked_by_no_tls_before_1_2(mode):
    context = Mysql(host="h", user="u", server_id=1, sslmode=mode).parameters()["ssl"]
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
