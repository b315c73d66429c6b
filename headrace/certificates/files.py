"""What the certificates in use are worth: readable, fitting each other, valid, and for how long still.

Guarantees that an error of a file names it before a handshake fails over it. Called by edge and bridge before
they connect or listen, and now and then afterwards. The library is imported only where there are certificates: an edge without
them starts in half the time.
"""

import datetime as dt
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.configuration.tls import Certificates
from headrace.errors import ConfigurationError

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
    found = [
        _ending(path, certificates, now)
        for path, certificates in ((files.authority, authorities), (files.certificate, own[:1]))
    ]
    return [warning for warning in found if warning]


def ends(files: Certificates) -> float | None:
    """Return when the first of authority and own certificate ends, in seconds since 1970; None where there is neither.

    Of several certificates in the authority's file the one that lasts longest counts: two are there while it is replaced.
    Raises ConfigurationError when a file cannot be read.
    """
    found = [
        max(certificate.not_valid_after_utc for certificate in certificates).timestamp()
        for certificates in (
            _certificates(files.authority) if files.authority else [],
            _certificates(files.certificate)[:1] if files.certificate else [],
        )
        if certificates
    ]
    return min(found, default=None)


def unusable(files: Certificates) -> ConfigurationError:
    """Return the error of files that TLS itself refuses."""
    return ConfigurationError(
        f"the certificates in [interconnect] cannot be used: {files.authority}, {files.certificate}, {files.key}",
        hint="Check them with: openssl x509 -noout -text -in FILE",
    )


def _ending(path: Path | None, certificates: "list[x509.Certificate]", now: dt.datetime) -> str:
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
