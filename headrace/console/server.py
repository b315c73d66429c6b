"""The console's process: a listening socket, the application behind its guard, and the threads that look at bridges and lake.

The number of connections is bounded, and the time of each request with its answer, however slow a visitor is: Uvicorn waits
without end for a request that has begun, and for whoever does not read an answer. Where there are too many, the oldest is
closed: a browser's is in use for moments. With TLS it knows of a connection after the handshake alone, which costs
milliseconds, and may last a minute: the listening socket bounds these, by address.
"""

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import threading
import time
import weakref
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from uvicorn.protocols.http.h11_impl import H11Protocol

from headrace.configuration.bridge import BridgeFile
from headrace.configuration.lake import LakeFile
from headrace.console.bridges import Bridges
from headrace.console.charts import STEP, History, Prometheus
from headrace.console.lake import Lake, Retention
from headrace.console.lineage import MANIFEST
from headrace.console.pages import Known, Pages
from headrace.console.security import Guard, Identity, refuse
from headrace.console.sources import Files, figures, rows
from headrace.console.table_detail import TableDetails
from headrace.errors import ConfigurationError

_log = logging.getLogger(__name__)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: A request has to come whole, and its answer to be read, within so many seconds.
REQUEST_SECONDS = 30.0
#: Connections at once.
MOST_CONNECTIONS = 200
#: With TLS: seconds for each that an address begins, how much of that it may have ahead, and how many are known at once. A page
#: that is open asks every two seconds, and proxies may connect for each request of all.
EACH_SECONDS, AHEAD_SECONDS = 0.05, 2.0
_MOST_ACCEPTED, _MOST_ADDRESSES = 2 * MOST_CONNECTIONS, 10_000


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the command line gives."""

    bridge: BridgeFile
    #: `host:port` of the bridges' endpoints.
    at: tuple[str, ...]
    lake: LakeFile | None = None
    prometheus: str | None = None
    host: str = "127.0.0.1"
    port: int = 9420
    #: Further names by which browsers call the console.
    hosts: tuple[str, ...] = ()
    identity: Identity = field(default_factory=Identity)
    #: PEM files for TLS.
    certificate: Path | None = None
    key: Path | None = None


class Console:
    """Serves from `run` until `stop`; made before, so that a wrong address is reported before anything else starts."""

    def __init__(self, settings: Settings) -> None:
        sources = {source: name for name, stream in settings.bridge.streams.items() for source in stream.sources}
        self._bridges = Bridges(settings.at, tuple(sources))
        file = settings.lake
        self._lake = Lake(file.root, file.streams, file.spark_settings) if file else Lake(None)
        self._details = (
            TableDetails(file.root, file.spark_settings, file.serve.audit, file.resolve(MANIFEST))
            if file
            else TableDetails(None, wait_seconds=0)
        )
        self._retention = Retention(file, lambda: self._lake.view().offsets)
        self._history = History()
        self._streams = sources
        self._stopped = threading.Event()
        prometheus = Prometheus(settings.prometheus) if settings.prometheus else None
        files = Files(settings.bridge.path, settings.lake.path if settings.lake else None)
        login = settings.identity.token is not None
        self.pages = Pages(
            Known(
                bridges=self._bridges,
                lake=self._lake,
                details=self._details,
                retention=self._retention,
                history=self._history,
                prometheus=prometheus,
                streams=sources,
                feeds=settings.bridge.streams,
                loaded=file.streams if file else {},
                files=files,
                has_login=login,
            )
        )
        self.application = application(self.pages, settings)
        self._socket = _bound(settings.host, settings.port)
        self.port = int(self._socket.getsockname()[1])
        self._secure = settings.certificate is not None
        if self._secure:
            self._socket = Listening(self._socket)
        self._host = settings.host
        # Of its start and its end the console prints its own lines.
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        self._server = uvicorn.Server(
            uvicorn.Config(
                self.application,
                # Another loop would not accept by the socket itself.
                loop="asyncio",
                http=type("Connection", (Bounded,), {"bounded": {}}),
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=2,
                ssl_certfile=settings.certificate,
                ssl_keyfile=settings.key,
            )
        )

    @property
    def url(self) -> str:
        """Where it is called."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._secure else 'http'}://{host}:{self.port}/"

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT, or `stop`."""
        if threading.current_thread() is threading.main_thread():
            # Uvicorn ends at these signals, then raises them again: ending so is no error.
            for stop in (signal.SIGTERM, signal.SIGINT):
                signal.signal(stop, lambda *_: None)
        self._bridges.start()
        self._lake.start()
        self._details.start()
        self._retention.start()
        threading.Thread(target=self._record, name="history", daemon=True).start()
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._stopped.set()
            self._bridges.stop()
            self._lake.stop()
            self._details.stop()
            self._retention.stop()

    def stop(self) -> None:
        """Serve no more."""
        self._server.should_exit = True

    def _record(self) -> None:
        while not self._stopped.wait(STEP / 4):
            try:
                found = rows(self._bridges.view(), self._lake.view(), self._streams)
                self._history.record(figures(found))
            except Exception:  # noqa: BLE001 - a defect of the charts alone.
                # Charts have a hole; the pages go on.
                _log.exception("figures were not recorded")


def application(pages: Pages, settings: Settings) -> Guard:
    """Return the application behind its guard."""
    inside = Starlette(
        routes=[
            Route("/", pages.overview),
            Route("/sources/{region}/{name}", pages.source),
            Route("/loads", pages.loads),
            Route("/tables", pages.tables),
            Route("/table", pages.table),
            Route("/trends", pages.trends),
            Route("/metrics", pages.metrics),
            Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
        ],
        exception_handlers={404: pages.missing, 500: pages.failed},
    )
    own = [settings.host] if not _is_everywhere(settings.host) else []
    return Guard(
        inside,
        hosts=[*own, *_LOOPBACK, *settings.hosts],
        identity=settings.identity,
        secure=settings.certificate is not None,
        login_page=pages.login,
    )


def _is_everywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _bound(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="Choose another address with --listen, or stop what uses it.",
        ) from error


class Listening(socket.socket):
    """A listening socket for TLS: what an address begins beyond its rate is closed ahead of the handshake."""

    def __init__(self, listening: socket.socket) -> None:
        """Take a socket over that listens."""
        super().__init__(fileno=listening.detach())
        # When all that an address has begun is paid for; and the latest of all that were accepted, oldest first.
        self._paid_at: dict[str, float] = {}
        self._accepted: deque[weakref.ref[socket.socket]] = deque()

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection that is taken."""
        while True:
            made, address = super().accept()
            if self._takes(address[0]):
                self._note(made)
                return made, address
            refuse("too many handshakes", address[0])
            made.close()

    def _takes(self, address: str) -> bool:
        now = time.monotonic()
        if len(self._paid_at) >= _MOST_ADDRESSES:
            self._paid_at = {each: at for each, at in self._paid_at.items() if at > now}
        paid_at = max(now, self._paid_at.get(address, now))
        if paid_at - now > AHEAD_SECONDS:
            return False
        self._paid_at[address] = paid_at + EACH_SECONDS
        return True

    def _note(self, made: socket.socket) -> None:
        self._accepted.append(weakref.ref(made))
        if len(self._accepted) > _MOST_ACCEPTED:
            oldest = self._accepted.popleft()()
            if oldest is not None and oldest.fileno() >= 0:
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)


class Bounded(H11Protocol):
    """One connection; for each server a subclass with `bounded` of its own."""

    #: All of the server's, oldest first.
    bounded: dict["Bounded", None]
    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to count."""
        super().connection_made(transport)
        self.bounded[self] = None
        if len(self.bounded) > MOST_CONNECTIONS:
            oldest = next(iter(self.bounded))
            oldest.abort("too many connections")
        self._begin()

    def on_response_complete(self) -> None:
        """Count for the next request."""
        self._begin()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count no more."""
        self.bounded.pop(self, None)
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    def abort(self, why: str) -> None:
        """Close at once, whatever is not read yet."""
        self.bounded.pop(self, None)
        refuse(why, self.client[0] if self.client else "?")
        self.transport.abort()

    def _begin(self) -> None:
        if self._end is not None:
            self._end.cancel()
        self._end = self.loop.call_later(REQUEST_SECONDS, self.abort, "too slow")
