"""The command `headrace console`: web pages at headquarters."""

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace import logs
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.configuration.secret import Secret
from headrace.errors import ConfigurationError
from headrace.printable import echo

if TYPE_CHECKING:
    from headrace.console.security import Identity, Network

_FILE = click.Path(path_type=Path, dir_okay=False)
#: Fewer characters can be guessed.
_LEAST_TOKEN = 16


@click.command()
@click.option("--config", "path", required=True, metavar="FILE", type=_FILE, help="The bridges' file.")
@click.option(
    "--at",
    multiple=True,
    metavar="HOST:PORT",
    help="A bridge's [metrics] listen, where it is not the file's; repeat for bridges that share sources.",
)
@click.option(
    "--lake", "lake_path", metavar="FILE", type=_FILE, help="The lake's file; without it the lake is not shown."
)
@click.option(
    "--prometheus", metavar="URL", help="Take the charts from here; without it, from the console's own start on."
)
@click.option(
    "--listen", metavar="HOST:PORT", default="127.0.0.1:9420", show_default=True, help="Where browsers connect to."
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which browsers call the console, in addition to that of --listen; repeat for more.",
)
@click.option(
    "--token",
    metavar="REFERENCE",
    help="Callers give this token: file:PATH, env:NAME or command:PROGRAM, of 16 characters or more.",
)
@click.option("--trust-header", metavar="NAME", help="A proxy has identified callers and names them in this header.")
@click.option("--from", "proxies", multiple=True, metavar="CIDR", help="With --trust-header: the proxy's addresses.")
@click.option("--certificate", metavar="PEM", type=_FILE, help="Serve over TLS with this certificate.")
@click.option("--key", metavar="PEM", type=_FILE, help="Its private key.")
def console(
    *,
    path: Path,
    at: tuple[str, ...],
    lake_path: Path | None,
    prometheus: str | None,
    listen: str,
    hosts: tuple[str, ...],
    token: str | None,
    trust_header: str | None,
    proxies: tuple[str, ...],
    certificate: Path | None,
    key: Path | None,
) -> None:
    """Show every source on its path from the database to the lake's tables, as web pages that update themselves.

    Read-only. On another address than this machine's own (127.0.0.1, ::1), it demands --token, or --trust-header with --from.
    Stop it with Ctrl-C.
    """  # fmt: skip
    from headrace.console.server import Console, Settings

    bridge = load(path, BridgeFile)
    if not (at or bridge.metrics.listen):
        raise ConfigurationError(
            f"{path} has no [metrics] listen, by which the console asks the bridge",
            hint="Add it to the file and restart the bridge, or name its address with --at.",
        )
    if (certificate is None) != (key is None):
        raise ConfigurationError("--certificate and --key go together")
    host, port = _address(listen)
    served = Console(
        Settings(
            bridge=bridge,
            at=tuple(_checked(each) for each in at or (bridge.metrics.listen or "",)),
            lake=load(lake_path, LakeFile) if lake_path is not None else None,
            prometheus=prometheus,
            host=host,
            port=port,
            hosts=hosts,
            identity=_identity(host, hosts, token, trust_header, proxies),
            certificate=certificate,
            key=key,
        )
    )
    logs.serve("console")
    echo(f"console: {served.url} (Ctrl-C stops it)", err=True)
    served.run()


def _identity(
    host: str, hosts: tuple[str, ...], token: str | None, header: str | None, proxies: tuple[str, ...]
) -> "Identity":
    """Return how callers prove who they are; raise ConfigurationError where strangers would be served."""
    from headrace.console.security import Identity

    if token and header:
        raise ConfigurationError("give --token or --trust-header, not both")
    if bool(header) != bool(proxies):
        raise ConfigurationError("--trust-header and --from go together: only the proxy's addresses are believed")
    if not _is_loopback(host):
        if not (token or header):
            raise ConfigurationError(
                f"--listen {host}: others reach this address, and the console would answer all of them",
                hint="Add --token file:PATH, or --trust-header NAME --from CIDR behind a proxy that identifies callers.",
            )
        if host in {"0.0.0.0", "::"} and not hosts:
            raise ConfigurationError(
                f"--listen {host} has no name of its own by which a request for this console could be recognised",
                hint="Add --host NAME, the name in the browser's address; or listen on one address.",
            )
    return Identity(token=_token(token) if token else None, header=header, proxies=tuple(map(_network, proxies)))


def _token(reference: str) -> str:
    try:
        found = Secret(reference).reveal().strip()
    except ValueError as error:
        raise ConfigurationError(
            "--token: expected file:PATH, env:NAME or command:PROGRAM, not the token itself"
        ) from error
    if len(found) < _LEAST_TOKEN:
        raise ConfigurationError(
            f"--token {reference}: it has fewer than {_LEAST_TOKEN} characters",
            hint="Make one with: openssl rand -hex 32",
        )
    return found


def _network(text: str) -> "Network":
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ConfigurationError(f"--from {text}: {error}") from error


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(f"--listen {text}: expected HOST:PORT, such as 127.0.0.1:9420")
    return host.strip("[]"), int(port)


def _checked(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 < int(port) <= 65535:
        raise ConfigurationError(
            f"{text}: expected HOST:PORT of a bridge's endpoint",
            hint="Name it with --at: the bridge logs it as 'metrics, health and status on ...'.",
        )
    return f"{host or '127.0.0.1'}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
