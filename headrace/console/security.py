"""Who may ask the console, checked before any page: the Host header, the caller's identity, the method; and what browsers may do.

| given | who is served |
|---|---|
| nothing, on a loopback address | every process of this machine |
| a token | a request with `Authorization: Bearer TOKEN`, or with the cookie that the login page gives for it |
| a proxy's header | a request from the proxy's own addresses that has the header, which it removes from others' |

A name in `Host` that is not the console's own is answered with 421, so that a page of another site whose name is made to point
here (DNS rebinding) gets nothing. No request changes anything but the login.
"""

import hmac
import ipaddress
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace import doors
from headrace.errors import CorruptInput
from headrace.logs import RateLimitedLog

_log = logging.getLogger(__name__)
_refused = RateLimitedLog(_log.warning)

COOKIE = "headrace_console"
_SESSION_SECONDS = 12 * 3600
#: Sessions at once; the oldest ends beyond that.
_MOST_SESSIONS = 1000
_LARGEST_FORM = 4096
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, kw_only=True)
class Identity:
    """How callers prove who they are; neither is only for a loopback address."""

    token: str | None = field(default=None, repr=False)
    header: str | None = None
    proxies: tuple[Network, ...] = ()

    @property
    def demanded(self) -> bool:
        """Whether a caller has to prove anything."""
        return self.token is not None or self.header is not None


class Sessions:
    """Logged-in browsers, in memory: they end with the console, and after twelve hours."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends: dict[str, float] = {}

    def begin(self) -> str:
        """Return the name of a new session, which nobody can guess."""
        now = self._clock()
        self._ends = {name: end for name, end in list(self._ends.items())[-_MOST_SESSIONS + 1 :] if end > now}
        name = secrets.token_urlsafe(32)
        self._ends[name] = now + _SESSION_SECONDS
        return name

    def has(self, name: str) -> bool:
        """Whether a session is there and has not ended."""
        return self._ends.get(name, 0.0) > self._clock()

    def end(self, name: str) -> None:
        """End a session."""
        self._ends.pop(name, None)


class Guard:
    """The application within, behind all checks."""

    def __init__(
        self,
        inside: ASGIApp,
        *,
        hosts: Sequence[str],
        identity: Identity,
        secure: bool,
        login_page: Callable[[str], str],
    ) -> None:
        """Take the names by which the console is called, and whether it is served over TLS."""
        self._inside = inside
        self._hosts = {host.casefold() for host in hosts}
        self._identity = identity
        self._secure = secure
        self._login_page = login_page
        self._sessions = Sessions()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            return

        request = Request(scope, receive)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
                _count(request, message["status"])
            await send(message)

        answer = await self._refusal(request)
        await (answer or self._inside)(scope, receive, with_headers)

    async def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that does not reach the pages, the login among them; None for the others."""
        if _host(request.headers) not in self._hosts:
            return PlainTextResponse("This name is not the console's own: see --host.\n", 421)
        path = request.url.path
        if self._identity.token is not None and path in {"/login", "/logout"}:
            return await self._login(request, path)
        if request.method not in {"GET", "HEAD"}:
            return PlainTextResponse("The console changes nothing: GET alone.\n", 405, {"Allow": "GET, HEAD"})
        if path.startswith("/static/") and self._identity.header is None:
            return None
        return self._stranger(request)

    def _stranger(self, request: Request) -> Response | None:
        identity = self._identity
        if identity.header is not None:
            if not _is_within(request.client.host if request.client else "", identity.proxies):
                return PlainTextResponse("Only the proxy may ask here.\n", 403)
            if not request.headers.get(identity.header, "").strip():
                return PlainTextResponse(f"The proxy's header {identity.header} is missing.\n", 401)
            return None
        if identity.token is None or self._is_known(request):
            return None
        if "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(self._login_page(""), 401)
        return PlainTextResponse("A token is needed.\n", 401, {"WWW-Authenticate": "Bearer"})

    def _is_known(self, request: Request) -> bool:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.casefold() == "bearer" and self._is_token(given.strip()):
            return True
        return self._sessions.has(request.cookies.get(COOKIE, ""))

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), (self._identity.token or "").encode())

    async def _login(self, request: Request, path: str) -> Response:
        if request.method != "POST":
            return RedirectResponse("/", 303) if self._is_known(request) else HTMLResponse(self._login_page(""))
        if not _is_own(request.headers):
            return PlainTextResponse("A form of another site.\n", 403)
        if path == "/logout":
            self._sessions.end(request.cookies.get(COOKIE, ""))
            answer: Response = RedirectResponse("/login", 303)
            answer.delete_cookie(COOKIE)
            return answer
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _LARGEST_FORM:
                return PlainTextResponse("Too large.\n", 413)
        given = parse_qs(body.decode(errors="replace")).get("token", [""])[0]
        if not self._is_token(given):
            return HTMLResponse(self._login_page("This is not the token."), 401)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            COOKIE,
            self._sessions.begin(),
            max_age=_SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=self._secure,
        )
        return answer


def refuse(why: str, address: str) -> None:
    """Count what a visitor is refused, and log it now and then."""
    doors.CONSOLE.refuse(CorruptInput(why), address)
    _refused("a request of %s is refused: %s", address, why)


def _count(request: Request, status: int) -> None:
    # Who gives no token gets the login page, which is no news; nor is a session that has ended.
    is_visit = status == HTTPStatus.UNAUTHORIZED and request.method != "POST" and "authorization" not in request.headers
    if 400 <= status < 500 and not is_visit:
        refuse(HTTPStatus(status).phrase, request.client.host if request.client else "?")


def _is_own(headers: Headers) -> bool:
    """Whether a form is of the console's own pages, as far as the browser says."""
    origin = headers.get("origin", "null")
    try:
        return origin == "null" or urlsplit(origin).netloc == headers.get("host")
    except ValueError:
        return False


def _host(headers: Headers) -> str:
    """Return the name in `Host`, without its port."""
    try:
        return (urlsplit(f"//{headers.get('host', '')}").hostname or "").casefold()
    except ValueError:
        return ""


def _is_within(address: str, networks: Sequence[Network]) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return any((mapped or found) in network for network in networks)
