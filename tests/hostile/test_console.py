"""The console's requests: whatever a visitor without the token sends is answered, and reaches no page."""

import pytest

from headrace.console.security import COOKIE, Identity
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
    answer = visitor.request(method, path, headers=headers, content=body)
    assert 300 <= answer.status_code < 500
    assert answer.text != "inside"
    # and the next one is served
    assert visitor.get("/", headers={"authorization": f"Bearer {TOKEN}"}).text == "inside"
