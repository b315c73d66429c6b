"""A part's endpoint over HTTP: `/metrics`, `/health/live`, `/health/ready` and `/status`.

It answers from threads of its own and only reads figures, so it does not slow the changes down. It takes no input but the
path, and shows no row and no secret. Made by the edge's and the bridge's `run` when `[metrics] listen` is given.
"""

import http.server
import ipaddress
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Protocol

import msgspec

from headrace import doors
from headrace.errors import ConfigurationError, CorruptInput
from headrace.status.answer import Answer, Health

_log = logging.getLogger(__name__)

#: Prometheus's text form, and that of the other answers.
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_JSON = "application/json"

#: What is said of an address that is not this machine's own alone.
_OPEN = ", which others can reach, and has no password and no TLS: let none but your monitoring reach it"
#: A client that sends or reads nothing for so long, in seconds, is disconnected.
_TIMEOUT = 5.0
#: Connections at once: one that sends a byte now and then is not silent.
_MOST = 50
#: How many times as long as an answer took of the processor nobody is answered: the part's own thread lacks it, whoever asks.
_REST = 3.0


class Metrics(Protocol):
    """Metrics in Prometheus's text format."""

    def text(self) -> bytes:
        """Return all of them."""


class Served(Protocol):
    """What an endpoint needs of its part, called in its own threads."""

    @property
    def collector(self) -> Metrics:
        """What Prometheus reads."""

    def live(self) -> Health:
        """Return whether the process works; if not, only a restart helps."""

    def ready(self) -> Health:
        """Return whether the part does what it is there for, now."""

    def status(self) -> Answer:
        """Return how every source is doing."""


class _Server(http.server.ThreadingHTTPServer):
    """Answers each connection in a thread of its own; where there are too many, the oldest is closed."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._lock = threading.Lock()
        self._open: dict[Any, None] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer one."""
        with self._lock:
            self._open[request] = None
            oldest = next(iter(self._open)) if len(self._open) > _MOST else None
            self._open.pop(oldest, None)
        if oldest is not None:
            doors.ENDPOINT.refuse(CorruptInput("too many connections"), client_address[0])
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - as the base class calls it.
        """Log what ended a request; that its visitor is gone, or was closed as the oldest, is no news."""
        error = sys.exception()
        if isinstance(error, Exception) and not isinstance(error, OSError):
            doors.ENDPOINT.refuse(error, client_address[0])

    def shutdown_request(self, request: Any) -> None:
        """Forget one that was answered."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)


class Endpoint:
    """Listens from its making until `stop`."""

    def __init__(self, listen: str, served: Served) -> None:
        host, _, port = listen.rpartition(":")
        handler = type("Handler", (_Handler,), {"served": served, "turns": _Turns()})
        try:
            self._server = _Server((host or "0.0.0.0", int(port)), handler)
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {listen}: {error.strerror or error}",
                hint="Choose another address in [metrics] listen, or stop who has it.",
            ) from error
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="endpoint", daemon=True)
        self._thread.start()
        _log.info(
            "metrics, health and status on http://%s:%d%s",
            host or "0.0.0.0",
            self.port,
            "" if ipaddress.ip_address(str(self._server.server_address[0])).is_loopback else _OPEN,
        )

    def stop(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_TIMEOUT)


class _Turns:
    """One answer is made at a time, and after it there is a rest: so a flood of questions leaves the part its processor."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rested_at = 0.0

    def make(self, answer: Callable[[], bytes]) -> bytes:
        """Return an answer once it is its turn."""
        with self._lock:
            if (left := self._rested_at - time.monotonic()) > 0:
                time.sleep(left)
            # Not the time that passed: a machine may stand still meanwhile.
            began = time.thread_time()
            status = answer()
            self._rested_at = time.monotonic() + _REST * (time.thread_time() - began)
            return status


class _Handler(http.server.BaseHTTPRequestHandler):
    served: Served
    turns: _Turns
    timeout = _TIMEOUT
    server_version, sys_version = "headrace", ""

    def do_GET(self) -> None:
        """Answer a question."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(HTTPStatus.OK, _PROMETHEUS, self.turns.make(self.served.collector.text))
        elif path == "/status":
            body = self.turns.make(lambda: msgspec.json.encode(self.served.status()) + b"\n")
            self._answer(HTTPStatus.OK, _JSON, body)
        elif path in {"/health/live", "/health/ready"}:
            health = self.served.live() if path == "/health/live" else self.served.ready()
            code = HTTPStatus.OK if health.well else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(code, _JSON, msgspec.json.encode(health) + b"\n")
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"/metrics /health/live /health/ready /status\n")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what is no question; a path that is not there is an ordinary one."""
        doors.ENDPOINT.refuse(CorruptInput("no question"), self.client_address[0])
        super().send_error(code, message, explain)

    def _answer(self, code: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, template: str, *values: Any) -> None:
        """Log who asked what for --verbose only."""
        _log.debug(template, *values)
