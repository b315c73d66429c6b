"""What the certificates in use are worth: readable, fitting each other, valid, and for how long still; and failed handshakes.

Guarantees that an error of a file names it before a handshake fails over it. Called by edge and bridge before
they connect or listen, and now and then afterwards. The library is imported only where there are certificates: an edge without
them starts in half the time.
"""

import datetime as dt
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace.configuration.sections import Certificates
from headrace.errors import ConfigurationError
from headrace.metrics.collector import worked_out

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

#: A certificate that ends within so many days is worth a warning.
WARNING_DAYS = 14
_RENEW = "Renew it: the file is read again when it changes, nothing has to be restarted."


def stamp(files: Certificates) -> tuple[tuple[int, int, int] | None, ...]:
    """Return what changes whenever one of the files does."""
    return tuple(map(_stamp, (files.authority, files.certificate, files.key)))


def examine(files: Certificates) -> list[str]:
    """Return a warning for each certificate that has ended or soon will.

    Raises ConfigurationError when a file cannot be read, is not what it should be, or the key is another certificate's.
    """
    authorities = _certificates(files.authority) if files.authority else []
    own = _certificates(files.certificate) if files.certificate else []
    if own and files.key is not None and _public(files.key) != _public_bytes(own[0]):
        raise ConfigurationError(
            f"{files.key} is not the key of the certificate in {files.certificate}",
            hint="Name a certificate and its own key. When they are being renewed, put both there.",
        )
    now = dt.datetime.now(dt.UTC)
    findings = [
        _describe_end(path, certificates, now)
        for path, certificates in ((files.authority, authorities), (files.certificate, own[:1]))
    ]
    return [warning for warning in findings if warning]


def ends(files: Certificates) -> float | None:
    """Return when the first of authority and own certificate ends, in seconds since 1970; None where there is neither.

    Of several certificates in the authority's file the one that lasts longest counts: two are there while it is replaced.
    Raises ConfigurationError when a file cannot be read.
    """
    dates = [
        max(certificate.not_valid_after_utc for certificate in certificates).timestamp()
        for certificates in (
            _certificates(files.authority) if files.authority else [],
            _certificates(files.certificate)[:1] if files.certificate else [],
        )
        if certificates
    ]
    return min(dates, default=None)


def unusable(files: Certificates) -> ConfigurationError:
    """Return the error of files that TLS itself refuses."""
    return ConfigurationError(
        f"the certificates in [interconnect] cannot be used: {files.authority}, {files.certificate}, {files.key}",
        hint="Check them with: openssl x509 -noout -text -in FILE",
    )


def _describe_end(path: Path | None, certificates: "list[x509.Certificate]", now: dt.datetime) -> str:
    """Return a warning about the one that lasts longest: an authority may be there twice while it is replaced."""
    if not certificates:
        return ""
    begins = min(certificate.not_valid_before_utc for certificate in certificates)
    ends = max(certificate.not_valid_after_utc for certificate in certificates)
    if begins > now:
        return f"the certificate in {path} is valid from {begins:%Y-%m-%d %H:%M} UTC only. Check this machine's clock."
    if ends < now:
        return f"the certificate in {path} expired on {ends:%Y-%m-%d %H:%M} UTC. {_RENEW}"
    if ends - now < dt.timedelta(days=WARNING_DAYS):
        days = (ends - now).days
        return f"the certificate in {path} expires on {ends:%Y-%m-%d %H:%M} UTC, in {days} days. {_RENEW}"
    return ""


def _certificates(path: Path) -> "list[x509.Certificate]":
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(_read(path))
    except ValueError as error:
        raise ConfigurationError(f"{path} holds no certificate in PEM form", hint="See docs/security.md.") from error


def _public(path: Path) -> bytes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    try:
        key = serialization.load_pem_private_key(_read(path), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigurationError(
            f"{path} holds no private key in PEM form without a password", hint="See docs/security.md."
        ) from error
    return _public_bytes(key)


def _public_bytes(owner: "x509.Certificate | PrivateKeyTypes") -> bytes:
    from cryptography.hazmat.primitives import serialization

    return owner.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror}", hint="Check the path, and who may read the file."
        ) from error


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    with suppress(OSError):
        if path is not None:
            status = path.stat()
            return status.st_mtime_ns, status.st_ino, status.st_size
    return None


class Expiry:
    """The certificates of one connection. Read by the endpoint's threads and by the thread that cuts batches."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates
        self._known: tuple[object, float | None] = (None, None)

    def time(self) -> float | None:
        """Return when the first of authority and own certificate ends, in seconds since 1970; None without any."""
        stamped = stamp(self._certificates)
        former, time = self._known
        if former == stamped:
            return time
        try:
            time = ends(self._certificates)
        except ConfigurationError:
            time = None
        self._known = (stamped, time)
        return time


@dataclass(slots=True)
class ConnectionMetrics:
    """Metrics of one of a bridge's connections, with the label `connection`."""

    expiry: Expiry

    @property
    @worked_out(
        "certificate_expiry_time_seconds",
        "When the first certificate of the connection ends, in seconds since 1970; absent without any.",
    )
    def certificate_expiry(self) -> float | None:
        """Seconds since 1970."""
        return self.expiry.time()


_SECONDS = 5.0

#: What is in OpenSSL's reason, and what it means for the operator.
_MEANINGS = (
    ("certificate required", "the other side requires a client certificate. Give [interconnect] certificate and key"),
    (
        "peer did not return a certificate",
        "it showed no client certificate. Give [interconnect] certificate and key there",
    ),
    (
        "alert unknown ca",
        "the other side does not know the authority of this side's certificate. Use one of its authority's",
    ),
    ("alert certificate expired", "the other side finds this side's certificate expired. Renew it"),
    (
        "alert bad certificate",
        "the other side refuses this side's certificate. Use one for this purpose, of its authority's",
    ),
    ("alert unsupported certificate", "the other side refuses this side's certificate. Use one made for this purpose"),
    ("alert certificate revoked", "this side's certificate is revoked. Get another"),
    ("wrong version number", "the port does not speak TLS. Check the port, or use an amqp:// address"),
    ("http request", "it spoke no TLS. Use an amqps:// address there"),
    ("unexpected eof", "the connection was closed during the handshake"),
)


def meaning(reason: str) -> str:
    """Return what OpenSSL's reason means, empty when there is nothing to add to it."""
    return next((words for part, words in _MEANINGS if part in reason), "")


def why(url: str, files: Certificates) -> str:
    """Return why the server at an amqps address is not trusted; empty when it is, or does not answer now."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 5671
    try:
        context = ssl.create_default_context(cafile=files.authority)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with (
            socket.create_connection((host, port), timeout=_SECONDS) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return ""
    except ssl.SSLCertVerificationError as error:
        return _explain(error.verify_message, host, files)
    except OSError:
        return ""


def _explain(reason: str, host: str, files: Certificates) -> str:
    authority = f"those in {files.authority}" if files.authority else "the system's"
    if "expired" in reason:
        return "its certificate has expired. It must be renewed there"
    if "mismatch" in reason or "doesn't match" in reason or "not valid for" in reason:
        return f"its certificate is not for the name {host!r}. Use the DNS name that is in it, or have {host!r} put into it"
    if "not yet valid" in reason:
        return "its certificate is not valid yet. Check the clocks"
    if "issuer" in reason or "self-signed" in reason or "self signed" in reason:
        return (
            f"its certificate comes from none of the authorities that are trusted here, {authority}. Name its authority"
        )
    return reason
