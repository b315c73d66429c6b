"""Peers that speak TLS of versions before 1.2 alone."""

import socket
import ssl
import threading
from pathlib import Path

import pytest

OLD = (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1)


def assert_old_versions_are_refused(port: int, *, certificate: Path | None = None, key: Path | None = None) -> None:
    """Fail unless a server ends the handshake of a client that speaks none but those, and not that of one of now."""
    for version in OLD:
        context = _of(ssl.PROTOCOL_TLS_CLIENT, version)
        _trust_all(context)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
        with (
            socket.create_connection(("127.0.0.1", port), timeout=30) as connection,
            pytest.raises((ssl.SSLError, ConnectionError), match=r"(?i)alert|version|reset|eof"),
        ):
            context.wrap_socket(connection, server_hostname="localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _trust_all(context)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        assert context.wrap_socket(connection, server_hostname="localhost").version() in {"TLSv1.2", "TLSv1.3"}


class OldServer(threading.Thread):
    """A server that speaks no newer version; `asked` bytes of a client are answered with `agrees` before the handshake."""

    def __init__(self, certificate: Path, key: Path, *, asked: int = 0, agrees: bytes = b"") -> None:
        super().__init__(daemon=True)
        self._context = _of(ssl.PROTOCOL_TLS_SERVER, OLD[-1])
        self._context.load_cert_chain(certificate, key)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._asked, self._agrees = asked, agrees
        self.port = self._socket.getsockname()[1]
        #: Why handshakes ended, and how many did not.
        self.refusals: list[str] = []
        self.served = 0
        self.start()

    def run(self) -> None:
        try:
            while True:
                connection, _ = self._socket.accept()
                with connection:
                    self._shake_hands(connection)
        except OSError:
            pass

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.join(30)

    def _shake_hands(self, connection: socket.socket) -> None:
        connection.settimeout(30)
        try:
            if self._asked:
                connection.recv(self._asked)
                connection.sendall(self._agrees)
            with self._context.wrap_socket(connection, server_side=True):
                self.served += 1
        except OSError as error:
            self.refusals.append(str(error))


def _of(kind: int, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1 if kind == ssl.PROTOCOL_TLS_SERVER else version
    context.maximum_version = version
    return context


def _trust_all(context: ssl.SSLContext) -> None:
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
