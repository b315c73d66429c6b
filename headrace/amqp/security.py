"""Who is at the two ends of a connection: whom we trust, as whom we connect, and what is known of the other side.

Certificates and the user of an [interconnect] are read when a connection is made. Guarantees that a password never travels
unencrypted but on this machine, and that renewed files are used without a restart. Called in the loop's thread, by both ends. And
two ways to end a connection on which the other side does not answer.
"""

import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from headrace.amqp.transport import Endpoint, SSLDomain, SSLException
from headrace.certificates import files
from headrace.configuration.sections import Certificates, Client
from headrace.errors import ConfigurationError

_log = logging.getLogger(__name__)

#: How often the files of certificates are checked for a renewal, in seconds.
CERTIFICATE_SECONDS = 30.0
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def credentials(settings: Client, url: str) -> dict[str, object]:
    """Return who connects, as `Loop.connect` takes it: a certificate (EXTERNAL), a user (PLAIN) or nobody (ANONYMOUS).

    Raises ConfigurationError rather than send a password unencrypted.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ConfigurationError(
            f"[interconnect] url of {parts.hostname} holds a user or a password",
            hint="Give them as [interconnect] user and password, the password as a reference.",
        )
    if settings.user is None:
        return {"allowed_mechs": "EXTERNAL" if settings.certificate else "ANONYMOUS"}
    if parts.scheme != "amqps" and parts.hostname not in _LOOPBACK:
        raise ConfigurationError(
            f"[interconnect] user is given, and {url} would carry the password in the clear",
            hint="Use an amqps:// address, or leave out the user.",
        )
    password = settings.password.reveal() if settings.password else ""
    return {"allowed_mechs": "PLAIN", "user": settings.user, "password": password, "allow_insecure_mechs": True}


def client_trust(certificates: Certificates) -> SSLDomain:
    """Return whom a client trusts, by name, and who it is; raise ConfigurationError when the files are not usable."""
    domain = _trust(certificates, SSLDomain.MODE_CLIENT)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    return domain


def server_trust(certificates: Certificates) -> SSLDomain:
    """Return who a server is, and whose clients it lets in; raise ConfigurationError as above."""
    domain = _trust(certificates, SSLDomain.MODE_SERVER)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER, str(certificates.authority))
    return domain


def _trust(certificates: Certificates, mode: int) -> SSLDomain:
    for warning in files.examine(certificates):
        _log.warning("%s", warning)
    domain = SSLDomain(mode)
    try:
        if certificates.authority is not None:
            domain.set_trusted_ca_db(str(certificates.authority))
        if certificates.certificate is not None:
            domain.set_credentials(str(certificates.certificate), str(certificates.key), None)
    except SSLException as error:
        raise files.unusable(certificates) from error
    return domain


class CertificateWatch:
    """Checks now and then whether the files of certificates, where there are any, were renewed since this was made."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates
        self._stamp = files.stamp(certificates)
        self._over = False

    @property
    def has_files(self) -> bool:
        """Whether there are certificates."""
        return self._certificates.certificate is not None or self._certificates.authority is not None

    def start(self, after: Callable[[float, Callable[[], None]], None], renewed: Callable[[], None]) -> None:
        """Call `renewed` each time that the files have changed.

        Args:
            after: takes a step after some seconds.
            renewed: uses the new files; raises ConfigurationError while they are not usable, and is then called again later.
        """

        def look() -> None:
            if not self._over:
                self._look(renewed)
                after(CERTIFICATE_SECONDS, look)

        if self.has_files:
            after(CERTIFICATE_SECONDS, look)

    def stop(self) -> None:
        """Check no more."""
        self._over = True

    def _look(self, renewed: Callable[[], None]) -> None:
        stamp = files.stamp(self._certificates)
        if stamp == self._stamp:
            return
        try:
            renewed()
        except ConfigurationError as error:
            # Files are replaced one after the other: soon they fit each other again.
            _log.warning("the former certificates stay in use: %s", error.message)
        else:
            self._stamp = stamp


def is_answered(connection: Any) -> bool:
    """Return whether the other side has answered the opening of a connection, which may have ended since."""
    return connection is not None and not connection.state & Endpoint.REMOTE_UNINIT


def is_open(endpoint: Any) -> bool:
    """Return whether the other side has opened a link or connection, and not closed it since."""
    return endpoint is not None and bool(endpoint.state & Endpoint.REMOTE_ACTIVE)


def close_silent(transport: Any) -> None:
    """End a transport whose other side was silent for too long; call it when Proton reports an error of the transport.

    Otherwise Proton would wait as long again until a close is written that nobody reads.
    """
    condition = transport.condition
    if condition is not None and "local-idle-timeout" in (condition.description or ""):
        transport.close_head()


def identity(transport: Any) -> str | None:
    """Return the common name of the other side's certificate, which was checked; None without one."""
    return transport.ssl().get_cert_common_name() if transport.authenticated and transport.encrypted else None


def peer_of(connection: Any) -> str:
    """Return the address of the other side of a connection that was accepted."""
    url = getattr(connection, "url", None)
    return f"{url.host}:{url.port}" if url is not None else "?"


def name_of(connection: Any) -> str:
    """Return who the other side of a connection is: the common name of its certificate, its host without one."""
    if connection is None:
        return "?"
    transport = connection.transport
    name = identity(transport) if transport is not None else None
    # Not its port, which is another one each time.
    return name or peer_of(connection).rpartition(":")[0]


def abort(connection: Any, reason: str) -> None:
    """Close a connection at once, without waiting for an answer."""
    transport = connection.transport
    _log.debug("connection from %s closed at once: %s", peer_of(connection), reason)
    if transport is not None:
        transport.close_tail()
        transport.close_head()
