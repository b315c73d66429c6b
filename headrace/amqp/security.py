"""Who is trusted, and who connects: the certificates and the user of an [interconnect], read when a connection is made.

Guarantees that a password never travels unencrypted but on this machine, and that renewed files are used without a restart.
Called in the loop's thread, by both ends.
"""

import logging
from collections.abc import Callable
from urllib.parse import urlsplit

from headrace.amqp.transport import SSLDomain, SSLException
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
