"""`headrace certs`: a private authority and certificates for tests and trials, and copies for each service."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.configuration.value_types import SOURCE_NAME
from headrace.errors import ConfigurationError
from headrace.files import write_private

if TYPE_CHECKING:
    from headrace.certificates.authority import Authority


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
    from headrace.certificates.authority import Authority
    from headrace.certificates.command import deliver

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
        click.echo(f"copies       {into}: {', '.join(str(path.relative_to(into)) for path in paths)}")


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
    click.echo(f"authority    {authority.certificate_file}")
    for path in certificates:
        click.echo(f"certificate  {path}, key {path.with_suffix('.key').name}, {days:g} days")


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
