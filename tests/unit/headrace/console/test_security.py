"""Who may ask the console: names, identities, methods, and what browsers are forbidden."""

import asyncio
from ipaddress import ip_network

import httpx
import pytest
from starlette.responses import PlainTextResponse

from headrace.console.security import HEADERS, Guard, Identity, Sessions

TOKEN = "a-token-that-is-long-enough"


class Client:
    """A browser: it keeps cookies, and calls an application of this process from an address."""

    def __init__(self, application, address):
        self._transport = httpx.ASGITransport(application, client=(address, 5000))
        self._cookies = httpx.Cookies()

    def request(self, method, path, **options):
        async def answered():
            given = {"transport": self._transport, "cookies": self._cookies, "base_url": "https://console.example"}
            async with httpx.AsyncClient(**given) as asking:
                answer = await asking.request(method, path, **options)
                self._cookies = asking.cookies
                return answer

        return asyncio.run(answered())

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, **options):
        return self.request("POST", path, **options)


def client(identity=None, hosts=("console.example", "localhost"), address="10.0.0.9"):
    """Return a client of a guarded application that answers everything with `inside`."""
    guard = Guard(
        PlainTextResponse("inside"),
        hosts=hosts,
        identity=identity or Identity(),
        secure=True,
        login_page=lambda problem: f"<form>{problem}</form>",
    )
    return Client(guard, address)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("console.example", 200),
        ("CONSOLE.example:9420", 200),
        ("localhost:1", 200),
        ("evil.example", 421),
        ("console.example.evil.example", 421),
        ("console.example@evil.example", 421),
        ("[", 421),
        ("", 421),
    ],
)
def test_only_the_consoles_own_names_are_answered(host, status):
    assert client().get("/", headers={"Host": host}).status_code == status


def test_every_answer_forbids_scripts_of_others_and_frames():
    for answer in (client().get("/"), client().get("/", headers={"Host": "evil.example"})):
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(method):
    assert client().request(method, "/").status_code == 405


def test_a_stranger_gets_401_and_a_browser_the_login_page_with_it():
    asked = client(Identity(token=TOKEN))
    assert asked.get("/").status_code == 401
    assert asked.get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
    page = asked.get("/sources/a/b", headers={"Accept": "text/html"})
    assert (page.status_code, page.text) == (401, "<form></form>")
    assert asked.get("/static/console.css").status_code == 200


def test_a_token_is_taken_as_a_bearer_or_once_for_a_cookie_that_scripts_and_other_sites_do_not_have():
    asked = client(Identity(token=TOKEN))
    assert asked.get("/", headers={"Authorization": f"Bearer {TOKEN}"}).text == "inside"
    assert asked.post("/login", data={"token": "wrong"}).status_code == 401
    assert asked.post("/login", data={"token": "é" * 10}).status_code == 401
    assert asked.post("/login", content=b"x" * 5000).status_code == 413
    done = asked.post("/login", data={"token": TOKEN})
    assert (done.status_code, done.headers["location"]) == (303, "/")
    cookie = done.headers["set-cookie"].casefold()
    assert all(word in cookie for word in ("httponly", "secure", "samesite=strict"))
    assert TOKEN not in cookie
    assert asked.get("/").text == "inside"
    asked.post("/logout")
    assert asked.get("/").status_code == 401


def test_a_form_of_another_site_logs_nobody_in_or_out():
    asked = client(Identity(token=TOKEN))
    given = {"data": {"token": TOKEN}, "headers": {"Origin": "https://evil.example"}}
    assert asked.post("/login", **given).status_code == 403
    assert asked.post("/login", data={"token": TOKEN}, headers={"Origin": "https://console.example"}).status_code == 303


def test_a_proxys_header_counts_from_the_proxy_alone():
    identity = Identity(header="X-Forwarded-User", proxies=(ip_network("10.0.0.0/24"),))
    named = {"X-Forwarded-User": "ana"}
    assert client(identity).get("/", headers=named).text == "inside"
    assert client(identity).get("/").status_code == 401
    assert client(identity).get("/", headers={"X-Forwarded-User": " "}).status_code == 401
    assert client(identity, address="10.0.1.1").get("/", headers=named).status_code == 403
    assert client(identity, address="::ffff:10.0.0.7").get("/", headers=named).text == "inside"
    assert client(identity, address="10.0.1.1").get("/static/console.css", headers=named).status_code == 403


def test_a_session_ends_after_twelve_hours_and_the_oldest_when_there_are_too_many():
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    first = sessions.begin()
    assert sessions.has(first)
    now[0] = 12 * 3600 + 1
    assert not sessions.has(first)
    second = sessions.begin()
    for _ in range(1000):
        last = sessions.begin()
    assert sessions.has(last)
    assert not sessions.has(second)


def test_a_token_is_not_shown():
    assert TOKEN not in repr(Identity(token=TOKEN))
