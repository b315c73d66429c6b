"""The console's requests: whatever a visitor without the token sends is answered, and reaches no page; who is slow ends."""

import contextlib
import http.client
import socket
import threading

import psutil
import pytest

from headrace import doors
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from headrace.console import security as console_security
from headrace.console import server as console_server
from headrace.console.security import COOKIE, Identity
from headrace.console.server import Console, Settings
from headrace.logs import RateLimitedLog
from tests.bridge.bridge_file import bridge_file
from tests.rules.waiting import eventually
from tests.unit.headrace.console.test_security import TOKEN, client

FORM = {"content-type": "application/x-www-form-urlencoded"}
#: Method, path, headers and body by what is wrong with them.
REQUESTS = {
    "an origin that is no address": ("POST", "/login", {"origin": "http://["}, b"token=x"),
    "an origin of bytes": ("POST", "/login", {"origin": b"\xff\xfe"}, b"token=x"),
    "a form that is no UTF-8": ("POST", "/login", FORM, b"token=\xff%ff%zz&&=&token"),
    "a form without end": ("POST", "/login", FORM, b"token=" + b"x" * 5000),
    "many fields": ("POST", "/login", FORM, b"&".join([b"a=b"] * 1000)),
    "a token of bytes": ("GET", "/", {"authorization": b"Bearer \xff\xfe"}, b""),
    "an empty token": ("GET", "/", {"authorization": "Bearer "}, b""),
    "a cookie of others": ("GET", "/", {"cookie": f"{COOKIE}=x; {COOKIE}=; =;;; a"}, b""),
    "a path that goes up": ("GET", "/static/../../../etc/passwd", {}, b""),
    "a path of bytes": ("GET", "/sources/%ff/%00", {}, b""),
    "a long path": ("GET", "/" + "a/" * 5000, {}, b""),
    "a body that nobody wants": ("GET", "/", {}, b"x" * 100_000),
    "another method": ("TRACE", "/", {}, b""),
    "a form that logs out": ("POST", "/logout", {"origin": "http://["}, b""),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_no_browser_sends_is_answered_and_reaches_no_page(name):
    method, path, headers, body = REQUESTS[name]
    visitor = client(Identity(token=TOKEN))
    before = doors.CONSOLE.refused.get("10.0.0.9", 0)
    answer = visitor.request(method, path, headers=headers, content=body)
    # What was refused is counted; who gave no token was asked for it.
    asked = answer.status_code == 401 and method != "POST" and "authorization" not in headers
    assert doors.CONSOLE.refused.get("10.0.0.9", 0) - before == (answer.status_code >= 400 and not asked)
    assert 300 <= answer.status_code < 500
    assert answer.text != "inside"
    # and the next one is served
    assert visitor.get("/", headers={"authorization": f"Bearer {TOKEN}"}).text == "inside"


@pytest.fixture
def running(tmp_path, monkeypatch):
    """The console with a token, at its socket; a request has two seconds, and there are 20 connections."""
    monkeypatch.setattr(console_server, "REQUEST_SECONDS", 2.0)
    monkeypatch.setattr(console_server, "MOST_CONNECTIONS", 20)
    file = load(bridge_file(tmp_path, "127.0.0.1:1", {"jakarta/bank": [0]}, topic="bank"), BridgeFile)
    console = Console(Settings(bridge=file, at=("127.0.0.1:1",), port=0, identity=Identity(token=TOKEN)))
    thread = threading.Thread(target=console.run, daemon=True)
    thread.start()
    eventually(lambda: console._server.started, saying="it serves")
    yield console
    console.stop()
    thread.join(60)
    assert not thread.is_alive()


def page(console, path="/"):
    """Return the status and the text of a page, as somebody with the token gets it."""
    asking = http.client.HTTPConnection("127.0.0.1", console.port, timeout=60)
    asking.request("GET", path, headers={"authorization": f"Bearer {TOKEN}"})
    answer = asking.getresponse()
    result = answer.status, answer.read().decode()
    asking.close()
    return result


def said(console, *pieces):
    """Return what a visitor without the token is answered who sends these bytes, up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", console.port)) as made:
        made.settimeout(60)
        for piece in pieces:
            made.sendall(piece)
        found = b""
        try:
            while data := made.recv(1 << 16):
                found += data
        except ConnectionError:
            pass
        return found


_HOST = b"host: localhost\r\n"
_INNER = b"GET / HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer x\r\n\r\n"
#: Bytes of a request by what is wrong with them.
SMUGGLED = {
    "two lengths": b"POST /login HTTP/1.1\r\n%bcontent-length: 3\r\ncontent-length: 90\r\n\r\nabc%b" % (_HOST, _INNER),
    "a length and chunks": b"POST /login HTTP/1.1\r\n%bcontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n%b"
    % (_HOST, _INNER),
    "chunks of another case": b"POST /login HTTP/1.1\r\n%btransfer-encoding: xchunked\r\n\r\n0\r\n\r\n%b"
    % (_HOST, _INNER),
    "two hosts": b"GET / HTTP/1.1\r\n%bhost: evil.example\r\n\r\n" % _HOST,
    "another host in the line": b"GET http://evil.example/ HTTP/1.1\r\n%b\r\n" % _HOST,
    "a line feed in a header": b"GET / HTTP/1.1\r\n%bx: a\nauthorization: Bearer %b\r\n\r\n" % (_HOST, b"x"),
    "a space ahead of the colon": b"GET / HTTP/1.1\r\n%bauthorization : Bearer x\r\n\r\n" % _HOST,
    "a folded header": b"GET / HTTP/1.1\r\n%bx: a\r\n authorization: Bearer x\r\n\r\n" % _HOST,
    "a path that goes up": b"GET /static/..%%2f..%%2f..%%2fetc/passwd HTTP/1.1\r\n%b\r\n" % _HOST,
    "a path that goes up as it is": b"GET /static/../../../../etc/passwd HTTP/1.1\r\n%b\r\n" % _HOST,
    "a long line": b"GET /%b HTTP/1.1\r\n%b\r\n" % (b"a" * 200_000, _HOST),
    "headers without end": b"GET / HTTP/1.1\r\n%b%b\r\n" % (_HOST, b"a: b\r\n" * 50_000),
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "another protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an upgrade": b"GET / HTTP/1.1\r\n%bconnection: upgrade\r\nupgrade: websocket\r\n\r\n" % _HOST,
}


@pytest.mark.parametrize("name", SMUGGLED)
def test_bytes_that_are_no_request_or_two_reach_no_page_of_the_running_console(running, name):
    answer = said(running, SMUGGLED[name])
    statuses = [int(line.split()[1]) for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    assert all(300 <= status < 500 for status in statuses), answer[:300]
    assert b"jakarta" not in answer
    assert b"root:" not in answer
    status, text = page(running)
    assert (status, "jakarta/bank" in text) == (200, True)


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HTTP/1.1\r\nhost: loc",
        b"POST /login HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4000\r\n\r\ntoken=",
        b"POST /login HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n",
    ],
)
def test_who_sends_a_byte_now_and_then_is_closed_and_others_are_served(running, begun):
    with socket.create_connection(("127.0.0.1", running.port)) as slow:
        slow.sendall(begun)
        slow.settimeout(0.1)
        ended = False
        while not ended:
            assert page(running)[0] == 200
            try:
                # Each wait for an answer lasts a tenth of a second.
                ended = not slow.recv(1 << 16)
            except TimeoutError:
                slow.sendall(b"1")
            except ConnectionError:
                ended = True


def test_who_reads_nothing_of_what_it_asks_for_is_closed_and_others_are_served(running):
    with socket.create_connection(("127.0.0.1", running.port)) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ask = b"GET / HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %b\r\n\r\n" % TOKEN.encode()
        slow.settimeout(60)
        # More than buffers hold of the answers.
        slow.sendall(ask * 1000)

        def is_closed():
            try:
                slow.sendall(ask)
            except OSError:
                return True
            return False

        while not is_closed():
            assert page(running)[0] == 200


def test_what_is_refused_is_in_the_metrics_and_logged_once_without_what_came(running, monkeypatch, caplog):
    monkeypatch.setattr(console_security, "_refused", RateLimitedLog(console_security._log.warning))
    for secret in ("guess-1", "guess-2", "guess-3"):
        said(
            running,
            b"GET / HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %b\r\nconnection: close\r\n\r\n"
            % secret.encode(),
        )
    assert page(running, "/no-such-page")[0] == 404
    _, text = page(running, "/metrics")
    name = 'headrace_console_refused_inputs_total{door="console",sender="127.0.0.1"} '
    (count,) = [each.removeprefix(name) for each in text.splitlines() if each.startswith(name)]
    assert float(count) >= 4
    assert caplog.messages == ["a request of 127.0.0.1 is refused: Unauthorized"]


def test_many_connections_leave_room_for_others_and_no_descriptor_behind(running):
    before = psutil.Process().num_fds()
    refused = doors.CONSOLE.refused.get("127.0.0.1", 0)
    open_ones = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(100)]
    assert page(running)[0] == 200
    for each in open_ones:
        each.settimeout(60)
        with each, contextlib.suppress(ConnectionError):
            assert each.recv(1) == b""
    assert doors.CONSOLE.refused["127.0.0.1"] - refused >= 80
    eventually(lambda: psutil.Process().num_fds() <= before + 5, saying="their descriptors are closed")
    assert page(running)[0] == 200


@pytest.mark.parametrize("site", [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}])
def test_another_site_gets_no_session_and_no_right_to_read(running, site):
    asking = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    form = {"content-type": "application/x-www-form-urlencoded"} | site
    asking.request("POST", "/login", f"token={TOKEN}", form)
    answer = asking.getresponse()
    answer.read()
    assert answer.getheader("access-control-allow-origin") is None
    cookie = answer.getheader("set-cookie")
    assert cookie is None if "origin" in site else "SameSite=strict" in cookie
    assert answer.getheader("cross-origin-resource-policy") == "same-origin"
    assert (answer.status == 403) == ("origin" in site)
    asking.close()
