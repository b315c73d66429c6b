"""`headrace certs`: a private authority and certificates for tests and trials."""

import re
from pathlib import Path

import click

from headrace.configuration.load import SOURCE_NAME
from headrace.errors import ConfigurationError


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
@click.option("--days", type=click.FloatRange(min=0.001), default=90, show_default=True, help="How long they last.")
def certs(
    folder: Path, sources: tuple[str, ...], clients: tuple[str, ...], servers: tuple[str, ...], days: float
) -> None:
    """Make a private authority in FOLDER, once, and certificates from it; those that are there are renewed.

    For tests and trials: who can read FOLDER/authority.key can be anybody. Each certificate is NAME.pem with its key in NAME.key,
    a source's slash made a dash. Edges and servers need their own two files and authority.pem, never authority.key.
    """
    from headrace.certificates.authority import Authority

    for source in sources:
        if not re.match(SOURCE_NAME, source):
            raise ConfigurationError(f"--source {source}: a source is named REGION/NAME", hint="As in the edge's file.")
    named = [(server, *server.partition("=")[::2]) for server in servers]
    for given, name, hosts in named:
        if not re.fullmatch(r"[\w.-]+", name) or not all(hosts.split(",")):
            raise ConfigurationError(
                f"--server {given}: give NAME=HOST[,HOST...]", hint="--server bridge=bridge.example"
            )
    for client in clients:
        if not re.fullmatch(r"[\w.-]+", client):
            raise ConfigurationError(f"--client {client}: a name has letters, digits, '.', '_' and '-'")
    authority = Authority(folder)
    made = [authority.client(name, days) for name in (*sources, *clients)]
    made += [authority.server(name, hosts.split(","), days) for _, name, hosts in named]
    click.echo(f"authority    {authority.certificate_file}")
    for path in made:
        click.echo(f"certificate  {path}, key {path.with_suffix('.key').name}, {days:g} days")
