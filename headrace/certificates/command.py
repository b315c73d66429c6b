"""`headrace certs`: a private authority and certificates for tests and trials, and copies for each service.

The authority issues certificates for servers and for edges, each a PEM file and its key. Every file is whole at every moment and
readable by its owner alone, and an edge's certificate cannot pass for a server's. Who has `authority.key` can issue any
certificate: a company's own authority belongs in its place.
"""

import datetime as dt
import ipaddress
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import click
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headrace.configuration.value_types import SOURCE_NAME
from headrace.errors import ConfigurationError, NeedsOperator
from headrace.files import write_private
from headrace.printable import echo

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


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--source", "sources", multiple=True, metavar="REGION/NAME", help="An edge's certificate, for its source."
)
@click.option("--client", "clients", multiple=True, metavar="NAME", help="Any other client's certificate.")
@click.option(
    "--server",
    "servers",
    multiple=True,
    metavar="NAME=HOST[,HOST...]",
    help="A server's certificate: a bridge, a router, a broker, and the DNS names by which it is reached.",
)
@click.option(
    "--interior-router",
    "interiors",
    multiple=True,
    metavar="NAME=HOST[,HOST...]",
    help="An interior router's second certificate, for links to other interior routers, of a second authority: FOLDER/routers.",
)
@click.option(
    "--copy",
    "copies",
    multiple=True,
    metavar="NAME=FOLDER[:UID]",
    help="Also copy NAME's certificate and key, and authority.pem, into a folder of the service that uses them, for its user.",
)
@click.option("--days", type=click.FloatRange(min=0.001), default=90, show_default=True, help="How long they last.")
def certs(
    folder: Path,
    sources: tuple[str, ...],
    clients: tuple[str, ...],
    servers: tuple[str, ...],
    interiors: tuple[str, ...],
    copies: tuple[str, ...],
    days: float,
) -> None:
    """Make a private authority in FOLDER, once, and certificates from it; those that are there are renewed.

    For tests and trials: who can read FOLDER/authority.key can be anybody. Each certificate is NAME.pem with its key in NAME.key,
    a source's slash made a dash. Edges and servers need their own two files and authority.pem, never authority.key: --copy gives
    them these alone.
    """
    for source in sources:
        if not re.match(SOURCE_NAME, source):
            raise ConfigurationError(f"--source {source}: a source is named REGION/NAME", hint="As in the edge's file.")
    named_servers = [_parse_hosts("--server", server) for server in servers]
    interior_routers = [_parse_hosts("--interior-router", router) for router in interiors]
    deliveries = [_parse_copy(copy) for copy in copies]
    for client in clients:
        if not re.fullmatch(r"[\w.-]+", client):
            raise ConfigurationError(f"--client {client}: a name has letters, digits, '.', '_' and '-'")
    authority = Authority(folder)
    certificates = [authority.client(name, days) for name in (*sources, *clients)]
    certificates += [authority.server(name, hosts, days) for name, hosts in named_servers]
    _report(authority, certificates, days)
    if interior_routers:
        # No policy applies to a link between interior routers: whoever has a certificate of this authority is one.
        routers = Authority(folder / "routers")
        _report(routers, [routers.server(name, hosts, days) for name, hosts in interior_routers], days)
    for name, into, owner in deliveries:
        paths = list(deliver(folder, name, into, owner))
        echo(f"copies       {into}: {', '.join(str(path.relative_to(into)) for path in paths)}")


def _parse_hosts(option: str, text: str) -> tuple[str, list[str]]:
    """Return the name and the host names of NAME=HOST[,HOST...]; raise ConfigurationError for anything else."""
    name, _, hosts = text.partition("=")
    if not re.fullmatch(r"[\w.-]+", name) or not all(hosts.split(",")):
        raise ConfigurationError(f"{option} {text}: give NAME=HOST[,HOST...]", hint=f"{option} bridge=bridge.example")
    return name, hosts.split(",")


def _parse_copy(text: str) -> tuple[str, Path, int | None]:
    """Return name, folder and owner of NAME=FOLDER[:UID]; raise ConfigurationError for anything else."""
    match = re.fullmatch(r"([\w.-]+)=(.+?)(?::(\d+))?", text)
    if match is None:
        raise ConfigurationError(
            f"--copy {text}: give NAME=FOLDER or NAME=FOLDER:UID", hint="--copy bridge=/srv/bridge:10001"
        )
    return match[1], Path(match[2]), int(match[3]) if match[3] else None


def _report(authority: "Authority", certificates: list[Path], days: float) -> None:
    echo(f"authority    {authority.certificate_file}")
    for path in certificates:
        echo(f"certificate  {path}, key {path.with_suffix('.key').name}, {days:g} days")


def deliver(folder: Path, name: str, into: Path, owner: int | None) -> Iterator[Path]:
    """Copy a certificate, its key and its authority's certificate into a folder; yield what was written.

    What `--interior-router` made for that name goes into a folder `routers` in it. `owner`, a user's number, owns the copies and
    the folders. Raises ConfigurationError when there is no certificate of that name.
    """
    if not (folder / f"{name}.pem").exists():
        raise ConfigurationError(
            f"--copy {name}={into}: there is no certificate {name}.pem in {folder}",
            hint=f"Name it by --source, --client or --server; here are: {', '.join(_names(folder))}.",
        )
    yield from _copy(folder, name, into, owner)
    if (folder / "routers" / f"{name}.pem").exists():
        yield from _copy(folder / "routers", name, into / "routers", owner)


def _copy(folder: Path, name: str, into: Path, owner: int | None) -> Iterator[Path]:
    into.mkdir(parents=True, exist_ok=True)
    into.chmod(0o700)
    for file in ("authority.pem", f"{name}.pem", f"{name}.key"):
        target = into / file
        write_private(target, (folder / file).read_bytes())
        if owner is not None:
            os.chown(target, owner, owner)
        yield target
    if owner is not None:
        os.chown(into, owner, owner)


def _names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.pem") if path.stem != "authority")
