"""The client of a schema registry: one connection for many requests, over a server of the test's own."""

import json
import ssl
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headrace.certificates.command import Authority
from headrace.configuration.sections import Registry
from headrace.errors import NeedsOperator, NotConnected
from headrace.registry.client import Incompatible, NotThere, RegistryClient


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.connections += 1

    def log_message(self, *_arguments):
        pass

    def do_GET(self):
        self.server.asked.append((self.command, self.path))
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, body = self.server.answer
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        if self.server.stops_at is not None:
            self.wfile.write(data[: self.server.stops_at])
            for byte in data[self.server.stops_at :]:
                # Too slow for the whole, too quick for any limit of one read.
                if self.server.goes_on.wait(0.05):
                    return
                if self.server.trickles:
                    self.wfile.write(bytes([byte]))
            self.server.goes_on.wait(60)
        self.wfile.write(data)
        # As a registry does that closes connections which were idle: without a word.
        self.close_connection = self.server.closes

    do_POST = do_PUT = do_GET  # noqa: N815 - the server looks for these names.


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads = True
    made.connections, made.asked, made.answer, made.closes = 0, [], (200, {"id": 7, "schema": "{}"}), False
    made.stops_at, made.trickles, made.goes_on = None, False, threading.Event()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def client(server):
    registry_client = RegistryClient(
        Registry(url=f"http://127.0.0.1:{server.server_port}/apis/ccompat/v7/", timeout_seconds=5)
    )
    yield registry_client
    registry_client.close()


def test_many_requests_take_one_connection(server, client):
    """K8: each took a connection and a TLS context of its own."""
    for _ in range(20):
        assert client.register("a b/c", "{}") == 7
        assert client.schema(7) == "{}"
    assert server.connections == 1
    assert server.asked[:2] == [
        ("POST", "/apis/ccompat/v7/subjects/a%20b%2Fc/versions"),
        ("GET", "/apis/ccompat/v7/schemas/ids/7"),
    ]
    assert len(server.asked) == 40


def test_a_connection_that_the_registry_closed_is_made_again(server, client):
    server.closes = True
    for _ in range(5):
        assert client.schema(7) == "{}"
    assert len(server.asked) == 5


def test_a_certificate_that_changed_makes_another_connection(server, tmp_path):
    """The one that is kept has the former certificate, which the registry may have revoked."""
    authority = Authority(tmp_path)
    own, theirs = authority.client("bridge"), authority.server("registry", ["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.certificate_file)
    context.load_cert_chain(theirs, theirs.with_suffix(".key"))
    context.verify_mode = ssl.CERT_REQUIRED
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = f"https://127.0.0.1:{server.server_port}/apis/ccompat/v7"
    files = {"authority": authority.certificate_file, "certificate": own, "key": own.with_suffix(".key")}
    with closing(RegistryClient(Registry(url=url, timeout_seconds=5, **files))) as client:
        for connections in (1, 2):
            for _ in range(2):
                client.schema(7)
            assert server.connections == connections
            authority.client("bridge")
        # One that is not there is named, and not taken for the same as before.
        own.unlink()
        with pytest.raises(NeedsOperator, match=r"certificates of \[registry\] cannot be used"):
            client.schema(7)
        authority.client("bridge")
        client.schema(7)
        assert server.connections == 3


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        ((404, {"error_code": 40403, "message": "no such id"}), NotThere, "has no /schemas/ids/7: no such id"),
        ((409, {"message": "incompatible"}), Incompatible, "as incompatible: incompatible"),
        ((401, b"<html>who are you</html>"), NeedsOperator, "refuses the login (401): <html>who are you"),
        ((503, b""), NotConnected, "fails (503): Service Unavailable"),
        ((302, b""), NeedsOperator, "refuses /schemas/ids/7 (302)"),
        ((200, b"<html>a page</html>"), NeedsOperator, "is no schema registry"),
        # Of a proxy without a registry behind it: that has lost nothing.
        ((404, b"<html>default backend</html>"), NotConnected, "fails (404): <html>default backend"),
        ((404, {"message": "no Route matched"}), NotConnected, "fails (404): no Route matched"),
        ((404, {"message": "gone", "error_code": "NR"}), NotConnected, "fails (404): gone"),
        ((404, {"message": "gone", "error_code": True}), NotConnected, "fails (404): gone"),
        ((404, [{"error_code": 40403}]), NotConnected, "fails (404)"),
        ((200, []), NeedsOperator, "is no schema registry"),
    ],
)
def test_what_is_refused_is_named_and_the_connection_is_still_of_use(server, client, answer, error, said):
    good, server.answer = server.answer, answer
    with pytest.raises(error) as raised:
        client.schema(7)
    assert said in raised.value.message
    server.answer = good
    assert client.schema(7) == "{}"
    assert server.connections == 1


@pytest.mark.parametrize("trickles", [False, True])
def test_a_registry_that_hangs_in_its_answer_is_away(server, trickles):
    server.answer, server.stops_at, server.trickles = (200, b" " * 10_000), 10, trickles
    client = RegistryClient(Registry(url=f"http://127.0.0.1:{server.server_port}", timeout_seconds=0.5))
    with pytest.raises(NotConnected, match="does not answer"):
        client.schema(7)
    server.goes_on.set()
    server.answer, server.stops_at = (200, {"schema": "{}"}), None
    assert RegistryClient(Registry(url=f"http://127.0.0.1:{server.server_port}")).schema(7) == "{}"


def test_a_registry_that_is_away_is_asked_again_later(client, server):
    assert client.schema(7) == "{}"
    away = RegistryClient(Registry(url="http://127.0.0.1:1"))
    with pytest.raises(NotConnected, match="does not answer"):
        away.schema(7)
