"""The commands `headrace up`, `down` and `status`: a stack whose servers stay when the command has ended.

Found by headrace/command.py through entry points. Errors are raised as they are: the root command words them.
"""

import json
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from infra.local.stack import Stack

_folder = click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".headrace"),
    show_default=True,
    help="Where the servers keep everything: data, logs, records of their processes.",
)


def _console() -> Console:
    return Console(highlight=False, soft_wrap=True)


def _exists(folder: Path) -> bool:
    return (folder / "stack.json").exists()


@click.command()
@_folder
@click.option(
    "--postgres",
    "names",
    metavar="NAME",
    multiple=True,
    help="A PostgreSQL cluster to run; repeat for more.  [default: those of last time, at first: jakarta, london]",
)
@click.option(
    "--mariadb",
    "mariadb_names",
    metavar="NAME",
    multiple=True,
    help="A MariaDB server to run; repeat for more.  [default: those of last time, at first none]",
)
def up(folder: Path, names: tuple[str, ...], mariadb_names: tuple[str, ...]) -> None:
    """Start database servers and Kafka on this machine, on free ports, and leave them running.

    The first start makes the servers and picks the ports; later ones keep both. What runs already is left alone.
    """
    console = _console()
    if _exists(folder):
        stack = Stack.load(folder, more_postgres=names, more_mariadb=mariadb_names)
    else:
        postgres = dict.fromkeys(names or ("jakarta", "london"))
        stack = Stack(folder, postgres=postgres, mariadb=dict.fromkeys(mariadb_names), detached=True)
    before = {name for name, server in stack.servers.items() if server.running}
    if before < set(stack.servers):
        with console.status("Starting " + ", ".join(sorted(set(stack.servers) - before))):
            stack.start()
    if before:
        console.print(f"Already running: {', '.join(sorted(before))}.")
    _show(console, stack)
    console.print("[dim]Stop them with: headrace down. Their logs:[/] " + escape(str(stack.folder / "logs")))


@click.command()
@_folder
@click.option("--delete", is_flag=True, help="Also remove the folder, with all that the servers hold.")
def down(folder: Path, *, delete: bool) -> None:
    """Stop the local servers; what they hold stays, unless --delete is given."""
    console = _console()
    if not _exists(folder):
        console.print(f"Nothing is running in {escape(str(folder.absolute()))}: there is no stack in it.")
        return
    stack = Stack.load(folder)
    names = sorted(name for name, server in stack.servers.items() if server.running)
    with console.status("Stopping " + ", ".join(names)):
        stack.stop()
        if delete:
            stack.delete()
    console.print(f"Stopped: {', '.join(names)}." if names else "Nothing was running.")
    if delete:
        console.print(f"Removed {escape(str(stack.folder))}.")


@click.command()
@_folder
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def status(folder: Path, *, as_json: bool) -> None:
    """Show the local servers: name, version, address, state, folder. Exit code 1 unless all are running."""
    console = _console()
    stack = Stack.load(folder) if _exists(folder) else None
    running = stack is not None and stack.running
    if as_json:
        described = {name: _describe(stack, name) for name in stack.servers} if stack else {}
        click.echo(json.dumps({"folder": str(folder.absolute()), "running": running, "servers": described}, indent=1))
    elif stack is None:
        console.print(f"There is no stack in {escape(str(folder.absolute()))}. Start one: headrace up.")
    else:
        _show(console, stack)
    sys.exit(0 if running else 1)


def _describe(stack: Stack, name: str) -> dict[str, object]:
    server = stack.servers[name]
    return {
        "kind": server.kind,
        "version": stack.version(name),
        "address": server.address,
        "user": server.user,
        "running": server.running,
        "pid": server.pid,
        "folder": str(server.folder),
        "log": str(server.log),
    }


def _show(console: Console, stack: Stack) -> None:
    width = max(len(name) for name in stack.servers)
    for name, server in stack.servers.items():
        state = "[green]running[/]" if server.running else "[red]stopped[/]"
        what = f"{server.kind} {stack.version(name)}"
        address = f"{server.user}@{server.address}" if server.user else server.address
        console.print(f"{name:<{width}}  {what:<16}  {address:<24}  {state}  {escape(str(server.folder))}")
