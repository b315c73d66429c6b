"""Sockets between an AMQP loop and Proton's transports, which make frames of bytes and bytes of frames.

A socket is written to at once and until it is full: one write each time that it takes some again would leave TCP short of data on
a long link, which then never learns how much the link carries. Proton's C functions are called as they are: its wrappers cost
more than what they call. Used by headrace/amqp/transport.py, in the loop's thread.
"""

import errno
import logging
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from cproton_ffi import ffi, lib

from headrace.amqp.polling import READ, WRITE, Polling
from headrace.logs import RateLimitedLog
from headrace.process import open_file_reason

_log = logging.getLogger(__name__)

#: Connections that wait to be accepted; how many are accepted in a turn; and the pause where none can be, in seconds.
_BACKLOG, _ACCEPTS, _ACCEPT_SECONDS = 256, 16, 0.2
#: How long one of several addresses may take to answer, in seconds.
_ADDRESS_SECONDS = 4.0
#: Writes in a row before something else has its turn, and the size of each, in bytes.
_WRITES, _WRITE_BYTES = 256, 64 * 1024


class Address(NamedTuple):
    """Where the other side of a connection is."""

    host: str
    port: int


def number_of(transport: Any) -> int:
    """Return what Proton's C object is known by."""
    return int(ffi.cast("uintptr_t", transport))


class Sockets:
    """Those of one loop: what they share."""

    def __init__(self, polling: Polling, handle_events: Callable[[], None]) -> None:
        """`handle_events` is called with each read, so that Proton never holds what came on several sockets."""
        self.polling = polling
        self.handle_events = handle_events
        #: By the number of the transport; and those that may have something to write.
        self.all: dict[int, Socket] = {}
        self.touched: dict[Socket, None] = {}
        self._memory = bytearray(_WRITE_BYTES)
        #: What is written next: for Proton, and for the socket.
        self.buffer, self.view = ffi.from_buffer(self._memory), memoryview(self._memory)

    def touch(self, number: int) -> None:
        """Note that a transport may have something to write."""
        touched = self.all.get(number)
        if touched is not None:
            self.touched[touched] = None

    def drop(self, number: int) -> None:
        """Close the socket of a transport that is closed."""
        dropped = self.all.get(number)
        if dropped is not None:
            dropped.drop()

    def expect(self, transport: Any) -> None:
        """Note a connection whose handshakes begin."""
        if (newcomer := self._of(transport)) is not None:
            self.polling.expect(newcomer.descriptor)

    def know(self, transport: Any) -> None:
        """Note a connection whose handshakes are over."""
        if (socket := self._of(transport)) is not None:
            self.polling.know(socket.descriptor)

    def _of(self, transport: Any) -> "Socket | None":
        return None if transport is None else self.all.get(number_of(transport._impl))  # noqa: SLF001 - as below.

    def flush(self) -> bool:
        """Write what there is to be written; return whether anything was looked at."""
        touched, self.touched = self.touched, {}
        for each in touched:
            each.flush()
        return bool(touched)

    def close(self) -> None:
        """Close all of them."""
        for each in list(self.all.values()):
            each.drop()
        self.touched.clear()


class Socket:
    """One of them, with the transport that it belongs to."""

    def __init__(self, sockets: Sockets, connection: Any, transport: Any, sock: socket.socket | None = None) -> None:
        self._sockets, self._polling = sockets, sockets.polling
        # Nothing else holds them.
        self._connection, self._transport = connection, transport
        self._impl = transport._impl  # noqa: SLF001 - Proton has no public name for it.
        self._socket = sock
        self._events = 0
        #: What is left to be tried, while it connects; and what to do where none of them answers.
        self._addresses: list[Any] = []
        self._failed: Callable[[OSError], None] | None = None
        #: For when a look at Proton's deadlines is planned, in seconds of the monotonic clock; 0 for none.
        self._planned = 0.0
        self._number = number_of(self._impl)
        sockets.all[self._number] = self
        if sock is not None:
            sockets.touched[self] = None

    @property
    def descriptor(self) -> int:
        """The descriptor; -1 for one that is closed."""
        return -1 if self._socket is None else self._socket.fileno()

    def connect(self, address: Address, failed: Callable[[OSError], None]) -> None:
        """Start to connect to the host's addresses, one after the other; raise OSError when none can be tried.

        `failed` is called, later, with the error of the last one where none answers; then the transport is closed.
        """
        try:
            self._addresses = socket.getaddrinfo(*address, socket.AF_UNSPEC, socket.SOCK_STREAM)
        except UnicodeError as unreadable:
            # Two dots in a row, or a part of more than 63 characters.
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from unreadable
        self._failed = failed
        if (error := self._try_next()) is not None:
            self.drop()
            raise error

    def flush(self) -> None:
        """Write what there is, as far as the socket takes it, and wait for what comes next."""
        sock, impl = self._socket, self._impl
        if sock is None or self._failed is not None:
            return
        buffer, view = self._sockets.buffer, self._sockets.view
        try:
            for _ in range(_WRITES):
                size = lib.pn_transport_peek(impl, buffer, _WRITE_BYTES)
                if size <= 0:
                    break
                lib.pn_transport_pop(impl, sock.send(view[:size]))
        except BlockingIOError:
            # Full.
            pass
        except OSError:
            lib.pn_transport_close_head(impl)
        # Now that Proton knows what is written: the next sign of life is due half of the other side's patience after that.
        deadline = lib.pn_transport_tick(impl, int(time.monotonic() * 1000)) / 1000
        if deadline and not 0 < self._planned <= deadline:
            self._planned = deadline
            self._polling.at(deadline, self._tick)
        self._watch(sock)

    def drop(self) -> None:
        """Close it."""
        self._sockets.all.pop(self._number, None)
        # Now, not at the deadline that is planned: those who come and go quickly would fill the memory until then.
        self._connection = self._transport = self._impl = self._failed = None
        sock, self._socket = self._socket, None
        if sock is not None:
            self._polling.know(sock.fileno())
            self._polling.forget(sock.fileno())
            sock.close()

    def _watch(self, sock: socket.socket) -> None:
        capacity, pending = lib.pn_transport_capacity(self._impl), lib.pn_transport_pending(self._impl)
        if capacity < 0 and pending < 0:
            self.drop()
            return
        events = (READ if capacity > 0 else 0) | (WRITE if pending > 0 else 0)
        if events == self._events:
            return
        self._events = events
        if events:
            self._polling.watch(sock.fileno(), events, self._ready)
        else:
            # Otherwise one that has failed would be ready in every turn.
            self._polling.forget(sock.fileno())

    def _ready(self, reading: bool, _writing: bool) -> None:
        if reading:
            self._read()
        self._sockets.touched[self] = None

    def _read(self) -> None:
        sock, impl = self._socket, self._impl
        if sock is None or (capacity := lib.pn_transport_capacity(impl)) <= 0:
            return
        try:
            data = sock.recv(capacity)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            lib.pn_transport_push(impl, ffi.from_buffer(data), len(data))
        else:
            # The tail first, which finds what is wrong with TLS. Then the head: of the end of half a frame Proton makes no
            # error, and has nothing to write that could fail.
            lib.pn_transport_close_tail(impl)
            lib.pn_transport_close_head(impl)
        self._sockets.handle_events()

    def _tick(self) -> None:
        """Give Proton the time: it may have to send a sign of life, or have missed one."""
        self._planned = 0.0
        self._sockets.touched[self] = None

    def _try_next(self) -> OSError | None:
        """Start to connect to the next address that can be tried; return the last one's error where none is left."""
        error: OSError | None = None
        while self._addresses:
            family, kind, protocol, _, address = self._addresses.pop(0)
            try:
                sock = socket.socket(family, kind, protocol)
            except OSError as refused:
                error = refused
                continue
            try:
                _set_up(sock)
                sock.connect(address)
            except BlockingIOError:
                pass
            except OSError as refused:
                sock.close()
                error = refused
                continue
            self._socket = sock
            self._polling.watch(sock.fileno(), WRITE, self._connected)
            if self._addresses:
                # Behind one that swallows whatever it is sent, the others would never have their turn.
                self._polling.at(time.monotonic() + _ADDRESS_SECONDS, partial(self._give_up, sock))
            return None
        return error

    def _connected(self, _reading: bool, _writing: bool) -> None:
        sock = self._socket
        assert sock is not None
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._go_on(sock, code)
            return
        self._polling.forget(sock.fileno())
        self._failed, self._addresses = None, []
        self._sockets.touched[self] = None

    def _give_up(self, sock: socket.socket) -> None:
        if sock is self._socket and self._failed is not None:
            self._go_on(sock, errno.ETIMEDOUT)

    def _go_on(self, sock: socket.socket, code: int) -> None:
        """Try the next address after an error of this one."""
        assert self._failed is not None
        self._polling.forget(sock.fileno())
        sock.close()
        self._socket = None
        error: OSError | None = OSError(code, os.strerror(code))
        if self._addresses:
            error = self._try_next()
        if error is not None:
            self._failed(error)
            lib.pn_transport_close_tail(self._impl)
            lib.pn_transport_close_head(self._impl)


class Acceptor:
    """Accepts connections, and tolerates a moment in which it cannot. Raises OSError when the address is not available."""

    def __init__(
        self, polling: Polling, host: str, port: int, accepted: Callable[[socket.socket, Address], None]
    ) -> None:
        """`accepted` is called with each socket."""
        self._polling = polling
        self._accepted = accepted
        self._socket: socket.socket | None = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
            self._socket.setblocking(False)
            self._socket.bind((host, port))
            self._socket.listen(_BACKLOG)
        except OSError:
            self._socket.close()
            raise
        #: The port that is listened on, also where 0 was given.
        self.port = int(self._socket.getsockname()[1])
        #: How the connections are encrypted that come from now on; None for not at all.
        self.domain: Any = None
        self._watch()

    def set_ssl_domain(self, domain: Any) -> None:
        """Encrypt the connections that come from now on."""
        self.domain = domain

    def close(self) -> None:
        """Accept no more."""
        if self._socket is not None:
            self._polling.forget(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _watch(self) -> None:
        if self._socket is not None:
            self._polling.watch(self._socket.fileno(), READ, self._ready)

    def _ready(self, _reading: bool, _writing: bool) -> None:
        for _ in range(_ACCEPTS):
            if self._socket is None:
                return
            try:
                sock, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OF_THE_PEER:
                    continue
                _cannot_accept("a connection could not be accepted: %s", open_file_reason(error))
                # It would be ready in every turn.
                self._polling.forget(self._socket.fileno())
                self._polling.at(time.monotonic() + _ACCEPT_SECONDS, self._watch)
                return
            _set_up(sock)
            self._accepted(sock, Address(*address[:2]))


#: Errors of one connection that was given up before it was accepted.
_OF_THE_PEER = {errno.ECONNABORTED, errno.EPROTO, errno.EPERM}
_cannot_accept = RateLimitedLog(_log.error)


def _set_up(sock: socket.socket) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_TCP, socket.TCP_NODELAY, True)
