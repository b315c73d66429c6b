"""A private authority, for tests and trials: it issues certificates for servers and for edges, each a PEM file and its key.

Guarantees that every file is whole at every moment and readable by its owner alone, and that an edge's certificate cannot pass
for a server's. Who has `authority.key` can issue any certificate: a company's own authority belongs in its place.
"""

import datetime as dt
import ipaddress
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headrace.errors import NeedsOperator

#: How long certificates last, in days: an authority is seldom replaced, and outlives what it issued.
AUTHORITY_DAYS, DAYS = 1825, 90
#: Clocks differ: a certificate is valid from a little before it was made.
_EARLIER = dt.timedelta(hours=1)


class Authority:
    """The authority whose certificate and key are in a folder; made when there is none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate_file = folder / "authority.pem"
        self._key_file = folder / "authority.key"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.certificate_file.exists() != self._key_file.exists():
            raise NeedsOperator(
                f"{folder} holds only one of authority.pem and authority.key",
                hint="Put the other one back, or name an empty folder.",
            )
        if not self.certificate_file.exists():
            self._make()
        self._certificate = x509.load_pem_x509_certificate(self.certificate_file.read_bytes())
        key = serialization.load_pem_private_key(self._key_file.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != self._certificate.public_key():
            raise NeedsOperator(
                f"{self._key_file} is not the key of {self.certificate_file}",
                hint="Put the right one back, or name an empty folder.",
            )
        self._key = key

    def server(self, name: str, hosts: Sequence[str], days: float = DAYS) -> Path:
        """Issue a certificate for a server that is reached by these DNS names or addresses; return its path."""
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue(name, name, days, [(names, False), (x509.ExtendedKeyUsage(usages), False)])

    def client(self, name: str, days: float = DAYS) -> Path:
        """Issue a certificate for a client, a source's edge by the source's name; return its path."""
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue(name, name.replace("/", "-"), days, [(x509.ExtendedKeyUsage(usages), False)])

    def _make(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        name = _x509_name("headrace private authority")
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (usage, True),
        ]
        certificate = _sign(name, name, key, key, AUTHORITY_DAYS, extensions)
        _write(self._key_file, _private(key))
        _write(self.certificate_file, certificate.public_bytes(serialization.Encoding.PEM))

    def _issue(self, name: str, file: str, days: float, extensions: list[tuple[x509.ExtensionType, bool]]) -> Path:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        extensions = [(x509.BasicConstraints(ca=False, path_length=None), True), (issuer, False), *extensions]
        certificate = _sign(_x509_name(name), self._certificate.subject, key, self._key, days, extensions)
        path = self.folder / f"{file}.pem"
        _write(path.with_suffix(".key"), _private(key))
        _write(path, certificate.public_bytes(serialization.Encoding.PEM))
        return path


def _sign(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    by: ec.EllipticCurvePrivateKey,
    days: float,
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    begins = now - _EARLIER if days > 0 else now + dt.timedelta(days=days) - _EARLIER
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(by, hashes.SHA256())


def _x509_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, text: bytes) -> None:
    """Replace a file at once, readable by its owner alone from its first byte on."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
